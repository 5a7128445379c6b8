"""The intervals of running error analysis hold fp32 arithmetic in any order, and not much more."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitproof.oracles.estimates import UNIT, around, exactly, gamma, product, round_estimate, total
from bitproof.oracles.formats import BF16, E4M3

FLOATS = st.floats(width=32, min_value=-(2.0**20), max_value=2.0**20)
LISTS = st.lists(FLOATS, min_size=2, max_size=30)


@given(LISTS, st.randoms(use_true_random=False))
def test_a_sum_in_any_order_lies_in_its_interval(numbers: list[float], order: object) -> None:
    """Shuffled and added one by one in fp32."""
    estimate = total(exactly(np.array(numbers)), 0)
    order.shuffle(numbers)  # type: ignore[attr-defined]
    found = np.float32(0)
    for number in numbers:
        found = np.float32(found + np.float32(number))
    assert estimate.low <= found <= estimate.high


@given(FLOATS, FLOATS, FLOATS)
def test_a_chain_of_products_lies_in_its_interval(x: float, y: float, z: float) -> None:
    """Each factor rounded in between, and a sum with it counted as one more operation."""
    one, two, three = (np.float32(v) for v in (x, y, z))
    with np.errstate(under="ignore"):
        found = np.float32(np.float32(one * two) * three)
    estimate = product(product(exactly(np.asarray(one)), exactly(np.asarray(two))), exactly(z))
    assert estimate.low <= found <= estimate.high


def test_a_dropped_term_leaves_the_interval() -> None:
    """The interval of a sum of a thousand ones is far narrower than one of them."""
    estimate = total(exactly(np.ones(1000)), 0, start=exactly(np.ones(())))
    assert estimate.value == 1001
    assert estimate.error == pytest.approx(1001 * gamma(1000))
    assert estimate.low > 1000.9


def test_storing_rounds_the_ends() -> None:
    """The interval of a stored value ends on values of the format, whichever they round to."""
    x = around(np.array([1.0, 500.0, np.nan]), np.array([2.0**-9, 1.0, 0.0]))
    small = round_estimate(x, E4M3)
    assert small.low.tolist()[:2] == [1.0, 448.0]
    assert small.high.tolist()[:2] == [1.0, 448.0]
    assert np.isnan(small.value[2])
    stored = round_estimate(around(np.array([1.0]), 2.0**-8), BF16)
    expected = np.array([1 - 2.0**-8, 1 + 2.0**-8]).astype(np.float32).astype(ml_dtypes.bfloat16)
    assert [stored.low[0], stored.high[0]] == expected.astype(np.float64).tolist()


def test_too_many_roundings_have_no_bound() -> None:
    """Half of everything lost is no answer any more."""
    assert gamma(2) == pytest.approx(2 * UNIT)
    with pytest.raises(ValueError, match="leave no bound; sum in more steps"):
        gamma(2.0**23)
