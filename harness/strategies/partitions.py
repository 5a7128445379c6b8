"""Packed lengths together with the ranks that share their rows: cuts inside, on and beside ranks' borders.

With T rows and W ranks, rank r holds rows r * ceil(T / W) up to the next rank's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from bitproof.harness.strategies import ragged


@dataclass(frozen=True, kw_only=True)
class Partition:
    """How many ranks, the lengths of the sequences that they share, and how many slack rows follow these."""

    ranks: int
    lengths: tuple[int, ...]
    slack: int

    @property
    def rows(self) -> int:
        """T."""
        return sum(self.lengths) + self.slack

    @property
    def borders(self) -> list[int]:
        """The first row of every rank but the first."""
        share = -(-self.rows // self.ranks)
        return [min(rank * share, self.rows) for rank in range(1, self.ranks)]

    def features(self, chunk: int = 64) -> list[str]:
        """What it covers, in words that a run's summary counts."""
        starts = ragged.offsets(self.lengths)
        pieces = list(self._pieces())
        ranks_of = [
            len({rank for rank, n, _ in pieces if n == sequence})
            for sequence in range(len(self.lengths))
        ]
        beginning = {
            rank
            for rank, n, _ in pieces
            if (rank, n) == next((r, m) for r, m, _ in pieces if m == n)
        }
        inner = {row for row in self.borders if 0 < row < starts[-1]}
        cuts = set(starts[1:-1])
        held = [sum(rank == other for other, _, _ in pieces) for rank in range(self.ranks)]
        found = {
            f"{self.ranks} ranks": self.ranks > 1,
            "one rank": self.ranks == 1,
            "a sequence over two ranks": 2 in ranks_of,
            "a sequence over three ranks or more": max(ranks_of, default=0) > 2,
            "a rank on which no sequence begins": any(
                count and rank not in beginning for rank, count in enumerate(held)
            ),
            "a rank without tokens": 0 in held,
            "several sequences on a rank": max(held, default=0) > 1,
            "a border between sequences": bool(inner & cuts),
            "no sequence cut": self.ranks > 1 and bool(inner) and inner <= cuts,
            "a cut beside a border": any({row - 1, row + 1} & cuts for row in inner),
            "a part of less than a chunk": any(size % chunk > 0 for _, _, size in pieces),
        }
        return [name for name, holds in found.items() if holds]

    def _pieces(self) -> Iterator[tuple[int, int, int]]:
        """(rank, sequence, tokens) of every part that has tokens."""
        edges = [0, *self.borders, self.rows]
        for n, (start, stop) in enumerate(itertools.pairwise(ragged.offsets(self.lengths))):
            for rank, (first, end) in enumerate(itertools.pairwise(edges)):
                size = min(stop, end) - max(start, first)
                if size > 0:
                    yield rank, n, size


_KINDS = ("one", "near", "aligned", "any", "near")


@cache
@st.composite
def partitions(draw: Any, *, ranks: Sequence[int], most: int, sequences: int = 4) -> Partition:
    """A number of ranks out of `ranks`, one seldom, few more often than many, and at most about `most` rows.

    Covers: one sequence over all ranks; boundaries on borders, one token beside them and anywhere; no
    sequence cut by any border; parts of 1 to 63 tokens and of more; empty sequences; ranks without tokens;
    slack rows. Shrinks toward the fewest ranks and one sequence of few tokens.
    """
    few = sorted(ranks)
    weighed = [*few, *(n for n in few if n > 1 for _ in range(8 // n))]
    count: int = draw(st.sampled_from(weighed))
    widest = max(1, most // count)
    share: int = draw(
        st.one_of(
            st.integers(1, min(widest, 24)),
            st.integers(1, widest),
            st.sampled_from([n for n in (1, 63, 64, 65) if n <= widest]),
        )
    )
    rows = count * share - draw(st.integers(0, min(count, share) - 1))
    used = rows - min(draw(st.sampled_from((0, 0, 0, 1, 3))), rows - 1)
    borders = list(range(share, used, share))
    kind = draw(st.sampled_from(_KINDS))
    cuts: list[int] = []
    if kind == "aligned":
        cuts += borders
    if kind == "near" and borders:
        beside = st.tuples(st.sampled_from(borders), st.sampled_from((0, 1, -1)))
        places = draw(st.lists(beside, min_size=1, max_size=sequences - 1))
        cuts += [min(max(border + by, 0), used) for border, by in places]
    if kind != "one":
        anywhere = st.integers(0, used)
        cuts += draw(st.lists(anywhere, max_size=max(0, sequences - 1 - len(cuts))))
    ends = [0, *sorted(cuts), used]
    lengths = tuple(stop - start for start, stop in itertools.pairwise(ends))
    return Partition(ranks=count, lengths=lengths, slack=rows - used)
