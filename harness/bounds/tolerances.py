"""A contract's own numbers: tolerances that its author knows, element by element or by rows.

Prefer a bound that is derived. A number is right where the contract itself names it: a customer's threshold,
a published tolerance. Agreement says where such a bound is too wide to tell zeros, or another row's output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitproof.harness.bounds.elements import (
    Answer,
    Array,
    Judgement,
    first_failing,
    settle_overflow,
)
from bitproof.harness.bounds.norms import difference, exact_values, judge_specials, norms_of, widen
from bitproof.harness.errors import SpecError


@dataclass(frozen=True, kw_only=True)
class Close:
    """Each element within an absolute and a relative tolerance of the exact answer: see `close`."""

    rtol: float
    atol: float
    because: str

    @property
    def formula(self) -> str:
        """The bound in words."""
        return f"{self.atol:g} + {self.rtol:g} of the answer, because {self.because}"

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """Judge NaN and infinities, then the elements."""
        wide, value = widen(got), settle_overflow(got, exact_values(expected))
        distance = np.abs(difference(wide, value))
        allowed = self.atol + self.rtol * np.where(np.isfinite(value), np.abs(value), 0.0)
        judged = Judgement(
            bad=distance > allowed, distance=distance, allowed=allowed, unit="absolute"
        )
        return first_failing((judge_specials(wide, value), judged))


@dataclass(frozen=True, kw_only=True)
class RowRms:
    """The RMS error of each row, relative to the RMS of its exact answer: see `row_rms`."""

    limit: float
    because: str

    @property
    def formula(self) -> str:
        """The bound in words."""
        return f"relative RMS of each row at most {self.limit:g}, because {self.because}"

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """Judge NaN and infinities, then the norm of each row's error."""
        wide, value = widen(got), settle_overflow(got, exact_values(expected))
        specials = judge_specials(wide, value)
        if specials is not None or not wide.size:
            return specials
        rows = max(value.ndim - 1, 0)
        error = difference(wide, value)
        errors = norms_of(error, rows)
        allowed = self.limit * norms_of(np.where(np.isfinite(value), value, 0.0), rows)
        bad = errors > allowed
        return Judgement(
            bad=np.broadcast_to(bad, value.shape),
            distance=np.broadcast_to(errors, value.shape),
            allowed=np.broadcast_to(allowed, value.shape),
            unit="in norm over the last axis",
            wrong=f"{int(bad.sum())} of {bad.size} rows",
        )


def close(*, rtol: float = 0.0, atol: float = 0.0, because: str) -> Close:
    """|got - value| <= atol + rtol * |value| for every element, as `numpy.isclose` has it.

    A value that rounds to infinity in the output's type may do so. Raises SpecError for tolerances below 0 or
    both 0, or without whose contract it is.
    """
    if not (rtol >= 0 and atol >= 0 and rtol + atol > 0) or not because:
        raise SpecError("close needs rtol or atol above 0, and whose contract they are")
    return Close(rtol=rtol, atol=atol, because=because)


def row_rms(limit: float, *, because: str) -> RowRms:
    """RMS(got - value) <= limit * RMS(value) over the last axis, in every row.

    Raises SpecError for a limit that is not positive, or without whose contract it is.
    """
    if not limit > 0 or not because:
        raise SpecError("row_rms needs a positive limit and whose contract it is")
    return RowRms(limit=limit, because=because)
