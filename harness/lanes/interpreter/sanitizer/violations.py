"""What the sanitizer reports, and where in a kernel's source the interpreter is."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bitproof.harness.lanes.interpreter.machinery import MACHINERY
from bitproof.harness.lanes.interpreter.sanitizer.blocks import Lanes

Kind = Literal["bounds", "unwritten", "race", "assert"]


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One thing a kernel must not do, where it did it first.

    `kernel` is the launched kernel, `file` and `line` the innermost line of kernel code, `program` the
    three program ids, `tensor` the argument's name and `index` the element's, both empty if unknown.
    """

    kind: Kind
    kernel: str
    file: str
    line: int
    source_line: str
    program: tuple[int, int, int]
    tensor: str
    index: tuple[int, ...]
    detail: str

    @property
    def text(self) -> str:
        """The report in one line, with the source line under it."""
        element = f", {self.tensor}[{', '.join(map(str, self.index))}]" if self.tensor else ""
        return (
            f"{self.kind}: {self.kernel}, program {self.program}{element}: {self.detail}, "
            f"at {self.file}:{self.line}\n    {self.source_line}"
        )


@dataclass(frozen=True)
class Place:
    """A line of kernel code and the program that runs it; `kernel` is the launched one."""

    kernel: str
    file: str
    line: int
    program: tuple[int, int, int]

    def violation(self, kind: Kind, tensor: str, index: tuple[int, ...], detail: str) -> Violation:
        """A violation at this place."""
        return Violation(
            kind=kind,
            kernel=self.kernel,
            file=self.file,
            line=self.line,
            source_line=source(self.file, self.line),
            program=self.program,
            tensor=tensor,
            index=index,
            detail=detail,
        )


def place() -> tuple[str, int]:
    """(file, line) of the innermost frame that is kernel code: not Triton's, numpy's or this package's."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(MACHINERY) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def counted(lanes: Lanes) -> str:
    """How many lanes a report is about, where there are several."""
    count = int(np.count_nonzero(lanes))
    return f" ({count} elements)" if count > 1 else ""


def locate_error(error: BaseException) -> tuple[str, int]:
    """(file, line) of the innermost kernel code that an error passed through; empty if none."""
    found = ("", 0)
    step = error.__traceback__
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(MACHINERY):
            found = (step.tb_frame.f_code.co_filename, step.tb_lineno)
        step = step.tb_next
    return found


def source(file: str, line: int) -> str:
    """That line's text without its indentation, or nothing if the file cannot be read."""
    return linecache.getline(file, line).strip()
