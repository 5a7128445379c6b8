"""Splits of tokens reach the edges that break ragged kernels, and shrink to one a person can read."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitproof.harness.strategies import ragged
from tests.harness.strategies.drawing import smallest

SIZES = ragged.sizes(groups=5, most=40, block=16)
KINDS = (
    *("no tokens", "empty first", "empty last", "empty between", "one token", "a whole block"),
    *("a block and one", "a block less one", "all to one of several", "of unequal sizes"),
    *("experts not a power of two", "two or more tiles of one"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_split_is_drawn(kind: str) -> None:
    """And its smallest example still is of that kind."""
    assert kind in ragged.features(smallest(SIZES, lambda s: kind in ragged.features(s, 16)), 16)


def test_the_simplest_split_is_one_token_of_one_expert() -> None:
    """What every failure that needs no more shrinks to."""
    assert smallest(SIZES) == (1,)


def test_the_same_number_for_all_and_another_order_are_drawn() -> None:
    """Equal sizes hide a wrong expert; so both they and their opposite are met."""
    alike = smallest(SIZES, lambda s: len(s) > 2 and len(set(s)) == 1 and s[0] > 1)
    assert len(set(alike)) == 1
    assert smallest(SIZES, lambda s: len(s) == 2 and s[0] > s[1] > 0)[0] > 1


@given(st.lists(st.integers(0, 9), min_size=1))
def test_offsets_are_the_running_sum(tokens: list[int]) -> None:
    """Of one more than there are experts."""
    starts = ragged.offsets(tokens)
    assert starts[0] == 0
    assert [after - before for before, after in itertools.pairwise(starts)] == tokens


@given(SIZES)
def test_sizes_stay_within_what_was_asked(sizes: tuple[int, ...]) -> None:
    """So that a run's budget holds."""
    assert 1 <= len(sizes) <= 5
    assert all(0 <= size <= 40 for size in sizes)


def test_the_splits_of_the_reports_are_described() -> None:
    """[162, 0, 2577, 446, 0, 83] and [5, 0, 3], with tiles of 128 rows."""
    assert set(ragged.features((162, 0, 2577, 446, 0, 83), 128)) >= {
        "empty between",
        "of unequal sizes",
        "two or more tiles of one",
    }
    assert "empty between" in ragged.features((5, 0, 3), 128)
