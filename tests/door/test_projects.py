"""Projects of other people, beside which an installed bitproof changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.door.installing import FOLDERS, PLUGINS, run_pytest

PASSING = "def test_it():\n    assert True\n"
OPTIONS = ("--runs", "--kernel", "--spec", "--lane", "--max-examples", "--seconds")


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _held(run: subprocess.CompletedProcess[str], folder: Path) -> None:
    """It passed, and nothing of bitproof shows."""
    assert run.returncode == 0, run.stdout + run.stderr
    assert "bitproof" not in run.stdout + run.stderr
    assert not (folder / ".bitproof").exists()


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_a_project_keeps_its_own_packages(site: Path, tmp_path: Path, mode: str) -> None:
    """Those called like folders of ours, with tests inside and beside them."""
    for name in FOLDERS:
        _write(
            tmp_path,
            {
                f"{name}/__init__.py": f"ANSWER = {name!r}\n",
                f"{name}/spec.py": "OWN = True\n",
                f"{name}/tests/__init__.py": "",
                f"{name}/tests/test_in_{name}.py": f"from {name}.spec import OWN\n\n\n{PASSING}",
                f"test_beside_{name}.py": f"from {name} import ANSWER\n\n\n"
                f"def test_it():\n    assert ANSWER == {name!r}\n",
            },
        )
    run = run_pytest(site, tmp_path, "-q", f"--import-mode={mode}")
    _held(run, tmp_path)
    assert "8 passed" in run.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_conftest_keeps_its_own_options(
    site: Path, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    """All of our short names, with values of its own, also in a worker of xdist."""
    adding = "".join(f"    parser.addoption({option!r}, default='3')\n" for option in OPTIONS)
    names = [option.removeprefix("--").replace("-", "_") for option in OPTIONS]
    _write(
        tmp_path,
        {
            "conftest.py": f"def pytest_addoption(parser):\n{adding}",
            "test_theirs.py": "def test_it(request):\n"
            f"    for name in {names!r}:\n"
            "        assert request.config.getoption(name) == f'their {name}'\n",
        },
    )
    given = [
        word
        for option, name in zip(OPTIONS, names, strict=True)
        for word in (option, f"their {name}")
    ]
    _held(run_pytest(site, tmp_path, "-q", *workers, *given), tmp_path)


def test_a_conftest_that_is_met_while_collecting_keeps_its_options(
    site: Path, tmp_path: Path
) -> None:
    """Our short names are absent from a run that is none of ours, so that nothing can collide."""
    _write(
        tmp_path,
        {
            "deep/conftest.py": "def pytest_addoption(parser):\n    parser.addoption('--runs')\n",
            "deep/test_theirs.py": PASSING,
        },
    )
    _held(run_pytest(site, tmp_path, "-q"), tmp_path)


def test_our_options_have_long_names_where_a_conftest_took_the_short_ones(
    site: Path, tmp_path: Path
) -> None:
    """A project with a `--runs` of its own runs the properties all the same."""
    _write(
        tmp_path,
        {"conftest.py": "def pytest_addoption(parser):\n    parser.addoption('--kernel')\n"},
    )
    chosen = ("--bitproof-kernel", "round_e4m3", "--kernel", "theirs", "--max-examples", "3")
    run = run_pytest(
        site, tmp_path, "-q", "--pyargs", "bitproof.properties.test_agreement", *chosen
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "round_e4m3: agreement " in run.stdout
    assert "1 passed" in run.stdout
    assert (tmp_path / ".bitproof" / ".gitignore").read_text() == "*\n"


def test_other_plugins_are_left_alone(site: Path, tmp_path: Path) -> None:
    """Each is loaded beside ours, and the project's tests pass."""
    assert PLUGINS.is_dir(), f"{PLUGINS} is missing: `python3 ci/run.py tests` makes it"
    wanted = ["spec", "randomly", "timeout", "cov", "asyncio"]
    _write(
        tmp_path,
        {
            "test_theirs.py": "def test_it(request):\n"
            "    named = [str(n) for n, _ in request.config.pluginmanager.list_name_plugin()]\n"
            f"    missing = [w for w in {wanted!r} if not any(w in name for name in named)]\n"
            "    assert missing == []\n",
        },
    )
    run = run_pytest(site, tmp_path, "-q", "-p", "no:bitproof", beside=(PLUGINS,))
    assert run.returncode == 0, run.stdout + run.stderr
    _held(run_pytest(site, tmp_path, "-q", beside=(PLUGINS,)), tmp_path)


def test_a_checkout_collects_each_property_once() -> None:
    """`pytest .` passes the links by."""
    checkout = Path(__file__).resolve().parents[2]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", ".", "--collect-only", "-q", "-k", "test_agreement"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in run.stdout.splitlines() if "test_agreement[round_e4m3]" in line]
    assert found == ["properties/test_agreement.py::test_agreement[round_e4m3]"]
