"""Fixtures of the harness tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bitproof.harness.commands.cli import main
from tests.harness.attributing import STORING, Attribute
from tests.harness.command_line import EXAMPLES, Bitproof

Write = Callable[[str, str], Path]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of somebody else's, on the import path; what is imported from it is forgotten after."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    # Only that: an extension module that is imported a second time, such as Triton's, ends the process.
    for name, module in list(sys.modules.items()):
        if tmp_path in Path(getattr(module, "__file__", None) or "/").parents:
            del sys.modules[name]


@pytest.fixture
def write(elsewhere: Path) -> Write:
    """`write(name, text)`: a Python file in `elsewhere`."""

    def write(name: str, text: str) -> Path:
        path = elsewhere / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def bitproof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bitproof:
    """`bitproof(*arguments)` in an empty folder, with the example package importable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)

    def run(*arguments: str) -> Result:
        return CliRunner(catch_exceptions=False).invoke(main, arguments)

    return run


@pytest.fixture
def attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attribute:
    """`attribute(*arguments)`: of the kernel with known errors, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, kernel: str = "summed_parts", spec: str = STORING) -> Result:
        command = ("attribute", kernel, "--spec", spec, *arguments)
        return CliRunner(catch_exceptions=False).invoke(main, command)

    return run
