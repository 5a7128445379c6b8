"""An installed wheel, away from any checkout: what it brings, and that it tests anybody's kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.door.installing import CHECKOUT, FOLDERS, build, copy_sources, install, run_pytest

EXAMPLE = CHECKOUT / "tests" / "example_package"


def test_owns_one_import_name(site: Path) -> None:
    """The wheel brings `bitproof`, whole, and leaves every other name to others."""
    brought = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert brought == {"bin", "bitproof"}
    held = {path.name for path in (site / "bitproof").iterdir() if path.is_dir()} - {"__pycache__"}
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
    chosen = ("--pyargs", "bitproof.properties", *spec, "--max-examples", "5", "-q")
    run = run_pytest(site, tmp_path, *chosen, beside=(EXAMPLE,))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "scale_add: " in run.stdout


def test_tests_the_built_in_kernels(site: Path, tmp_path: Path) -> None:
    """Without `--spec`, the kernels that ship are tested."""
    chosen = ("--kernel", "round_e4m3", "-k", "agreement", "--max-examples", "5", "-q")
    run = run_pytest(site, tmp_path, "--pyargs", "bitproof.properties", *chosen)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "round_e4m3: agreement " in run.stdout


def test_a_source_distribution_installs_the_same(site: Path, tmp_path: Path) -> None:
    """It carries folders where the checkout has links."""
    copy_sources(tmp_path / "source")
    built = build(tmp_path / "source", tmp_path / "dist", "--sdist")
    assert built.returncode == 0, built.stdout + built.stderr
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    install(archive, tmp_path / "site")
    assert _contents(tmp_path / "site" / "bitproof") == _contents(site / "bitproof")


@pytest.mark.parametrize("left", ["nothing", "a file"])
def test_a_build_without_links_stops_with_a_sentence(tmp_path: Path, left: str) -> None:
    """As from an archive that lost them, or that keeps a link as the text of its target."""
    source = tmp_path / "source"
    copy_sources(source)
    (source / "bitproof" / "oracles").unlink()
    if left == "a file":
        (source / "bitproof" / "oracles").write_text("../oracles")
    built = build(source, tmp_path / "dist")
    assert built.returncode != 0
    assert "bitproof/oracles is no folder" in built.stdout + built.stderr
    assert not list(tmp_path.glob("dist/*.whl"))


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
