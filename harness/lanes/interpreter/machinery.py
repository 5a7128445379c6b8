"""Which frames of a running kernel are its own code: those outside of Triton, numpy and this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import triton

# Frames of these folders are machinery.
MACHINERY = tuple(
    f"{folder}{os.sep}"
    for folder in (Path(triton.__file__).parent, Path(np.__file__).parent, Path(__file__).parent)
)


def stack() -> Iterator[tuple[str, int]]:
    """(file, line) of the frames of the kernel that runs, the innermost first, without its launcher's."""
    frame = sys._getframe(1)
    inside = False
    while frame is not None:
        mine = not frame.f_code.co_filename.startswith(MACHINERY)
        if mine:
            yield frame.f_code.co_filename, frame.f_lineno
        elif inside and frame.f_code.co_name == "_run":
            return  # where `launches` starts a program
        inside = inside or mine
        frame = frame.f_back  # type: ignore[assignment]
