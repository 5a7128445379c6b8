"""The errors this project raises on purpose, one sentence each, and the wording of anybody's errors."""

from __future__ import annotations

import traceback
from collections.abc import Iterator


class BitproofError(Exception):
    """Base of every error a user can cause; the command line prints its text and exits with 2."""


class UsageError(BitproofError):
    """What was asked for does not exist or does not fit: a name, an option, a file, a shape."""


class EnvironmentUnfit(BitproofError):
    """This machine or process cannot do what was asked: no GPU, an old triton, a clash of packages."""


class SpecError(BitproofError):
    """A kernel's specification contradicts itself or leaves something out."""


class Refused(BitproofError):
    """A kernel's launcher rejected its inputs with its documented error."""


class Unsupported(BitproofError):
    """The present lane cannot run this kernel, though some target's compiler takes it; the text says why."""


class Uncompilable(BitproofError):
    """No target's compiler takes what a kernel does; the text says what to write instead."""


class Unlaunchable(BitproofError):
    """No card starts a kernel so launched, or Triton rejects what it is launched with."""


def one_line(error: BaseException) -> str:
    """An exception's text on one line, at most 300 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def describe(error: BaseException) -> str:
    """An exception in a few words: its type, where it was raised, and its text."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{frame.name} ({frame.filename}:{frame.lineno})"
    return f"{type(error).__name__} in {where}: {one_line(error)}"


def causes(error: BaseException, *, contexts: bool = False) -> Iterator[BaseException]:
    """`error`, what caused it, and so on; with `contexts` what was being handled where no cause is named.

    Each exception comes once, though a chain may lead back into itself: Python lets an exception be
    raised from another one that it caused.
    """
    link: BaseException | None = error
    seen: list[BaseException] = []
    while link is not None and not any(link is earlier for earlier in seen):
        yield link
        seen.append(link)
        context = link.__context__ if contexts and not link.__suppress_context__ else None
        link = link.__cause__ or context
