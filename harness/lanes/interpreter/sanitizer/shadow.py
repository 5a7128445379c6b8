"""Shadow memory: what is known about each cell of one storage while kernels run over it.

A cell is as wide as the narrowest element type seen. Each remembers whether anybody wrote it and, as
stamps of a `Timeline`, who wrote it last and which program of the launch read it first: programs run one
after another, so when the first reader is the present program, no other has read the cell.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bitproof.harness.lanes.interpreter.sanitizer.blocks import Addresses, Array, Lanes
from bitproof.harness.lanes.interpreter.sanitizer.timeline import Stamps, Timeline

Cells = NDArray[np.int64]


class Shadow:
    """The cells of one storage on the host, kept alive so that its addresses are not given away."""

    def __init__(self, storage: torch.UntypedStorage, grain: int) -> None:
        """All cells `grain` bytes wide, written before anything began."""
        self.first = storage.data_ptr()
        self.grain = grain
        self._storage = storage
        self._size = storage.nbytes()
        self._memory = np.ctypeslib.as_array((ctypes.c_ubyte * self._size).from_address(self.first))
        self._written: Lanes | None = None
        self._writer: Stamps | None = None
        self._reader: Stamps | None = None
        self._undefined: Cells | None = None
        self._storer: Stamps | None = None
        self._last_write = 0
        self._last_read = 0

    def memory(self, addresses: Addresses, dtype: np.dtype[Any]) -> tuple[Array, Cells]:
        """(the storage as an array of `dtype`, the places in it of aligned `addresses`)."""
        skip = -self.first % dtype.itemsize
        count = (self._size - skip) // dtype.itemsize
        view = self._memory[skip : skip + count * dtype.itemsize].view(dtype)
        return view, (addresses - (self.first + skip)) // dtype.itemsize

    def cells(self, addresses: Addresses, size: int) -> Cells:
        """The cells of elements of `size` bytes at `addresses`: shape (n,), or (n, k) if k cells each."""
        if size < self.grain:
            self._refine(size)
        cells = (addresses - self.first) // self.grain
        width = size // self.grain
        return cells if width == 1 else cells[:, None] + np.arange(width)

    def run(self, address: int, size: int) -> slice:
        """The cells of `size` bytes from `address` on."""
        start = (address - self.first) // self.grain
        return slice(start, start + size // self.grain)

    def missing(self, cells: Cells) -> Lanes | None:
        """Which elements nobody wrote, or None."""
        if self._written is None:
            return None
        written = self._written.take(cells)
        return None if written.all() else _by_element(~written)

    def find_overwritten(self, cells: Cells, line: Timeline, *, atomic: bool) -> Lanes | None:
        """Which elements an unordered program has written in this launch, or None.

        Seen from an atomic access, only its plain writes count.
        """
        if self._writer is None or self._last_write < line.base:
            return None
        stamps = self._writer.take(cells)
        return _by_element(line.find_unordered(stamps if atomic else np.abs(stamps)))

    def find_observed(self, cells: Cells, line: Timeline) -> Lanes | None:
        """Which elements an unordered program has read, not atomically, in this launch; or None."""
        if self._reader is None or self._last_read < line.base:
            return None
        return _by_element(line.find_unordered(self._reader.take(cells)))

    def mark_read(self, cells: Cells, line: Timeline) -> None:
        """Note that the present program reads."""
        if self._reader is None:
            self._reader = np.zeros(self._count(), dtype=np.int32)
        earlier = self._reader.take(cells)
        if int(earlier.max()) < line.base:
            self._reader[cells] = line.now
        elif int(earlier.min()) < line.base:
            self._reader[cells[earlier < line.base]] = line.now
        self._last_read = line.now

    def mark_written(self, cells: Cells, line: Timeline, *, atomic: bool) -> None:
        """Note that the present program writes."""
        if self._writer is None:
            self._writer = np.zeros(self._count(), dtype=np.int32)
        self._writer[cells] = -line.now if atomic else line.now
        self._last_write = line.now
        if self._written is not None:
            self._written[cells] = True
        if self._undefined is not None:
            self._undefined[cells] = 0

    @property
    def doubted(self) -> bool:
        """Whether an undefined value was ever stored here."""
        return self._undefined is not None

    def undefined(self, cells: Cells) -> Cells | None:
        """For each element, the number of the undefined value stored there, 0 for a defined one; or None."""
        if self._undefined is None:
            return None
        numbers = self._undefined.take(cells)
        numbers = numbers.max(axis=-1) if numbers.ndim == 2 else numbers
        return numbers if numbers.any() else None

    def storers(self, cells: Cells) -> Stamps:
        """Of elements that hold an undefined value, which store put it there."""
        assert self._storer is not None
        storers = self._storer.take(cells)
        return storers.max(axis=-1) if storers.ndim == 2 else storers

    def set_undefined(self, cells: Cells, numbers: Cells, storer: int) -> None:
        """Note what a store numbered `storer` left in just written elements; 0 is a defined value."""
        if self._undefined is None or self._storer is None:
            self._undefined = np.zeros(self._count(), dtype=np.int64)
            self._storer = np.zeros(self._count(), dtype=np.int32)
        self._undefined[cells] = numbers[:, None] if cells.ndim == 2 else numbers
        self._storer[cells] = storer

    def writers(self, cells: Cells) -> Stamps:
        """The stamps of the last writes, 0 where there was none; same shape as `cells`."""
        if self._writer is None:
            return np.zeros(cells.shape, dtype=np.int32)
        return np.abs(self._writer.take(cells))

    def readers(self, cells: Cells) -> Stamps:
        """The stamps of the first reads, 0 where there was none; same shape as `cells`."""
        if self._reader is None:
            return np.zeros(cells.shape, dtype=np.int32)
        return self._reader.take(cells)

    def set_written(self, cells: Cells | slice, written: bool) -> None:
        """Say of these cells that nobody has written them, or that somebody outside a kernel has."""
        if self._undefined is not None:
            self._undefined[cells] = 0
        if self._written is None:
            if written:
                return
            self._written = np.ones(self._count(), dtype=np.bool_)
        self._written[cells] = written

    def covers(self, storage: torch.UntypedStorage) -> bool:
        """Whether this is `storage` still, at its present size."""
        return storage.data_ptr() == self.first and storage.nbytes() == self._size

    def _count(self) -> int:
        return -(-self._size // self.grain)

    def _refine(self, size: int) -> None:
        """Narrower cells, each knowing what the wider one knew."""
        times = self.grain // size
        self.grain = size
        count = self._count()
        if self._written is not None:
            self._written = np.repeat(self._written, times)[:count]
        if self._writer is not None:
            self._writer = np.repeat(self._writer, times)[:count]
        if self._reader is not None:
            self._reader = np.repeat(self._reader, times)[:count]
        if self._undefined is not None and self._storer is not None:
            self._undefined = np.repeat(self._undefined, times)[:count]
            self._storer = np.repeat(self._storer, times)[:count]


def _by_element(lanes: Lanes | None) -> Lanes | None:
    return np.any(lanes, axis=-1) if lanes is not None and lanes.ndim == 2 else lanes
