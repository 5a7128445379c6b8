"""Files that a run leaves behind: each appears whole or not at all, and is read with one sentence or none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bitproof.harness.errors import EnvironmentUnfit, UsageError

T = TypeVar("T")

FOLDER = Path(".bitproof")


def save(path: Path, content: bytes) -> None:
    """Write `content` to `path`, folders included; EnvironmentUnfit where that cannot be done.

    Also when several processes write, the file is that of one of them.
    """
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.parents:
            if folder.name == FOLDER.name:
                hide(folder)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise EnvironmentUnfit(
            f"{path.resolve()} cannot be written ({error.strerror or error}): make its folder writable, "
            "or run in another one"
        ) from error


def append(path: Path, content: bytes) -> None:
    """Add `content` to the end of `path`; EnvironmentUnfit where that cannot be done."""
    try:
        with path.open("ab") as held:
            held.write(content)
    except OSError as error:
        raise EnvironmentUnfit(f"{path} cannot be written: {error.strerror or error}") from error


@dataclass(frozen=True, kw_only=True)
class Format:
    """What tells a file of ours from any other: the number in its field "format", and a field beside it."""

    version: int
    beside: str


def read(
    path: Path, kind: type[T], *, what: str, form: Format | None = None, remedy: str = ""
) -> T:
    """The JSON in `path`, a `what` such as "record", as a value of type `kind`; see `parse`.

    UsageError too where the file cannot be read, with `remedy` added.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        told = f"{path} cannot be read: {error.strerror or error}"
        raise UsageError(f"{told}; {remedy}" if remedy else told) from error
    return parse(text, kind, source=str(path), what=what, form=form)


def parse(
    text: bytes | str, kind: type[T], *, source: str, what: str, form: Format | None = None
) -> T:
    """JSON text from `source`, a file or an option, as a value of type `kind`; strict.

    Raises UsageError in one sentence for what is no JSON, not of the form asked for, of another version of
    it, or damaged.
    """
    try:
        plain: Any = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        own = f"a {what}: it is not " if form is not None else ""
        raise UsageError(f"{source} is not {own}valid JSON ({error})") from error
    if form is not None:
        if not isinstance(plain, dict) or not {"format", form.beside} <= set(plain):
            raise UsageError(f"{source} is not a {what} written by bitproof")
        if plain["format"] != form.version:
            raise UsageError(
                f"{source} has {what} format {plain['format']!r}, this version reads {form.version}: "
                "use the bitproof that wrote it"
            )
    try:
        return msgspec.convert(plain, type=kind, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source} is a damaged {what}: {error}") from error


def hide(folder: Path) -> None:
    """Make `folder`, if need be, and keep it out of its user's commits: git ignores what lies in it."""
    folder.mkdir(parents=True, exist_ok=True)
    ignoring = folder / ".gitignore"
    if not ignoring.exists():
        ignoring.write_text("*\n", encoding="utf-8")
