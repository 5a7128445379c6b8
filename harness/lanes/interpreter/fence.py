"""A fence around the memory of an unwatched launch, beyond which an access ends the launch.

Without a sanitizer, addresses are used as they are. One that lies in no tensor, nor between its guard
bands, could take the process down or write into anything; a GPU calls it an illegal access.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch

from harness.lanes.interpreter.blocks import Array, Lanes
from harness.lanes.interpreter.violations import place


class IllegalAccess(Exception):
    """A kernel addressed memory that belongs to no tensor."""


class Fence:
    """Knows the memory that a launch may address: that of `buffers`, and of the launch's arguments."""

    def __init__(self, buffers: Callable[[], Iterable[torch.Tensor]]) -> None:
        """`buffers` is asked again before every launch."""
        self._buffers = buffers
        self._starts = self._ends = np.empty(0, dtype=np.int64)

    def begin(self, arguments: Iterable[torch.Tensor]) -> None:
        """Start a launch with these tensors in host memory."""
        storages = (one.untyped_storage() for one in (*self._buffers(), *arguments))
        extents = sorted({(one.data_ptr(), one.data_ptr() + one.nbytes()) for one in storages})
        self._starts = np.array([first for first, _ in extents], dtype=np.int64)
        self._ends = np.array([end for _, end in extents], dtype=np.int64)

    def hold(self, pointers: Array, mask: Lanes | None, size: int, verb: str) -> None:
        """Raise IllegalAccess where an access of `size` bytes whose mask is on leaves the fence."""
        # Mostly one tensor holds them all, whatever the mask says.
        if not pointers.size or self._hold(np.array([pointers.min(), pointers.max()]), size, True):
            return
        on = pointers if mask is None else pointers[np.broadcast_to(mask, pointers.shape)]
        if not self._hold(on.reshape(-1), size, False):
            file, line = place()
            raise IllegalAccess(f"{verb} an address in no tensor of the launch, at {file}:{line}")

    def _hold(self, pointers: Array, size: int, together: bool) -> bool:
        """Whether tensors, or `together` one tensor, have all these addresses."""
        addresses = pointers.astype(np.int64)
        at = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = (at >= 0) & (addresses + size <= self._ends.take(at, mode="clip"))
        return bool(inside.all()) and not (together and at.min() != at.max())
