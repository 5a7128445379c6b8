"""Files that a run leaves behind: each appears whole or not at all, also when several processes write."""

from __future__ import annotations

import os
from pathlib import Path

from bitproof.harness.errors import EnvironmentUnfit

FOLDER = Path(".bitproof")


def save(path: Path, text: bytes) -> None:
    """Write `text` to `path`, folders included; EnvironmentUnfit where that cannot be done."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.parents:
            if folder.name == FOLDER.name:
                hide(folder)
        partial.write_bytes(text)
        partial.replace(path)
    except OSError as error:
        raise EnvironmentUnfit(
            f"{path.resolve()} cannot be written ({error.strerror or error}): make its folder writable, "
            "or run in another one"
        ) from error


def hide(folder: Path) -> None:
    """Make `folder`, if need be, and keep it out of its user's commits: git ignores what lies in it."""
    folder.mkdir(parents=True, exist_ok=True)
    ignoring = folder / ".gitignore"
    if not ignoring.exists():
        ignoring.write_text("*\n", encoding="utf-8")
