"""How far outputs were from the oracle, in numbers that reports draw; `compare` notes what it judges."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitproof.harness.bounds import is_float
from bitproof.harness.bounds.elements import spacing
from bitproof.oracles import formats

Array = NDArray[Any]

# Upper ends of the ranges that distances are counted in, in ulps; an infinity or a NaN is beyond them.
EDGES = (0.0, 0.25, 0.5, 1.0, *(2.0**power for power in range(1, 11)), math.inf)
# Elements of one output that are counted, evenly spaced: enough for the shape of a distribution.
_COUNTED = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Measured:
    """For each output its largest distance over its bound, and how many elements lie how far on which side.

    `ulps` has a count by range: "-0.5" for more than 0.25 and up to 0.5 ulp of smaller magnitude than the
    oracle's number, "+2" for more than 1 and up to 2 of larger magnitude, "0" for the number itself.
    """

    distances: dict[str, float] = field(default_factory=dict)
    ulps: dict[str, collections.Counter[str]] = field(default_factory=dict)


_open: list[Measured] = []


@contextmanager
def measuring() -> Iterator[Measured]:
    """What is compared within."""
    found = Measured()
    _open.append(found)
    try:
        yield found
    finally:
        _open.remove(found)


def note(output: str, distance: float, got: Array, want: Array) -> None:
    """Add one comparison of an output; `distance` is in units of its bound."""
    for found in _open:
        found.distances[output] = max(distance, found.distances.get(output, 0.0))
        if got.shape == want.shape:
            counts = found.ulps.setdefault(output, collections.Counter())
            counts.update(count_ulps(got, want, exact=distance == 0.0 and got.dtype == want.dtype))


def count_ulps(got: Array, want: Array, *, exact: bool = False) -> dict[str, int]:
    """How many elements are how far from the oracle's, by the keys of `Measured.ulps`.

    `exact` says that all are known to be equal. An output of integers is measured in its own units.
    """
    if exact or not got.size:
        return {"0": int(got.size)} if got.size else {}
    step = -(-got.size // _COUNTED)
    one, other = got.reshape(-1)[::step], want.reshape(-1)[::step]
    with np.errstate(all="ignore"):  # NaN and infinity are told by what comes of them
        wide, exactly = one.astype(np.float64), other.astype(np.float64)
        same = (wide == exactly) | (np.isnan(wide) & np.isnan(exactly))
        apart = np.abs(wide - exactly) / _steps(exactly, one.dtype)
        apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
        smaller = np.abs(wide) < np.abs(exactly)
    ranges = np.searchsorted(EDGES, apart)
    found: collections.Counter[str] = collections.Counter()
    for side, chosen in (("-", smaller & (apart > 0)), ("+", ~smaller & (apart > 0))):
        for place, count in zip(*np.unique(ranges[chosen], return_counts=True), strict=True):
            found[f"{side}{EDGES[place]:g}"] = int(count)
    unmoved = int((apart == 0).sum())
    return {"0": unmoved, **found} if unmoved else dict(found)


def _steps(values: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    if not is_float(dtype):
        return np.ones_like(values)
    if dtype == np.float64:
        return np.abs(np.spacing(values))
    return spacing(values, formats.of_dtype(dtype))
