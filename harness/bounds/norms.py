"""Bounds by norms: the error of each row that storage explains, and contracts' own thresholds.

A norm over a whole output hides a fault in one token among ten thousand. Judging each row alone hides one
rounding too many in all rows, because a single row may have a large error by chance. So a storage model
judges each row and all rows together, and a contract's threshold on a whole output stands beside a sharper
bound (see `harness.bounds.all_of`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bitproof.harness.bounds import Answer, Array, Judgement, first_failing
from bitproof.harness.bounds.elements import settle_overflow
from bitproof.harness.errors import SpecError
from bitproof.oracles.estimates import Estimate
from bitproof.oracles.formats import Floats
from bitproof.oracles.modelled import Modelled

_COMMON, _FEW = 1.25, 16


@dataclass(frozen=True, kw_only=True)
class StorageModel:
    """No row is farther from the exact answer than its stored roundings explain: see `storage_model`."""

    slack: float
    because: str

    @property
    def formula(self) -> str:
        """The bound in words."""
        return (
            f"storage model, each row's error at most {self.slack:g} times that of its stored "
            f"roundings plus the fp32 floor, all rows' together little more than once, because {self.because}"
        )

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """Judge NaN and infinities, each row, all rows together, and the contract's threshold, in this order.

        Raises SpecError where the oracle's answer is no `Modelled`.
        """
        if not isinstance(expected, Modelled):
            raise SpecError("a storage model needs an oracle that answers with a Modelled")
        wide = widen(got)
        specials = judge_specials(wide, expected.value)
        if specials is not None or not wide.size:
            return specials
        error = difference(wide, expected.value)
        norms = norms_of(error, expected.rows)
        # Where the model overflows and the exact answer does not, the model explains nothing.
        explained = norms_of(difference(expected.model, expected.value), expected.rows)
        floor = norms_of(np.broadcast_to(expected.floor, expected.shape), expected.rows)
        rows = expected.rows
        return first_failing(
            (
                self._rows(error, norms, self.slack * explained + floor, rows),
                self._together(error, norms, np.hypot(explained, floor), rows),
                None if expected.limit is None else _whole(wide, expected.value, expected.limit),
            )
        )

    def _together(self, error: Floats, norms: Floats, likely: Floats, rows: int) -> Judgement:
        """Every element's distance is the RMS over rows of error / likely error.

        The mean over n rows varies by 1/sqrt(n) of what a single row varies by. A quarter is allowed for what
        all rows have in common, such as operands that are truncated and never rounded up.
        """
        ratios = _ratios(norms, likely)
        distance = float(np.sqrt(np.square(ratios).mean()))
        count = max(ratios.size, error.size / _FEW)
        allowed = _COMMON + (self.slack - _COMMON) / math.sqrt(count)
        return Judgement(
            bad=np.broadcast_to(np.bool_(distance > allowed), error.shape),
            distance=np.broadcast_to(np.float64(distance), error.shape),
            allowed=allowed,
            unit="RMS over rows, of what a row is likely to lose",
            worst=_farthest(error, ratios, rows),
            wrong="the output as a whole",
        )

    def _rows(self, error: Floats, norms: Floats, allowed: Floats, rows: int) -> Judgement:
        """Every element's distance is the norm of its row's error, judged by what its row is allowed."""
        bad = norms > allowed
        worst = _farthest(error, _ratios(norms, allowed), rows)
        shown = [str(i) for i in worst[:rows]] + [":"] * (error.ndim - rows)
        return Judgement(
            bad=np.broadcast_to(bad, error.shape),
            distance=np.broadcast_to(norms, error.shape),
            allowed=np.broadcast_to(allowed, error.shape),
            unit=f"in norm over [{', '.join(shown)}]",
            worst=worst,
            wrong=f"{int(bad.sum())} of {bad.size} rows",
        )


@dataclass(frozen=True, kw_only=True)
class RelativeRms:
    """The RMS error of the whole output, relative to the RMS of the exact answer."""

    limit: float
    because: str

    @property
    def formula(self) -> str:
        """The bound in words."""
        return f"relative RMS at most {self.limit:g}, because {self.because}"

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """Judge NaN and infinities, then the norm."""
        wide, value = widen(got), settle_overflow(got, exact_values(expected))
        return first_failing((judge_specials(wide, value), _whole(wide, value, self.limit)))


@dataclass(frozen=True, kw_only=True)
class ScaledMax:
    """Each element's error, relative to the largest magnitude of the exact answer."""

    limit: float
    because: str

    @property
    def formula(self) -> str:
        """The bound in words."""
        return f"{self.limit:g} of the largest magnitude, because {self.because}"

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """Judge NaN and infinities, then the elements."""
        wide, value = widen(got), settle_overflow(got, exact_values(expected))
        distance = np.abs(difference(wide, value))
        allowed = self.limit * float(np.abs(_finite(value)).max(initial=0.0))
        judged = Judgement(
            bad=distance > allowed, distance=distance, allowed=allowed, unit="absolute"
        )
        return first_failing((judge_specials(wide, value), judged))


