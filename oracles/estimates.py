"""Answers with their uncertainty: what a computation gives exactly, and the interval its fp32 run may end in.

Running error analysis (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.3): every
operation widens the interval of its operands by its own rounding, so that the bound of a long expression
follows from its steps and from the data, whatever order a sum is taken in.
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
        return around(value, np.where(lost == 0, 0.0, lost + TINY))


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
        return around(value, error + gamma(count) * magnitude)


def rounded(x: Estimate, fmt: Format) -> Estimate:
    """`x` as it is stored in `fmt`, to nearest even: rounding is monotone, so the ends are rounded.

    Too large goes to infinity where the format has one, else to its largest value.
    """
    overflow: Overflow = "saturate" if fmt.infinity is None else "inf"
    low, high = (round_value(end, fmt, overflow=overflow) for end in (x.low, x.high))
    return Estimate(value=x.value, low=low, high=high)
