"""The environment is read and set in few places: a lane's name and Triton's settings by the lanes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGES = ("bitproof", "harness", "kernels", "oracles", "properties")

# Whoever else touches the environment, and what for.
OTHERS = {
    "bitproof/workers.py": "starts a run: compile caches, cards, memory and threads of its workers",
    "harness/search/profiles.py": "the default profile of a run on a CI machine",
    "harness/compiling/compiler.py": "the environment of its child processes",
    "harness/processes/child.py": "the environment of child processes",
    "harness/lowering/compile.py": "the environment of its child processes, and what it has Triton use",
}


def _touches(path: Path) -> bool:
    """Whether a module reads or sets the environment, however it imports `os`."""
    named = {"environ", "environb", "getenv", "putenv", "unsetenv"}
    return any(
        (isinstance(node, ast.Attribute) and node.attr in named)
        or (isinstance(node, ast.ImportFrom) and {a.name for a in node.names} & named)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def test_only_lanes_touch_the_environment_but_for_those_listed() -> None:
    """Everything else is handed what it has to know."""
    touching = {
        path.relative_to(CHECKOUT).as_posix()
        for package in PACKAGES
        for path in sorted((CHECKOUT / package).rglob("*.py"))
        if _touches(path)
    }
    assert {name for name in touching if not name.startswith("harness/lanes/")} == set(OTHERS)


@pytest.mark.parametrize(
    ("text", "touches"),
    [
        ("import os\nos.environ['A'] = '1'", True),
        ("import os as system\nsystem.getenv('A')", True),
        ("from os import environ", True),
        ("import os\nos.getcwd()", False),
    ],
)
def test_whoever_touches_it_is_seen(tmp_path: Path, text: str, touches: bool) -> None:
    """So that the list can be wrong."""
    path = tmp_path / "module.py"
    path.write_text(text)
    assert _touches(path) == touches
