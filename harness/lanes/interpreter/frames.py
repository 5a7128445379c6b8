"""Room for Python's frames, without which an interpreted kernel can spend most of its time in the kernel.

CPython keeps frames in chunks of 16 KiB that it maps when a call does not fit and unmaps when it
returns. Where the depth of a hot call happens to straddle a chunk's end, as it does under pytest, every
such call maps and unmaps one: 20 000 times a launch. A frame that asks for more than a chunk gets a
larger one, and what it calls finds the rest of that chunk free.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")

_SLOTS = 17_000  # 8 bytes each: just over 128 KiB, so that a chunk of 256 KiB is mapped


def _call(function: Callable[[], ResultT]) -> ResultT:
    return function()


_roomy = types.FunctionType(_call.__code__.replace(co_stacksize=_SLOTS), globals())


def with_room(function: Callable[[], ResultT]) -> ResultT:
    """`function()`, called from a frame with a hundred kilobytes of frames' room below it."""
    result: ResultT = _roomy(function)
    return result
