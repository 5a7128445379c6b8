"""Errors of compilers, told from those of kernels and put into one sentence."""

from __future__ import annotations

import os
import re

from bitproof.harness.errors import one_line

_OF_COMPILERS = ("CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct")


def refuses(error: BaseException) -> bool:
    """Whether `error` is a compiler's word that it cannot compile a kernel for its target."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {*_OF_COMPILERS, "PTXASError"}) or "PassManager::run failed" in str(error)


def sentence(error: BaseException, before: int | None = None) -> str:
    """A compiler's error in one sentence: the last line of its own, else the first error it printed.

    `before` is where standard error stood when the compiler began, if it is a file that can be read.
    """
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    wrapped = re.fullmatch(r"""\w+\((["'])(.*)\1\)""", last)
    if wrapped is not None:
        return wrapped[2]
    if "PassManager" in last or type(error).__name__ == "PTXASError":
        printed = f"{error}\n{'' if before is None else _read_printed(before)}"
        found = re.search(r"(?:error|fatal)\s*: (.*)", printed)
        return f"the compiler failed: {found[1] if found else last}"
    return one_line(error) if len(lines) < 2 else last


def _read_printed(before: int) -> str:
    """What was written to standard error since."""
    try:
        return os.pread(2, 1 << 20, before).decode(errors="replace")
    except OSError:
        return ""
