"""What each rank holds of packed sequences."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitproof.kernels.delta.ranks.partition import partition
from bitproof.oracles.delta import ranks as oracle

SEVEN = (1000, 1500, 2000, 2500, 1240, 1000, 1000)
# Lengths, and each rank's offsets, ranks before and ranks after, of flash-linear-attention's tests.
PUBLISHED = [
    ((3000, 4000, 3240), [(0, 3000, 5120), (0, 1880, 5120)], (0, 1), (1, 0)),
    ((5120, 5120), [(0, 5120), (0, 5120)], (0, 0), (0, 0)),
    (
        (7000, 3240),
        [(0, 2560), (0, 2560), (0, 1880, 2560), (0, 2560)],
        (0, 1, 2, 1),
        (2, 1, 1, 0),
    ),
    ((10240,), [(0, 2560)] * 4, (0, 1, 2, 3), (3, 2, 1, 0)),
    (SEVEN, [(0, 1000, 2500, 4500, 5120), (0, 1880, 3120, 4120, 5120)], (0, 1), (1, 0)),
]


def _offsets(lengths: tuple[int, ...]) -> list[int]:
    return [0, *itertools.accumulate(lengths)]


@pytest.mark.parametrize(("lengths", "offsets", "pre", "post"), PUBLISHED)
def test_shares_are_those_of_published_layouts(
    lengths: tuple[int, ...],
    offsets: list[tuple[int, ...]],
    pre: tuple[int, ...],
    post: tuple[int, ...],
) -> None:
    """Offsets, and how many ranks before and after hold more of the first and the last sequence."""
    shares = partition(_offsets(lengths), sum(lengths), len(offsets))
    assert [share.offsets for share in shares] == offsets
    assert tuple(share.pre for share in shares) == pre
    assert tuple(share.post for share in shares) == post


@given(
    st.lists(st.one_of(st.integers(0, 9), st.just(0)), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(1, 9),
)
def test_every_token_and_sequence_is_held_once(lengths: list[int], slack: int, ranks: int) -> None:
    """Parts are the oracle's; each sequence begins on one rank and ends on one; chains have no gaps."""
    rows = sum(lengths) + slack
    shares = partition(_offsets(tuple(lengths)), rows, ranks)
    assert [share.end - share.first for share in shares] == [
        min(rows, (rank + 1) * -(-rows // ranks)) - min(rows, rank * -(-rows // ranks))
        for rank in range(ranks)
    ]
    parts = [
        (sequence, stop - start)
        for share in shares
        for sequence, (start, stop) in zip(
            share.sequences, itertools.pairwise(share.offsets), strict=False
        )
    ]
    cut = oracle.cut(lengths, rows, ranks)
    assert parts == list(zip(cut.sequence, cut.lengths, strict=True))
    for place in ("begun", "ended"):
        held = [n for share in shares for n in share.sequences[getattr(share, place)]]
        assert held == list(range(len(lengths)))
    for share in shares:
        for other in shares[share.rank - share.pre : share.rank]:
            assert other.sequences[-1] == share.sequences[0]
        for other in shares[share.rank + 1 : share.rank + share.post + 1]:
            assert other.sequences[0] == share.sequences[-1]


@pytest.mark.parametrize(
    ("offsets", "ranks", "message"),
    [
        ([0, 3], 0, "at least 1 rank, not 0"),
        ([1, 3], 2, r"begin at 0, never fall and end at 3 at most, it is \[1, 3\]"),
        ([0, 2, 1], 2, "never fall"),
        ([0, 4], 2, "end at 3 at most"),
        ([0], 2, "begin at 0"),
    ],
)
def test_what_cannot_be_cut_is_refused(offsets: list[int], ranks: int, message: str) -> None:
    """With what is wrong."""
    with pytest.raises(ValueError, match=message):
        partition(offsets, 3, ranks)
