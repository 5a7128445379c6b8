"""A fence around the memory of an unwatched launch, beyond which an access ends the launch.

Without a sanitizer, addresses are used as they are. One that lies in no tensor, nor between its guard
bands, could take the process down or write into anything; a GPU calls it an illegal access.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable

import numpy as np
import torch

from bitproof.harness.lanes.interpreter.sanitizer.blocks import Array, Lanes


class IllegalAccess(Exception):
    """A kernel addressed memory that belongs to no tensor."""


class Fence:
    """Knows the memory that a launch may address: that of `buffers`, and of the launch's arguments."""

    def __init__(self, buffers: Callable[[], Iterable[torch.Tensor]]) -> None:
        """`buffers` is asked again before every launch."""
        self._buffers = buffers
        self._starts: list[int] = []
        self._ends: list[int] = []

    def begin(self, arguments: Iterable[torch.Tensor]) -> None:
        """Start a launch with these tensors in host memory."""
        storages = (one.untyped_storage() for one in (*self._buffers(), *arguments))
        extents = sorted({(one.data_ptr(), one.data_ptr() + one.nbytes()) for one in storages})
        self._starts, self._ends = [first for first, _ in extents], [end for _, end in extents]

    def hold(self, pointers: Array, mask: Lanes | None, size: int, verb: str) -> None:
        """Raise IllegalAccess where an access of `size` bytes whose mask is on leaves the fence."""
        if not pointers.size:
            return
        # Mostly one tensor holds them all, whatever the mask says, and that is quickly seen.
        at = bisect.bisect_right(self._starts, int(pointers.min())) - 1
        if at >= 0 and int(pointers.max()) + size <= self._ends[at]:
            return
        on = pointers if mask is None else pointers[np.broadcast_to(mask, pointers.shape)]
        addresses = on.reshape(-1).astype(np.int64)
        home = np.searchsorted(np.array(self._starts, dtype=np.int64), addresses, side="right") - 1
        ends = np.array(self._ends, dtype=np.int64)
        outside = (home < 0) | (addresses + size > ends.take(home, mode="clip"))
        if outside.any():
            raise IllegalAccess(f"{verb} an address in no tensor of the launch")
