"""An installed wheel, away from any checkout, tests somebody else's kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDERS = ("harness", "kernels", "oracles", "properties")
MODULES = ("__init__", "__main__", "plugin", "suite")
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
    (to / "bitproof").mkdir(parents=True)
    for part in FOLDERS:
        (to / "bitproof" / part).symlink_to(f"../{part}")
    parts = (*FOLDERS, *(f"bitproof/{name}.py" for name in MODULES))
    for name in (*parts, "pyproject.toml", "README.md", "LICENSE"):
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


def test_owns_one_import_name(site: Path) -> None:
    """The wheel brings `bitproof`, whole, and leaves every other name to others."""
    brought = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert brought == {"bin", "bitproof"}
    held = {path.name for path in (site / "bitproof").iterdir() if path.is_dir()}
    assert held == set(FOLDERS)
    for part in FOLDERS:
        ours = {p.relative_to(CHECKOUT) for p in (CHECKOUT / part).rglob("*.py")}
        theirs = {
            p.relative_to(site / "bitproof") for p in (site / "bitproof" / part).rglob("*.py")
        }
        assert theirs == ours


def test_tests_a_foreign_spec(site: Path, tmp_path: Path) -> None:
    """`--pyargs bitproof.properties --spec MODULE` runs a foreign package's kernel from the wheel."""
    spec = ("--spec", "example_kernels.bitproof_specs")
    run = _pytest(
        site, tmp_path, "--pyargs", "bitproof.properties", *spec, "--max-examples", "5", "-q"
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "scale_add: " in run.stdout


def test_tests_the_built_in_kernels(site: Path, tmp_path: Path) -> None:
    """Without `--spec`, the kernels that ship are tested."""
    chosen = ("--kernel", "round_e4m3", "-k", "agreement", "--max-examples", "5", "-q")
    run = _pytest(site, tmp_path, "--pyargs", "bitproof.properties", *chosen)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "round_e4m3: agreement 5" in run.stdout
