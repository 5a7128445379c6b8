"""Answers with their uncertainty: what a computation gives exactly, and the interval its fp32 run may end in.

Running error analysis (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.3): every
operation widens the interval of its operands by its own rounding, so that the bound of a long expression
follows from its steps and from the data, whatever order a sum is taken in.

Functions that cards approximate are within so many units in the last place as `docs/interpreter.md` lists:
those of PTX and of NVIDIA's device library, measured over fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bitproof.oracles.formats import Array, Floats, Format
from bitproof.oracles.rounding import Overflow, round_value

UNIT: Final = 2.0**-24
"""The unit roundoff of fp32."""

TINY: Final = 2.0**-126
"""What an fp32 operation near zero may lose, where a target flushes subnormal results."""


# Units in the last place that code for cards may be off by, of fp32: see `docs/interpreter.md`.
_ULP: Final = 2.0**-23
_QUOTIENT, _EXP, _LOG, _SQRT, _RSQRT = 2.0, 2.5, 1.5, 1.5, 2.5
_LARGEST: Final = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The exact answer `value`, and where a right kernel's may lie: low <= x <= high, elementwise.

    float64 arrays of one shape. NaN in `value` asks for NaN.
    """

    value: Floats
    low: Floats
    high: Floats

    @property
    def error(self) -> Floats:
        """The farther of the two ends from the exact answer."""
        with np.errstate(invalid="ignore"):
            return np.maximum(self.high - self.value, self.value - self.low)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the answer."""
        return self.value.shape


def around(value: Array, error: Array | float) -> Estimate:
    """`value` give or take `error`, both any shape that broadcasts to the value's."""
    exact = np.asarray(value, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return Estimate(value=exact, low=exact - error, high=exact + error)


def exactly(value: Array) -> Estimate:
    """`value` itself, as an input is."""
    return around(value, 0.0)


def gamma(terms: float, unit: float = UNIT) -> float:
    """terms * unit / (1 - terms * unit): the relative error of so many roundings in a row.

    ValueError where they are too many for any bound.
    """
    if terms * unit >= 0.5:
        raise ValueError(f"{terms} roundings of {unit} each leave no bound; sum in more steps")
    return terms * unit / (1.0 - terms * unit)


def product(x: Estimate, y: Estimate) -> Estimate:
    """x * y rounded once to fp32."""
    with np.errstate(invalid="ignore", over="ignore"):
        value = x.value * y.value
        carried = np.abs(x.value) * y.error + np.abs(y.value) * x.error + x.error * y.error
        lost = carried * (1 + UNIT) + UNIT * np.abs(value)
        # A product with an exact zero is exact.
        error = np.where(lost == 0, 0.0, lost + TINY)
        corners = np.stack([a * b for a in (x.low, x.high) for b in (y.low, y.high)])
        return _narrow(around(value, error), corners.min(0), corners.max(0), UNIT)


def total(terms: Estimate, axis: int, start: Estimate | None = None) -> Estimate:
    """The fp32 sum of `terms` along `axis`, plus `start`, in any order and grouping."""
    count = terms.value.shape[axis]
    with np.errstate(invalid="ignore", over="ignore"):
        value = terms.value.sum(axis)
        error = terms.error.sum(axis)
        magnitude = np.abs(terms.value).sum(axis) + error
        if start is not None:
            value, error = value + start.value, error + start.error
            magnitude = magnitude + np.abs(start.value) + start.error
        low, high = terms.low.sum(axis), terms.high.sum(axis)
        if start is not None:
            low, high = low + start.low, high + start.high
        lost = gamma(count) * magnitude
        return _narrow(around(value, error + lost), low - lost, high + lost, 0.0)


def _narrow(x: Estimate, low: Floats, high: Floats, relative: float) -> Estimate:
    """`x`, whose ends are as far from its value, within [low, high] moved apart by one rounding."""
    lowest, highest = (
        np.where(end == 0, 0.0, end + way * (relative * np.abs(end) + TINY))
        for end, way in ((low, -1), (high, 1))
    )
    return Estimate(
        value=x.value,
        low=np.fmax(x.low, np.where(np.isfinite(low), lowest, x.low)),
        high=np.fmin(x.high, np.where(np.isfinite(high), highest, x.high)),
    )


def round_estimate(x: Estimate, fmt: Format) -> Estimate:
    """`x` as it is stored in `fmt`, to nearest even: rounding is monotone, so the ends are rounded.

    Too large goes to infinity where the format has one, else to its largest value.
    """
    overflow: Overflow = "saturate" if fmt.infinity is None else "inf"
    low, high = (round_value(end, fmt, overflow=overflow) for end in (x.low, x.high))
    return Estimate(value=x.value, low=low, high=high)


def difference(x: Estimate, y: Estimate) -> Estimate:
    """x - y rounded once to fp32."""
    with np.errstate(invalid="ignore", over="ignore"):
        value = x.value - y.value
        return _spread(value, x.low - y.high, x.high - y.low, UNIT)


def quotient(x: Estimate, y: Estimate) -> Estimate:
    """x / y as cards divide fp32 numbers; anything at all where y may be 0."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        value = x.value / y.value
        ends = np.stack([a / b for a in (x.low, x.high) for b in (y.low, y.high)])
        around_zero = (y.low <= 0) & (y.high >= 0)
        low = np.where(around_zero, -np.inf, ends.min(0))
        high = np.where(around_zero, np.inf, ends.max(0))
    return _spread(value, low, high, _QUOTIENT * _ULP)


def exp(x: Estimate) -> Estimate:
    """e^x: a power of two whose exponent x * log2(e) is rounded first, both as cards do it."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (np.exp(end + way * UNIT * np.abs(end)) for end, way in _ways(x))
        return _spread(np.exp(x.value), low, high, _EXP * _ULP)


def log(x: Estimate) -> Estimate:
    """The natural logarithm; as low as can be where x may be 0 or less."""
    with np.errstate(invalid="ignore", divide="ignore"):
        low = np.where(x.low > 0, np.log(np.maximum(x.low, 0.0)), -np.inf)
        return _spread(np.log(x.value), low, np.log(x.high), _LOG * _ULP)


def sqrt(x: Estimate) -> Estimate:
    """The square root; subnormal arguments may be taken for 0."""
    with np.errstate(invalid="ignore"):
        low = np.where(x.low < TINY, 0.0, np.sqrt(np.maximum(x.low, 0.0)))
        return _spread(np.sqrt(x.value), low, np.sqrt(x.high), _SQRT * _ULP)


def rsqrt(x: Estimate) -> Estimate:
    """1 / sqrt(x); infinite where x may be subnormal, whose sign may be lost, or less."""
    with np.errstate(invalid="ignore", divide="ignore"):
        high = np.where(x.low < TINY, np.inf, 1.0 / np.sqrt(np.maximum(x.low, TINY)))
        value, low = 1.0 / np.sqrt(x.value), 1.0 / np.sqrt(x.high)
        return _spread(value, low, high, _RSQRT * _ULP)


def largest(x: Estimate, axis: int) -> Estimate:
    """The largest along `axis`, which is kept: a choice rounds nothing."""
    ends = (part.max(axis, keepdims=True) for part in (x.value, x.low, x.high))
    value, low, high = ends
    return Estimate(value=value, low=low, high=high)


def mean(x: Estimate, axis: int) -> Estimate:
    """The fp32 sum along `axis`, in any order, divided by the number of terms."""
    return quotient(total(x, axis), exactly(np.array(x.value.shape[axis])))


def softmax(x: Estimate, axis: int) -> Estimate:
    """e^(x - m) over its sum along `axis`, m being the largest.

    Which m a kernel subtracts does not change the quotient: of it only the difference's rounding counts.
    """
    shift = exactly(x.value.max(axis, keepdims=True))
    powers = exp(difference(x, shift))
    sums = total(powers, axis)
    ends = (np.expand_dims(part, axis) for part in (sums.value, sums.low, sums.high))
    value, low, high = ends
    return quotient(powers, Estimate(value=value, low=low, high=high))


def _ways(x: Estimate) -> tuple[tuple[Floats, int], tuple[Floats, int]]:
    return (x.low, -1), (x.high, 1)


def _spread(value: Array, low: Array, high: Array, relative: float) -> Estimate:
    """The interval with its ends moved apart by one evaluation: `relative` of each, and what is flushed.

    Where an end leaves fp32's range a right answer is infinite or the largest number.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        lowest = low - (relative * np.abs(low) + TINY)
        highest = high + (relative * np.abs(high) + TINY)
    lowest = np.where(np.isfinite(low), np.minimum(lowest, _LARGEST), lowest)
    highest = np.where(np.isfinite(high), np.maximum(highest, -_LARGEST), highest)
    lowest = np.where(lowest < -_LARGEST, -np.inf, np.where(np.isnan(lowest), -np.inf, lowest))
    highest = np.where(highest > _LARGEST, np.inf, np.where(np.isnan(highest), np.inf, highest))
    return Estimate(value=np.asarray(value, dtype=np.float64), low=lowest, high=highest)
