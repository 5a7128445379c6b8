"""Extents: which addresses belong to one tensor argument, and which element an address is.

A tensor is judged by its own elements, not by its storage: the gap between two padded rows, or the
columns of a neighbour in the same buffer, are outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from bitproof.harness.lanes.interpreter.sanitizer.blocks import Addresses, Lanes
from bitproof.harness.lanes.interpreter.sanitizer.shadow import Shadow


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """One tensor argument of a launch: `first` is its address in bytes, `strides` are in elements."""

    name: str
    first: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    shadow: Shadow

    @cached_property
    def span(self) -> int:
        """Bytes from the first element to the end of the last."""
        if 0 in self.shape:
            return 0
        reach = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return (reach + 1) * self.itemsize

    @property
    def dense(self) -> bool:
        """Whether the elements lie one after another, the last axis fastest."""
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n > 1 and stride != step:
                return False
            step *= n
        return True

    @cached_property
    def _axes(self) -> tuple[int, ...]:
        """Axes that move the address, the largest step first."""
        moving = (i for i, n in enumerate(self.shape) if n > 1 and self.strides[i] > 0)
        return tuple(sorted(moving, key=lambda i: -self.strides[i]))

    @cached_property
    def _gaps(self) -> Lanes | None:
        """For each element-sized place of the span, whether it is a gap; None when there is none."""
        step = 1
        for axis in reversed(self._axes):
            if self.strides[axis] != step:
                break
            step *= self.shape[axis]
        if step * self.itemsize >= self.span:
            return None
        gaps = np.ones(self.span // self.itemsize, dtype=np.bool_)
        steps = [stride * gaps.itemsize for stride in self.strides]
        np.lib.stride_tricks.as_strided(gaps, self.shape, steps)[...] = False
        return gaps

    def outside(self, addresses: Addresses, size: int) -> Lanes | None:
        """Which accesses of `size` bytes touch a byte that is no element's; None when none does.

        An access wider than an element must be aligned to its own size, too.
        """
        gaps = self._gaps
        fits = (
            int(addresses.min()) >= self.first
            and int(addresses.max()) + size <= self.first + self.span
        )
        if fits and gaps is None and size <= self.itemsize:
            return None
        offsets = addresses - self.first
        out: Lanes = (offsets < 0) | (offsets + size > self.span)
        if gaps is not None:
            for end in (offsets, offsets + (size - 1)):
                out |= gaps.take(end // self.itemsize, mode="clip")
        if size > self.itemsize:
            out |= addresses % size != 0
        return out if out.any() else None

    def index(self, address: int) -> tuple[int, ...]:
        """The element at `address`; outside the tensor, the index that addresses it all the same.

        Only the axis of the largest stride leaves its range for an address before or past the tensor;
        an address in a gap leaves the range of the axis that the gap interrupts.
        """
        left = (address - self.first) // self.itemsize
        index = [0] * len(self.shape)
        for axis in self._axes:
            index[axis], left = divmod(left, self.strides[axis])
        if self._axes:
            return tuple(index)
        return (*index[:-1], left) if index or left else ()

    def before(self, address: int) -> tuple[int, ...]:
        """The last element before an `address` that lies in a gap between elements."""
        found = zip(self.index(address), self.shape, strict=True)
        return tuple(min(i, n - 1) for i, n in found)


def every_address(tensor: torch.Tensor) -> Addresses:
    """The address of each element, in index order."""
    offsets = np.zeros(tuple(tensor.shape), dtype=np.int64)
    for axis, (n, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        steps = np.arange(n, dtype=np.int64) * (stride * tensor.element_size())
        offsets = offsets + steps.reshape(-1, *(1,) * (tensor.dim() - 1 - axis))
    return tensor.data_ptr() + offsets.reshape(-1)
