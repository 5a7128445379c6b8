"""Files that a run leaves behind: each appears whole or not at all, and is read with one sentence or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bitproof.harness.errors import EnvironmentUnfit, UsageError

T = TypeVar("T")


def write(path: Path, content: bytes) -> None:
    """Write `content` to `path`, folders included; EnvironmentUnfit where that cannot be done.

    Also when several processes write, the file is that of one of them.
    """
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise EnvironmentUnfit(
            f"{path.resolve()} cannot be written ({error.strerror or error}): make its folder writable, "
            "or run in another one"
        ) from error


def read(
    path: Path, kind: type[T], *, what: str, version: int | None = None, remedy: str = ""
) -> T:
    """The JSON in `path`, a `what` such as "record", as a value of type `kind`; see `parse`.

    UsageError too where the file cannot be read, with `remedy` added.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        told = f"{path} cannot be read: {error.strerror or error}"
        raise UsageError(f"{told}; {remedy}" if remedy else told) from error
    return parse(text, kind, source=str(path), what=what, version=version)


def parse(
    text: bytes | str, kind: type[T], *, source: str, what: str, version: int | None = None
) -> T:
    """JSON text from `source`, a file or an option, as a value of type `kind`.

    With `version`, `text` must hold an object whose field "format" says that one. Raises UsageError in one
    sentence for what is no JSON, not written by bitproof, of another version, or damaged.
    """
    try:
        plain: Any = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{source} is not a {what}: it is not valid JSON ({error})") from error
    if version is not None:
        if not isinstance(plain, dict) or "format" not in plain:
            raise UsageError(f"{source} is not a {what} written by bitproof")
        if plain["format"] != version:
            raise UsageError(
                f"{source} has {what} format {plain['format']!r}, this version reads {version}: "
                "use the bitproof that wrote it"
            )
    try:
        return msgspec.convert(plain, type=kind, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source} is a damaged {what}: {error}") from error
