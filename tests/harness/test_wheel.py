"""An installed wheel, away from any checkout, tests somebody else's kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLE = CHECKOUT / "tests" / "example_package"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    copy = folder / "source"
    _copy_tracked(copy)
    subprocess.run([*build, str(copy)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(folder / "site"), str(wheel)], check=True, capture_output=True)
    return folder / "site"


def _copy_tracked(to: Path) -> None:
    """The files that a wheel is built from, without what a build would leave in the checkout."""
    for name in ("harness", "oracles", "properties", "pyproject.toml", "README.md", "LICENSE"):
        source = CHECKOUT / name
        for file in [source] if source.is_file() else sorted(source.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                target = to / file.relative_to(CHECKOUT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())


def _pytest(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join((str(site), str(EXAMPLE)))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "BITPROOF_LANE": "interpreter"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_ships_no_kernels(site: Path) -> None:
    """The wheel brings harness, oracles and properties, and leaves the name `kernels` alone."""
    brought = {path.name for path in site.iterdir() if path.is_dir()}
    assert {"harness", "oracles", "properties"} <= brought
    assert not brought & {"kernels", "tests", "ci", "benchmarks"}


def test_tests_a_foreign_spec(site: Path, tmp_path: Path) -> None:
    """`--pyargs properties --spec MODULE` runs a foreign package's kernel from the wheel."""
    spec = ("--spec", "example_kernels.bitproof_specs")
    run = _pytest(site, tmp_path, "--pyargs", "properties", *spec, "--max-examples", "5", "-q")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "scale_add: " in run.stdout


def test_asks_for_a_spec(site: Path, tmp_path: Path) -> None:
    """Without `--spec` there is nothing to test, which one sentence says."""
    run = _pytest(site, tmp_path, "--pyargs", "properties")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no kernels come with an installed bitproof: name yours with --spec" in run.stderr
    assert "Traceback" not in run.stdout + run.stderr
