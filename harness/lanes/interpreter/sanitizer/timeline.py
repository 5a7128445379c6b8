"""Who ran before whom: program stamps, and the order that acquire and release atomics establish.

Programs run one after another, so a stamp that only grows says which program did something and whether
that was another program than the present one. Two programs of a launch are nevertheless unordered, as on
a GPU, unless the later one acquired what the earlier one released at the same address: a lock, or the
counter by which the last program of a group knows that it is the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Stamps = NDArray[np.int32]


@dataclass(frozen=True)
class _Release:
    stamp: int
    acquired: dict[int, int]


@dataclass
class Timeline:
    """Stamps of the present launch: `base` is its first, `mine` the present program's, `now` the latest.

    A stamp stands for the stretch of one program between two releases. `owners[stamp]` is the number of
    the program, `firsts[stamp]` the program's first stamp; both go on over all launches.
    """

    base: int = 1
    mine: int = 0
    now: int = 0
    owners: list[int] = field(default_factory=lambda: [-1])
    firsts: list[int] = field(default_factory=lambda: [0])
    _releases: dict[int, list[_Release]] = field(default_factory=dict)
    _acquired: dict[int, int] = field(default_factory=dict)
    _visible: NDArray[np.bool_] | None = None

    def begin_launch(self) -> None:
        """Everything before is ordered before everything after."""
        self.base = self.mine = self.now + 1
        self._releases = {}

    def begin_program(self, number: int) -> None:
        """From now on, stamps are those of program `number`."""
        self.mine = self.now + 1
        self._acquired = {}
        self._visible = None
        self._stamp(number)

    def release(self, address: int) -> None:
        """The present program publishes at `address` what it did and knows so far."""
        releases = self._releases.setdefault(address, [])
        releases.append(_Release(self.now, dict(self._acquired)))
        self._stamp(self.owners[self.now])

    def acquire(self, address: int) -> None:
        """The present program learns all that was released at `address`."""
        self._acquired[address] = len(self._releases.get(address, ()))
        self._visible = None

    def find_unordered(self, stamps: Stamps) -> NDArray[np.bool_] | None:
        """Which `stamps` another program of this launch set, unordered with the present one; or None."""
        if int(stamps.max()) < self.base:
            return None
        foreign: NDArray[np.bool_] = (stamps >= self.base) & (stamps < self.mine)
        if self._acquired and foreign.any():
            visible = self._find_seen()
            foreign &= ~visible[np.clip(stamps - self.base, 0, visible.size - 1)]
        return foreign if foreign.any() else None

    def _stamp(self, number: int) -> None:
        self.now += 1
        self.owners.append(number)
        self.firsts.append(self.mine)

    def _find_seen(self) -> NDArray[np.bool_]:
        """For each stamp since `base`, whether the present program has acquired it, however indirectly."""
        if self._visible is None:
            self._visible = np.zeros(self.now - self.base + 1, dtype=np.bool_)
            done: dict[int, int] = {}
            pending = list(self._acquired.items())
            while pending:
                address, count = pending.pop()
                start = done.get(address, 0)
                for release in self._releases.get(address, [])[start:count]:
                    first = self.firsts[release.stamp]
                    self._visible[first - self.base : release.stamp - self.base + 1] = True
                    pending.extend(release.acquired.items())
                done[address] = max(start, count)
        return self._visible
