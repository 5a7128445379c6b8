"""Lengths of packed sequences reach the edges that break chunked kernels, and shrink to a readable one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bitproof.harness.strategies import packed
from tests.harness.strategies.drawing import STEADY, smallest

LENGTHS = packed.lengths(sequences=5, most=320)
KINDS = (
    *("no tokens", "an empty sequence first", "an empty sequence last", "one token"),
    *("an empty sequence between", "a whole chunk", "a chunk and one", "a chunk less one"),
    *("a chunk and part of a sub-chunk", "a whole sub-chunk", "a sub-chunk and one"),
    *("a sub-chunk less one", "two or more chunks", "several sequences", "of unequal lengths"),
    *("a cut inside a chunk", "as many sequences as the longest is long"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_lengths_is_drawn(kind: str) -> None:
    """And its smallest example still is of that kind."""
    found = smallest(LENGTHS, lambda drawn: kind in packed.features(drawn))
    assert kind in packed.features(found)


def test_the_simplest_lengths_are_one_sequence_of_one_token() -> None:
    """What every failure that needs no more shrinks to."""
    assert smallest(LENGTHS) == (1,)


@pytest.mark.parametrize(
    "holds",
    [
        lambda drawn: drawn[0] % 64 and len(drawn) == 2 and sum(drawn) > 64 > max(drawn),
        lambda drawn: "an empty sequence between" in packed.features(drawn) and max(drawn) > 64,
        lambda drawn: len(drawn) > 1 and drawn[0] == 0 and any(drawn),
        lambda drawn: len(drawn) > 1 and drawn[-1] == 0 and any(drawn),
        lambda drawn: len(drawn) > 1 and not any(drawn),
        lambda drawn: drawn == (63,),
        lambda drawn: drawn == (65,),
        lambda drawn: drawn == (129,),
        lambda drawn: 0 < drawn[0] % 64 < 16 and drawn[0] > 128,
    ],
    ids=["40 50", "128 0 128", "0 5", "5 0", "0 0", "63", "65", "129", "a long tail"],
)
def test_the_lengths_of_the_reports_are_reached(holds) -> None:
    """The kinds of lengths that broke kernels, none of which the strategy is told."""
    assert holds(smallest(LENGTHS, holds))


@given(st.data(), st.integers(1, 6), st.integers(1, 200))
def test_lengths_stay_within_what_was_asked(data: st.DataObject, sequences: int, most: int) -> None:
    """So that a run's budget of tokens holds."""
    drawn = data.draw(packed.lengths(sequences=sequences, most=most))
    assert 1 <= len(drawn) <= sequences
    assert min(drawn) >= 0
    assert sum(drawn) <= most


def test_a_sequence_of_more_than_a_chunk_is_met_often() -> None:
    """Few examples must do where a case takes seconds: one in four passes a state on."""
    drawn: list[tuple[int, ...]] = []

    @settings(STEADY, max_examples=200)
    @given(packed.lengths(sequences=5, most=80))
    def draw(lengths: tuple[int, ...]) -> None:
        drawn.append(lengths)

    draw()
    assert sum(max(lengths) > 64 for lengths in drawn) > len(drawn) // 4


def test_slack_is_none_a_few_rows_or_a_chunk() -> None:
    """A buffer of 72 rows for 70 tokens among them."""
    for rows in (0, 2, 65):
        assert smallest(packed.slack(), lambda slack, rows=rows: slack == rows) == rows


def test_positions_count_from_each_sequence_s_first_row() -> None:
    """Empty sequences have none, slack rows are at 0."""
    places = packed.positions((2, 0, 3), 2, torch.device("cpu"))
    assert places.tolist() == [0, 1, 0, 1, 2, 0, 0]
    assert packed.positions((0,), 0, torch.device("cpu")).tolist() == []


def test_the_lengths_of_the_reports_are_described() -> None:
    """[40, 50], [128, 0, 128] and 500 tokens, in chunks of 64."""
    assert set(packed.features((40, 50))) == {
        *("several sequences", "of unequal lengths", "a cut inside a chunk"),
    }
    assert set(packed.features((128, 0, 128))) >= {
        *("an empty sequence between", "a whole chunk", "two or more chunks"),
    }
    assert "a cut inside a chunk" not in packed.features((128, 0, 128))
    assert "two or more chunks" in packed.features((500,))