def storage_model(slack: float, *, because: str) -> StorageModel:
    """||got - value|| <= slack * ||model - value|| + ||floor|| in every row of a `Modelled` answer.

    Over n rows the root mean square of ||got - value|| / hypot(||model - value||, ||floor||) must also be at
    most 1.25 + (slack - 1.25) / sqrt(n): a single row may have a large error by chance, all rows together may
    not. A row of more than 16 numbers counts as several.

    `slack` is at least 1, and `because` gives the reason for its value. NaN and infinities must be where the
    exact answer has them. Where model and floor are 0, the row must be exact. If the answer has a `limit`,
    `relative_rms` of that limit must hold for the whole output too. Raises SpecError for a slack below 1, or
    without a reason.
    """
    if not slack >= 1 or not because:
        raise SpecError("storage_model needs a slack of at least 1 and the reason for it")
    return StorageModel(slack=slack, because=because)


def relative_rms(limit: float, *, because: str) -> RelativeRms:
    """RMS(got - value) <= limit * RMS(value) over the whole output: a contract's own threshold.

    It hides a fault in one row of many: put it beside a sharper bound with `harness.bounds.all_of`. Raises
    SpecError for a limit that is not positive, or without a reason.
    """
    if not limit > 0 or not because:
        raise SpecError("relative_rms needs a positive limit and whose contract it is")
    return RelativeRms(limit=limit, because=because)


def scaled_max(limit: float, *, because: str) -> ScaledMax:
    """|got - value| <= limit * max |value| for every element: a contract's own threshold.

    It hides errors of elements far below the largest: put it beside a sharper bound. Raises SpecError for a
    limit that is not positive, or without a reason.
    """
    if not limit > 0 or not because:
        raise SpecError("scaled_max needs a positive limit and whose contract it is")
    return ScaledMax(limit=limit, because=because)


def relative_error(got: Floats, value: Floats) -> float:
    """RMS(got - value) / RMS(value) of float64 arrays of one shape, over the finite elements.

    Infinity where NaN and infinities differ between the two, and for any error where `value` is 0 everywhere.
    """
    if judge_specials(got, value) is not None:
        return float("inf")
    error = float(norms_of(difference(got, value), 0).item())
    if error == 0:
        return 0.0
    size = float(norms_of(_finite(value), 0).item())
    return error / size if size else float("inf")


def _whole(wide: Floats, value: Floats, limit: float) -> Judgement | None:
    """Every element's distance is the relative RMS error; a report shows the one with the largest error."""
    if not wide.size:
        return None
    error = relative_error(wide, value)
    farthest = int(np.argmax(np.abs(difference(wide, value))))
    return Judgement(
        bad=np.broadcast_to(np.bool_(error > limit), wide.shape),
        distance=np.broadcast_to(np.float64(error), wide.shape),
        allowed=limit,
        unit="relative RMS",
        worst=_index(np.unravel_index(farthest, wide.shape)),
        wrong="the output as a whole",
    )


def judge_specials(wide: Floats, value: Floats) -> Judgement | None:
    """NaN needs NaN, and an infinity the same infinity; None where both hold."""
    special = ~np.isfinite(wide) | ~np.isfinite(value)
    bad = special & (wide != value) & ~(np.isnan(wide) & np.isnan(value))
    if not bad.any():
        return None
    distance = np.where(bad, np.inf, 0.0)
    return Judgement(bad=bad, distance=distance, allowed=0.0, unit="absolute")


def widen(got: Array) -> Floats:
    """`got` in float64, exactly."""
    with np.errstate(invalid="ignore"):  # widening a signalling NaN raises the flag
        return got.astype(np.float64)


def exact_values(expected: Answer) -> Floats:
    """The exact answer alone, in float64."""
    value = expected.value if isinstance(expected, (Estimate, Modelled)) else expected
    return widen(value)


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, 0.0)


def difference(one: Floats, other: Floats) -> Floats:
    """`one` minus `other`, 0 where either is not finite."""
    with np.errstate(invalid="ignore"):
        return _finite(one - other)


def norms_of(values: Floats, rows: int) -> Floats:
    """Euclidean norms over all but the first `rows` axes, which are kept."""
    squares: Floats = np.square(values).sum(axis=tuple(range(rows, values.ndim)), keepdims=True)
    norms: Floats = np.sqrt(squares)
    return norms


def _ratios(norms: Floats, allowed: Floats) -> Floats:
    """`norms` as multiples of `allowed`, 0 where a norm is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(norms > 0, norms / allowed, 0.0)


def _farthest(error: Floats, ratios: Floats, rows: int) -> tuple[int, ...]:
    """The index of the element with the largest error, in the row with the largest ratio."""
    row = np.unravel_index(int(np.argmax(ratios)), ratios.shape)[:rows]
    element = np.unravel_index(int(np.argmax(np.abs(error[row]))), error[row].shape)
    return _index((*row, *element))


def _index(index: tuple[np.intp, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in index)
