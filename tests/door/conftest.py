"""One wheel for all tests of what an installation changes, and a run of the properties in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from bitproof.harness import lanes
from tests.door.installing import build, copy_sources, install
from tests.door.running import ENVIRONMENT, FILES, Run


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    copy_sources(folder / "source")
    built = build(folder / "source", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = folder.glob("*.whl")
    install(wheel, folder / "site")
    return folder / "site"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What the plugin sets in the environment is undone; CI is not set."""
    for name in ENVIRONMENT:
        before = os.environ.get(name)
        monkeypatch.setenv(name, before or "to be restored")
        if before is None or name == "CI":
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture(scope="module")
def opened() -> None:
    """The lane is open before pytester notes what is imported, and forgets the rest after each test."""
    lanes.present()


@pytest.fixture
def run(opened: None, pytester: pytest.Pytester, environment: pytest.MonkeyPatch) -> Iterator[Run]:
    """`run(text, *options)`: the properties of CHECKS over the specs in `text`, in this process."""

    def run(text: str, *options: str) -> pytest.RunResult:
        path = pytester.path / "their_specs.py"
        path.write_text(text)
        given = ["-p", "no:cacheprovider", *FILES, "--spec", path.name, *options]
        if "--max-examples" not in options:
            given += ["--max-examples", "5"]
        return pytester.runpytest_inprocess(*given)

    yield run
    settings.load_profile("bitproof-tests")
