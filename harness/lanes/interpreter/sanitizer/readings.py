"""Where values come from that are not defined: a number for each such lane, which travels with the value.

A number is zero for a defined lane. Otherwise it names a load and the element that it read, so that
whatever the value reaches, however late, can be reported with the element that nobody wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitproof.harness.lanes.interpreter.sanitizer.blocks import Addresses
from bitproof.harness.lanes.interpreter.sanitizer.regions import Region
from bitproof.harness.lanes.interpreter.sanitizer.violations import place

Numbers = NDArray[np.int64]

UNWRITTEN = "reads what nobody wrote"
LEFT_OFF = "leaves lanes undefined, since its mask is off there and it has no other"

# The low bits of a number are the element's place in its tensor, the others name the load.
_PLACES = 44


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """A load of undefined lanes: its line, the tensor it reads (None if unknown), the first such address."""

    what: str
    file: str
    line: int
    region: Region | None
    first: int


class Readings:
    """All loads of one run that gave undefined lanes; false while there are none."""

    def __init__(self) -> None:
        """None yet."""
        self._all: list[Reading] = []
        self._known: dict[tuple[str, str, int, str, int], int] = {}

    def __bool__(self) -> bool:
        """Whether any lane of this run can be undefined."""
        return bool(self._all)

    def unwritten(self, region: Region, addresses: Addresses) -> Numbers:
        """A number for each of these elements of `region`, which nobody wrote and the present line reads."""
        base = self._number(UNWRITTEN, region, int(addresses[0]))
        return base + (addresses - region.first) // region.itemsize

    def left_off(self, region: Region | None, first: int) -> int:
        """The number of lanes that the present line's mask leaves off; `first` is an address of theirs."""
        return self._number(LEFT_OFF, region, first)

    def find(self, number: int) -> tuple[Reading, int]:
        """(the load that a number stands for, the address of the element)."""
        reading = self._all[(number >> _PLACES) - 1]
        if reading.what != UNWRITTEN or reading.region is None:
            return reading, reading.first
        offset = number & ((1 << _PLACES) - 1)
        return reading, reading.region.first + offset * reading.region.itemsize

    def _number(self, what: str, region: Region | None, first: int) -> int:
        file, line = place()
        name, start = (region.name, region.first) if region is not None else ("", 0)
        key = (what, file, line, name, start)
        if key not in self._known:
            self._all.append(Reading(what=what, file=file, line=line, region=region, first=first))
            self._known[key] = len(self._all) << _PLACES
        return self._known[key]
