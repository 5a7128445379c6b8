"""Which rows, sequences and parts of sequences each rank holds: contiguous shares of the packed rows.

With T rows and W ranks, rank r holds rows r * ceil(T / W) up to the next rank's; the last ranks may hold
fewer, or none. A sequence that has rows of several ranks is cut, and every one of them has a part of it. A
sequence without tokens is whole on one rank: the one whose rows begin at its offset or contain it.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Share:
    """What rank `rank` of `ranks` holds: rows `first` up to `end`, and parts of `sequences`, in their order.

    offsets   where each part begins among the rank's rows, and where the last one ends: its `cu_seqlens`;
              (0, 0) on a rank that has no part of any sequence
    pre       how many ranks before hold tokens of the first of these sequences; 0 where it begins here
    post      how many ranks after hold tokens of the last of them; 0 where it ends here
    """

    rank: int
    ranks: int
    first: int
    end: int
    sequences: tuple[int, ...]
    offsets: tuple[int, ...]
    pre: int
    post: int

    @property
    def begun(self) -> slice:
        """Which of the parts are the first of their sequence."""
        return slice(1 if self.pre else 0, len(self.sequences))

    @property
    def ended(self) -> slice:
        """Which of the parts are the last of their sequence."""
        return slice(0, len(self.sequences) - (1 if self.post else 0))


def partition(offsets: Sequence[int], rows: int, ranks: int) -> tuple[Share, ...]:
    """What each of `ranks` ranks holds of sequences that begin at `offsets` [N + 1], among `rows` rows.

    ValueError below one rank, and for offsets that do not begin at 0, fall, or end past the last row.
    """
    if ranks < 1:
        raise ValueError(f"there must be at least 1 rank, not {ranks}")
    falls = any(stop < start for start, stop in itertools.pairwise(offsets))
    if len(offsets) < 2 or offsets[0] != 0 or falls or offsets[-1] > rows:
        raise ValueError(
            f"cu_seqlens must begin at 0, never fall and end at {rows} at most, it is {list(offsets)}"
        )
    size = -(-rows // ranks)
    borders = [min(rank * size, rows) for rank in range(ranks + 1)]

    def holder(row: int) -> int:
        """The rank that holds `row`; of a row past the last, the last rank."""
        return min(bisect.bisect_right(borders, row), ranks) - 1

    shares = []
    for rank, (first, end) in enumerate(itertools.pairwise(borders)):
        held = [
            n
            for n, (start, stop) in enumerate(itertools.pairwise(offsets))
            if (start < end and stop > first if stop > start else holder(start) == rank)
        ]
        inside = [min(max(offsets[n], first), end) - first for n in held]
        inside += [min(offsets[held[-1] + 1], end) - first] if held else [0, 0]
        pre = rank - holder(offsets[held[0]]) if held else 0
        post = holder(max(offsets[held[-1] + 1] - 1, offsets[held[-1]])) - rank if held else 0
        shares.append(
            Share(
                rank=rank,
                ranks=ranks,
                first=first,
                end=end,
                sequences=tuple(held),
                offsets=tuple(inside),
                pre=pre,
                post=post,
            )
        )
    return tuple(shares)
