"""Stochastic rounding: to one of the two neighbours, up as often as the value lies toward the upper one.

Each element may round either way, so that no oracle knows it; what is known is where it may go and how often.
Elements are taken to round independently of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitproof.harness.bounds.elements import Answer, Array, Judgement, is_float
from bitproof.harness.errors import SpecError
from bitproof.oracles import formats

# Parts of the gap between neighbours that are judged apart, for either sign: over all of it rounding to
# nearest is unbiased, and over both signs whatever draws toward zero.
_PARTS = 8
_GROUPS = 2 * _PARTS


@dataclass(frozen=True, kw_only=True)
class StochasticRounding:
    """To one of the format's two neighbours of the oracle's float64 value, up with the right frequency.

    `false_alarm` is the probability that a right kernel is called wrong, at most, for each output judged.
    """

    because: str
    false_alarm: float = 1e-9

    @property
    def formula(self) -> str:
        """The bound in words."""
        return (
            "one of the two neighbours, up as often as the value lies toward the upper one (a right kernel "
            f"fails with probability {self.false_alarm:g}), because {self.because}"
        )

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """Raises SpecError for an output that is no float, or where the oracle does not answer in float64.

        A value of the format never moves. Beyond the largest value nothing is judged but the sign.
        """
        if not is_float(got.dtype) or not isinstance(expected, np.ndarray):
            raise SpecError(f"stochastic rounding is of float outputs, {got.dtype} is none")
        if expected.dtype != np.float64:
            raise SpecError(
                f"stochastic rounding needs the oracle's exact values in float64, got {expected.dtype}"
            )
        fmt = formats.of_dtype(got.dtype)
        if fmt.bits > 16:
            raise SpecError(
                f"stochastic rounding is judged in formats of up to 16 bits, not in {fmt.name}"
            )
        grid = formats.grid(fmt)
        values = formats.decode(formats.bits(got), fmt).astype(np.float64)
        inside = np.isfinite(expected) & (expected >= grid[0]) & (expected <= grid[-1])
        above = np.searchsorted(grid, np.where(inside, expected, 0.0), side="left")
        upper = grid[np.clip(above, 0, len(grid) - 1)]
        exact = upper == expected
        lower = np.where(exact, upper, grid[np.clip(above - 1, 0, len(grid) - 1)])
        strayed = inside & (values != upper) & (values != lower)
        nan = np.isnan(expected)
        strayed |= (nan != np.isnan(values)) & (nan | inside)
        strayed |= ~inside & ~nan & (np.signbit(values) != np.signbit(expected))
        if strayed.any():
            distance = np.where(strayed, np.abs(values - np.where(inside, expected, 0.0)), 0.0)
            return Judgement(
                bad=strayed, distance=distance, allowed=0.0, unit="the value's distance"
            )
        return self._judge_frequency(values == upper, lower, upper, expected, inside & ~exact)

    def _judge_frequency(
        self, up: Any, lower: Any, upper: Any, expected: Any, free: NDArray[np.bool_]
    ) -> Judgement | None:
        """Hoeffding's inequality (1963, theorem 2) for the elements of each part of the gap.

        The number of those that go up minus its expectation is beyond t with probability at most
        2 exp(-2 t^2 / n).
        """
        gap = np.where(free, upper - lower, 1.0)
        share = np.where(free, (expected - lower) / gap, 0.0)
        part = np.minimum((share * _PARTS).astype(np.int64), _PARTS - 1)
        part = np.where(expected < 0, part + _PARTS, part)
        distance = np.zeros(up.shape)
        for number in range(_GROUPS):
            here = free & (part == number)
            count = int(here.sum())
            if count:
                excess = abs(float((up[here] - share[here]).sum()))
                most = math.sqrt(count * math.log(2 * _GROUPS / self.false_alarm) / 2)
                distance[here] = excess / most
        bad = distance > 1.0
        if not bad.any():
            return Judgement(bad=bad, distance=distance, allowed=1.0, unit=_UNIT)
        worst = tuple(int(i) for i in np.unravel_index(int(distance.argmax()), distance.shape))
        wrong = f"{int(bad.sum())} elements round up too often or too seldom"
        return Judgement(
            bad=bad, distance=distance, allowed=1.0, unit=_UNIT, worst=worst, wrong=wrong
        )


_UNIT = "of the deviation from the expected number of roundings up that chance allows"


def stochastic_rounding(*, because: str, false_alarm: float = 1e-9) -> StochasticRounding:
    """Each element is one of the two values of the output's format around the oracle's, without bias.

    The oracle answers in float64. `false_alarm` is how often a right kernel may be called wrong, for each
    output of each case. SpecError for a probability that is none.
    """
    if not 0.0 < false_alarm < 0.1:
        raise SpecError(
            f"false_alarm must be a probability between 0 and 0.1, such as 1e-9, got {false_alarm!r}"
        )
    return StochasticRounding(because=because, false_alarm=false_alarm)
