"""Lanes of a block as flat arrays: which are on, where they are, what an unread one holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Addresses = NDArray[np.int64]
Lanes = NDArray[np.bool_]
Pointers = NDArray[np.uint64]


def active(pointers: Pointers, mask: Lanes | None) -> tuple[Lanes | None, Addresses]:
    """(flat mask or None where all lanes are on, addresses of the lanes that are on)."""
    addresses = pointers.reshape(-1).view(np.int64)
    if mask is None or mask.all():
        return None, addresses
    lanes = np.broadcast_to(mask, pointers.shape).reshape(-1)
    return lanes, addresses[lanes]


def positions(lanes: Lanes | None, chosen: Lanes | None) -> Any:
    """What indexes a flat block at the `chosen` ones (None: all) of the lanes that are on."""
    if lanes is None:
        return slice(None) if chosen is None else chosen
    return lanes if chosen is None else np.flatnonzero(lanes)[chosen]


def background(other: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A fresh block of `other`, or of zeros where every lane is on and each is going to be set."""
    if other is None:
        return np.zeros(shape, dtype)
    return np.array(np.broadcast_to(other, shape), dtype)


def poison(block: Array, where: Any) -> None:
    """Set every bit of the lanes that the flat index `where` names: a NaN, or minus one."""
    flat = block.reshape(-1)
    if block.dtype == np.bool_:
        flat[where] = True
    else:
        flat.view(np.uint8).reshape(flat.size, -1)[where] = 0xFF


def differ(one: Array, other: Array) -> Lanes:
    """Which elements of two flat arrays of one dtype differ in their bits."""
    bits = f"u{one.dtype.itemsize}"
    different: Lanes = one.view(bits) != other.view(bits)
    return different
