"""Intervals of functions hold every evaluation within the ulps that cards are off by, and little else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bitproof.oracles import estimates
from bitproof.oracles.estimates import Estimate, around, exactly

RANDOM = np.random.Generator(np.random.PCG64(7))
X = RANDOM.standard_normal((64, 33)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(2.0**-10)

Exact = Callable[[np.ndarray], np.ndarray]
ONE: list[tuple[Callable[[Estimate], Estimate], Exact, float]] = [
    (estimates.exp, np.exp, 2.5),
    (estimates.log, np.log, 1.5),
    (estimates.sqrt, np.sqrt, 1.5),
    (estimates.rsqrt, lambda x: 1 / np.sqrt(x), 2.5),
]


def _inside(found: Estimate, got: np.ndarray) -> bool:
    return bool(((found.low <= got) & (got <= found.high)).all())


@pytest.mark.parametrize(("function", "exact", "ulps"), ONE)
@pytest.mark.parametrize("way", [-1, 0, 1])
def test_an_evaluation_off_by_its_ulps_is_inside(
    function: Callable[[Estimate], Estimate], exact: Exact, ulps: float, way: int
) -> None:
    """To both sides; one off by four times as many is outside."""
    right = exact(POSITIVE.astype(np.float64))
    unit = np.spacing(np.abs(right).astype(np.float32)).astype(np.float64)
    found = function(exactly(POSITIVE))
    assert _inside(found, right + way * 0.5 * ulps * unit)
    assert (
        way == 0
        or not (
            (found.low <= right + way * 8 * ulps * unit)
            & (right + way * 8 * ulps * unit <= found.high)
        ).any()
    )


@pytest.mark.parametrize(("function", "exact", "ulps"), ONE)
def test_an_uncertain_operand_widens_the_answer(
    function: Callable[[Estimate], Estimate], exact: Exact, ulps: float
) -> None:
    """Both ends of the operand give answers inside."""
    operand = around(POSITIVE, 2.0**-11)
    for end in (operand.low, operand.high):
        assert _inside(function(operand), exact(end))


def test_quotients_and_differences_hold_all_of_their_operands() -> None:
    """And a divisor that may be 0 leaves no bound."""
    x, y = around(X, 2.0**-12), around(POSITIVE, 2.0**-12)
    for a in (x.low, x.high):
        for b in (y.low, y.high):
            assert _inside(estimates.quotient(x, y), a / b)
            assert _inside(estimates.difference(x, y), a - b)
    lost = estimates.quotient(exactly(np.ones(1)), around(np.zeros(1), 1.0))
    assert (lost.low, lost.high) == (-np.inf, np.inf)


def test_what_leaves_the_range_of_fp32_may_be_infinite() -> None:
    """Of an exponential, and of a reciprocal root of what is flushed to zero."""
    assert estimates.exp(exactly(np.array([100.0]))).high == np.inf
    assert estimates.exp(exactly(np.array([100.0]))).low <= np.finfo(np.float32).max
    assert estimates.rsqrt(exactly(np.array([1e-40]))).high == np.inf
    assert estimates.sqrt(exactly(np.array([1e-40]))).low <= 0


def test_a_softmax_in_fp32_is_inside_in_any_order() -> None:
    """Its width is a few units of each element."""
    found = estimates.softmax(exactly(X), 1)
    powers = np.exp(X - X.max(1, keepdims=True))
    for order in (slice(None), slice(None, None, -1)):
        sums = np.add.accumulate(powers[:, order], 1)[:, -1:]
        assert _inside(found, powers / sums)
    assert (found.error <= found.value * 2.0**-17).all()


def test_a_mean_and_a_largest_are_inside() -> None:
    """The mean in either order; of the largest nothing is rounded."""
    found = estimates.mean(exactly(X), 1)
    for order in (slice(None), slice(None, None, -1)):
        sums = np.add.accumulate(X[:, order], 1)[:, -1]
        assert _inside(found, sums / np.float32(X.shape[1]))
    top = estimates.largest(exactly(X), 1)
    assert (top.low == X.max(1, keepdims=True)).all()
    assert (top.high == top.low).all()
