"""One wheel for all tests of what an installation changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.door.installing import build, copy_sources, install


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
