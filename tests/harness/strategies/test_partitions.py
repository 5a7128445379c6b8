"""Packed lengths and the ranks that share them."""

from __future__ import annotations

import collections

from hypothesis import HealthCheck, Phase, given, settings

from bitproof.harness.strategies import partitions
from bitproof.harness.strategies.partitions import Partition

RANKS = (1, 2, 4, 8)
COVERED = {
    "one rank",
    *(f"{count} ranks" for count in RANKS[1:]),
    "a sequence over two ranks",
    "a sequence over three ranks or more",
    "a rank on which no sequence begins",
    "a rank without tokens",
    "several sequences on a rank",
    "a border between sequences",
    "no sequence cut",
    "a cut beside a border",
    "a part of less than a chunk",
}


def test_every_way_to_cut_is_drawn() -> None:
    """Each in at least one of 50 cases; few ranks more often than many."""
    seen: collections.Counter[str] = collections.Counter()
    count = 200

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(partitions.partitions(ranks=RANKS, most=100))
    def draw(cut: Partition) -> None:
        assert 1 <= cut.rows <= 100
        assert min(cut.lengths) >= 0
        seen.update(set(cut.features()))

    draw()
    assert {name for name in COVERED if seen[name] < count // 50} == set()
    assert seen["2 ranks"] > seen["8 ranks"]


def test_what_is_asked_for_is_drawn() -> None:
    """No other numbers of ranks."""
    asked: set[int] = set()

    @settings(max_examples=50, derandomize=True, database=None)
    @given(partitions.partitions(ranks=(2, 4), most=40))
    def draw(cut: Partition) -> None:
        asked.add(cut.ranks)

    draw()
    assert asked == {2, 4}


def test_features_say_how_borders_cut() -> None:
    """Two ranks of 4 rows: one sequence over both, then one that begins on the border."""
    over = Partition(ranks=2, lengths=(8,), slack=0).features()
    assert "a sequence over two ranks" in over
    assert "a rank on which no sequence begins" in over
    apart = Partition(ranks=2, lengths=(4, 4), slack=0).features()
    assert {"no sequence cut", "a border between sequences"} <= set(apart)
    beside = Partition(ranks=2, lengths=(3, 5), slack=0).features()
    assert "a cut beside a border" in beside
    assert "no sequence cut" not in beside
