"""Bounds that judge element by element: how far an output may be from the oracle, and why.

A bound is a frozen value with one method, `judge`, which sees nothing but numbers. It is derived, not tuned:
a bound that is looser than exact bits carries its reason in `because`. `harness.bounds.norms` has the bounds
that judge rows and whole outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitproof.harness.errors import SpecError
from bitproof.oracles import formats
from bitproof.oracles.estimates import Estimate
from bitproof.oracles.modelled import Modelled

Array = NDArray[Any]
Answer = Array | Estimate | Modelled


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A bound's verdict: `bad` masks the elements outside it, `distance` and `allowed` are in `unit`.

    A bound that measures many elements together gives each of them their common distance. `worst` is the
    index of the element that a report shows; None stands for the element farthest away. `wrong` says how
    much is bad, such as "1 of 40 rows"; "" stands for a count of elements.
    """

    bad: NDArray[np.bool_]
    distance: NDArray[np.float64]
    allowed: NDArray[np.float64] | float
    unit: str
    worst: tuple[int, ...] | None = None
    wrong: str = ""

    @property
    def ratio(self) -> float:
        """The largest distance as a multiple of `allowed`; the distance itself where 0 is allowed.

        0 where there are no elements.
        """
        allowed = np.asarray(self.allowed, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(allowed > 0, self.distance / allowed, self.distance)
        return float(np.nanmax(ratio)) if ratio.size else 0.0


class Bound(Protocol):
    """What `compare` asks of a bound."""

    @property
    def formula(self) -> str:
        """The bound in words, for reports."""
        ...

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """Compare arrays of one shape; None means that they are equal in the strictest sense.

        `got` has the output's own dtype (an ml_dtypes type for small floats). `expected` has that dtype or
        float64, or is an oracle's Estimate or Modelled. NaN is judged too: it equals any NaN and nothing
        else. Raises SpecError where the bound does not apply to such an output.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ExactBits:
    """Bit patterns equal: -0 is not +0; any NaN equals any NaN."""

    @property
    def formula(self) -> str:
        """The bound in words."""
        return "exact bits, any NaN equal to any NaN"

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """Raises SpecError when the oracle's dtype is not the output's: their bits cannot be compared."""
        expected = _exact(expected)
        if expected.dtype != got.dtype:
            raise SpecError(
                f"an exact bound needs the oracle in the output's dtype {got.dtype}, "
                f"it answered in {expected.dtype}"
            )
        got_bits, expected_bits = formats.bits(got), formats.bits(expected)
        if np.array_equal(got_bits, expected_bits):
            return None
        bad = got_bits != expected_bits
        if is_float(got.dtype):
            bad &= ~(_is_nan(got) & _is_nan(expected))
        if not bad.any():
            return None
        return Judgement(bad=bad, distance=_ulps(got, expected), allowed=0.0, unit="ulp")


@dataclass(frozen=True, kw_only=True)
class Ulps:
    """At most `count` units in the last place of the output's own format, measured at the oracle's value."""

    count: float
    because: str

    @property
    def formula(self) -> str:
        """The bound in words."""
        return f"{self.count:g} ulp, because {self.because}"

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """NaN needs NaN, and an infinity the same infinity; other elements are judged by distance.

        Raises SpecError for an output that is not a float of 32 bits or fewer.
        """
        expected = _exact(expected)
        fmt = _format(got.dtype)
        if fmt is None:
            raise SpecError(f"ulps says nothing of an output in {got.dtype}: declare another bound")
        with np.errstate(invalid="ignore"):  # widening a signalling NaN raises the flag
            wide_got = got.astype(np.float64)
            wide_expected = settle_overflow(got, expected.astype(np.float64))
        special = ~np.isfinite(wide_got) | ~np.isfinite(wide_expected)
        same = (wide_got == wide_expected) | (np.isnan(wide_got) & np.isnan(wide_expected))
        step = spacing(wide_expected, fmt)
        with np.errstate(invalid="ignore"):
            distance = np.abs(wide_got - wide_expected) / step
        distance = np.where(same, 0.0, np.where(special, np.inf, distance))
        bad = distance > self.count
        return Judgement(bad=bad, distance=distance, allowed=self.count, unit="ulp")


@dataclass(frozen=True, kw_only=True)
class ForwardError:
    """Inside the interval that the oracle derives for each element from the operation itself.

    An interval that reaches to where rounding to nearest gives the format's infinity holds that infinity.
    +0 and -0 are equal here. An output of integer type is compared by value.
    """

    because: str

    @property
    def formula(self) -> str:
        """The bound in words."""
        return f"forward error, {self.because}"

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """NaN needs NaN. Raises SpecError where the oracle answers without an interval."""
        if not isinstance(expected, Estimate):
            raise SpecError("a forward error needs an oracle that answers with an Estimate")
        with np.errstate(invalid="ignore"):  # widening a signalling NaN, infinity less infinity
            wide = got.astype(np.float64)
            distance = np.abs(wide - expected.value)
            below = wide < expected.value
            allowed = np.where(below, expected.value - expected.low, expected.high - expected.value)
            inside = (expected.low <= wide) & (wide <= expected.high)
            fmt = _format(got.dtype)
            if fmt is not None:
                inside |= (wide == np.inf) & (expected.high >= fmt.beyond)
                inside |= (wide == -np.inf) & (expected.low <= -fmt.beyond)
            crossed = ~np.isnan(expected.value) & ~(expected.low <= expected.high)
        if crossed.any():
            index = tuple(int(i) for i in np.argwhere(crossed)[0])
            low, value, high = (
                float(part[index]) for part in (expected.low, expected.value, expected.high)
            )
            raise SpecError(
                f"the oracle's interval at {list(index)} is from {low:g} to {high:g} for {value:g}: its "
                "ends must be numbers in ascending order"
            )
        inside = np.where(np.isnan(expected.value), np.isnan(wide), inside)
        distance = np.where(inside & ~np.isfinite(distance), 0.0, distance)
        distance = np.where(np.isnan(distance), np.inf, distance)
        allowed = np.where(np.isfinite(allowed), np.maximum(allowed, 0.0), 0.0)
        return Judgement(bad=~inside, distance=distance, allowed=allowed, unit="absolute")


@dataclass(frozen=True, kw_only=True)
class AllOf:
    """Inside every one of `bounds`; a report describes the first that fails, with the formulas of all."""

    bounds: tuple[Bound, ...]

    @property
    def formula(self) -> str:
        """The bounds in words."""
        return "; and ".join(bound.formula for bound in self.bounds)

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """Raises SpecError where one of the bounds does not apply to such an output or answer."""
        return first_failing(bound.judge(got, expected) for bound in self.bounds)


def first_failing(judgements: Iterable[Judgement | None]) -> Judgement | None:
    """The first judgement with a bad element, else the one with the largest ratio; None for no judgement."""
    passed: list[Judgement] = []
    for judgement in judgements:
        if judgement is None:
            continue
        if judgement.bad.any():
            return judgement
        passed.append(judgement)
    return max(passed, key=lambda judgement: judgement.ratio, default=None)


def exact_bits() -> ExactBits:
    """The tightest bound: the output's bit patterns are the oracle's."""
    return ExactBits()


def ulps(count: float, *, because: str) -> Ulps:
    """At most `count` ulps in the output's own format; `because` says where they come from.

    Raises SpecError for a count that is not positive, or without a reason.
    """
    if count <= 0 or not because:
        raise SpecError("ulps needs a positive count and the reason why exact bits cannot be asked")
    return Ulps(count=count, because=because)


def forward_error(*, because: str) -> ForwardError:
    """Inside the oracle's `Estimate`; `because` is its derivation in words, for reports.

    Raises SpecError without one.
    """
    if not because:
        raise SpecError("a forward error needs its derivation in words")
    return ForwardError(because=because)


def all_of(*bounds: Bound) -> AllOf:
    """Inside each of two or more bounds, such as a contract's own threshold beside a sharper bound.

    Raises SpecError for fewer than two.
    """
    if len(bounds) < 2:
        raise SpecError(f"all_of combines two or more bounds, it got {len(bounds)}")
    return AllOf(bounds=bounds)


def settle_overflow(got: Array, expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """`expected`, and where it is beyond the range of got's format the answer there, if that is a right one.

    Right are the format's largest number, and its infinity from where rounding to nearest gives that: a
    float64 answer does not say whether the kernel saturates. Exact bits do, where a contract says it.
    """
    fmt = _format(got.dtype)
    if fmt is None:
        return expected
    with np.errstate(invalid="ignore"):  # widening a signalling NaN raises the flag
        wide = got.astype(np.float64)
    size = np.abs(expected)
    beyond = np.isfinite(expected) & (np.sign(wide) == np.sign(expected))
    saturated = beyond & (size > fmt.largest) & (np.abs(wide) == fmt.largest)
    infinite = beyond & (size >= fmt.beyond) & np.isinf(wide)
    return np.where(saturated | infinite, wide, expected)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a numpy or ml_dtypes dtype holds floating-point values."""
    return not (np.issubdtype(dtype, np.integer) or np.issubdtype(dtype, np.bool_))


def _exact(expected: Answer) -> Array:
    if isinstance(expected, Estimate):
        raise SpecError("the oracle answers with an Estimate: declare a forward_error for it")
    if isinstance(expected, Modelled):
        raise SpecError("the oracle answers with a Modelled: declare a storage_model for it")
    return expected


def _format(dtype: np.dtype[Any]) -> formats.Format | None:
    return formats.of_dtype(dtype) if is_float(dtype) and dtype != np.float64 else None


def _is_nan(values: Array) -> NDArray[np.bool_]:
    """Which elements are NaN, decided by their bits, so that a signalling NaN raises no flag."""
    fmt = _format(values.dtype)
    return np.isnan(values) if fmt is None else formats.is_nan(formats.bits(values), fmt)


def _ulps(got: Array, expected: Array) -> NDArray[np.float64]:
    """Distance in representable steps: for integers the difference, for floats that of their ordinals."""
    fmt = _format(got.dtype)
    codes, wanted = formats.bits(got), formats.bits(expected)
    if fmt is not None:
        steps = formats.ulp_distance(codes, wanted, fmt).astype(np.float64)
        return np.where(formats.is_nan(codes, fmt) != formats.is_nan(wanted, fmt), np.inf, steps)
    if got.dtype == np.float64:
        one, other = codes & _MAGNITUDE, wanted & _MAGNITUDE
        beside = (codes ^ wanted) <= _MAGNITUDE
        apart = np.where(beside, np.maximum(one, other) - np.minimum(one, other), one + other)
        return np.where(np.isnan(got) != np.isnan(expected), np.inf, apart.astype(np.float64))
    # The larger less the smaller, modulo 2^bits, is their distance even where it overflows the type.
    high, low = np.maximum(got, expected), np.minimum(got, expected)
    with np.errstate(over="ignore"):
        return np.asarray(formats.bits(high) - formats.bits(low), dtype=np.float64)


_MAGNITUDE = np.uint64((1 << 63) - 1)  # all bits of a float64 but its sign


def spacing(values: NDArray[np.float64], fmt: formats.Format) -> NDArray[np.float64]:
    """The unit in the last place of `fmt` at `values`, the subnormal step below its normal range."""
    _, exponent = np.frexp(np.where(np.isfinite(values), values, 1.0))
    lowest = fmt.minimum_exponent
    binade = np.maximum(np.where(values == 0, lowest, exponent - 1), lowest)
    steps: NDArray[np.float64] = np.ldexp(1.0, binade - fmt.mantissa_bits)
    return steps
