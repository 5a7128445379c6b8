"""What a target's conversion between two float formats really does, judged on the inputs that decide.

A conversion is run (`probe` compiles it alone, `ptx_thread` or `llir_thread` executes it) on every code
of its source format, or for fp32 on every value and midpoint of the target format with what lies around
them, and compared with exact rounding. What differs is counted by kind, since each kind has its cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bitproof.oracles import formats
from bitproof.oracles.formats import Array, Format
from bitproof.oracles.rounding import Mode, round_to

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, order=True)
class Conversion:
    """From one format to another, by their names in `oracles.formats`; `rounding` is rne or rz."""

    source: str
    target: str
    rounding: Mode = "rne"

    def __str__(self) -> str:
        """As reports say it."""
        asked = " toward zero" if self.rounding == "rz" else ""
        return f"{self.source} to {self.target}{asked}"


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """Results of one kind that are wrong: how many, and the first: input, what came of it, what is right."""

    count: int
    value: float
    got: float
    expected: float

    def __str__(self) -> str:
        """As reports say it."""
        return f"{self.value!r} becomes {self.got!r}, not {self.expected!r}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came of `tried` inputs.

    chain     the instructions that do it
    overflow  what finite values beyond the largest become: "saturate", "inf", "nan", "mixed", or ""
              where the target format holds every value of the source
    strayed   on a mixed overflow, one value and what most of the others become
    ties      halfway between two values, to the wrong one
    beside    close to halfway, to the farther value: something was rounded before
    far       any other finite value in range, to another than the right one
    zero      zeros of the other sign
    infinity  infinities that became a number smaller than the largest, or a NaN without need
    nan       NaN that became a number
    """

    chain: str
    tried: int
    overflow: str = ""
    strayed: Wrong | None = None
    ties: Wrong | None = None
    beside: Wrong | None = None
    far: Wrong | None = None
    zero: Wrong | None = None
    infinity: Wrong | None = None
    nan: Wrong | None = None

    @property
    def wrong(self) -> int:
        """How many of the tried inputs give a wrong result, those that stray on a mixed overflow included."""
        kinds = (self.ties, self.beside, self.far, self.zero, self.infinity, self.nan, self.strayed)
        return sum(kind.count for kind in kinds if kind is not None)

    @property
    def right(self) -> bool:
        """Whether nothing is wrong, wherever overflows go as long as all go there."""
        return not self.wrong


def widens(conversion: Conversion) -> bool:
    """Whether the target format holds every value of the source format."""
    source, target = formats.by_name(conversion.source), formats.by_name(conversion.target)
    if conversion.source == conversion.target:
        return True
    return (
        target.mantissa_bits >= source.mantissa_bits
        and target.largest >= source.largest
        and target.smallest <= source.smallest
    )


@cache
def inputs(conversion: Conversion) -> Array:
    """The codes of the source format that decide, [n] in its storage type."""
    source, target = formats.by_name(conversion.source), formats.by_name(conversion.target)
    if source.bits <= 16:
        return np.arange(1 << source.bits, dtype=source.storage)
    values = formats.grid(target)
    values = values[values >= 0]
    beyond = 2.0 * values[-1] - values[-2]
    corners = np.concatenate([values, [beyond, 2.0 * beyond]])
    middles = (corners[1:] + corners[:-1]) / 2
    # Half of a half on either side: no rounding in between can reach them.
    quarters = np.concatenate([(corners[1:] + middles) / 2, (corners[:-1] + middles) / 2])
    with np.errstate(over="ignore"):
        words = [
            formats.bits(points.astype(np.float32)).astype(np.int64)
            for points in (corners, middles, quarters)
        ]
    patterns = [np.clip(near + step, 0, 0x7FFFFFFF) for near in words[:2] for step in (-1, 0, 1)]
    patterns += [words[2]]
    patterns += [np.array(_SPECIAL, dtype=np.int64)]
    positive = np.unique(np.concatenate(patterns)).astype(np.uint32)
    return np.concatenate([positive, positive | np.uint32(0x80000000)])


# Zero, subnormals, the ends of the normal range, infinity, quiet and signalling NaN.
_SPECIAL = (
    *(0x0, 0x1, 0x7FFFFF, 0x800000, 0x7F000000, 0x7F7FFFFF, 0x7F800000),
    *(0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF),
)


def judge(conversion: Conversion, codes: Array, got: Array, chain: str) -> Verdict:
    """Compare what came of `codes` [n], codes `got` [n] of the target format, with exact rounding."""
    source, target = formats.by_name(conversion.source), formats.by_name(conversion.target)
    got = got.astype(target.storage)
    values = formats.decode(codes, source)
    with np.errstate(invalid="ignore"):
        narrow = values.astype(np.float32)
    expected = _round_exactly(narrow, target, conversion.rounding)
    is_nan = np.isnan(values)
    infinite = np.isinf(values)
    over = np.isfinite(values) & _overflows(narrow, target, conversion.rounding)
    inside = ~(is_nan | infinite | over)
    wrong = inside & (got != expected)
    zero = wrong & formats.zero_signs_differ(got, expected, target)
    wrong &= ~zero
    tie, near = _halfway(values, target)

    def found(mask: Mask) -> Wrong | None:
        if not mask.any():
            return None
        # The positive one of ordinary size reads best.
        order = np.lexsort((np.abs(np.log2(np.abs(values[mask]) + 1e-45)), values[mask] < 0))
        first = np.flatnonzero(mask)[order[0]]
        pick = slice(first, first + 1)
        return Wrong(
            count=int(mask.sum()),
            value=float(values[first]),
            got=float(formats.decode(got[pick], target)[0]),
            expected=float(formats.decode(expected[pick], target)[0]),
        )

    got_nan = formats.is_nan(got, target)
    magnitude = got & target.storage.type(target.magnitude_mask)
    saturated = magnitude == target.largest_code
    as_infinity = (
        np.zeros_like(saturated) if target.infinity is None else magnitude == target.infinity
    )
    lost = infinite & ~as_infinity
    if not widens(conversion):
        lost &= ~saturated & ~(got_nan & (target.infinity is None))
    policies = {"saturate": saturated, "inf": as_infinity, "nan": got_nan}
    overflow = _policy(over, policies)
    usual = max(policies.values(), key=lambda mask: int(mask[over].sum()))
    return Verdict(
        chain=chain,
        tried=len(codes),
        overflow=overflow,
        strayed=found(over & ~usual) if overflow == "mixed" else None,
        ties=found(wrong & tie),
        beside=found(wrong & near & ~tie),
        far=found(wrong & ~near),
        zero=found(zero),
        infinity=found(lost),
        nan=found(is_nan & ~got_nan),
    )


def _round_exactly(values: Array, target: Format, mode: Mode) -> Array:
    """Exactly rounded codes, infinities where the format has them, NaN of any kind as the format's."""
    if target.name == "fp32":
        return formats.bits(values)
    # Fp8 conversions saturate, wider ones overflow to infinity; a strayed overflow is shown beside it.
    overflow: Any = "inf" if target.infinity is not None and target.bits > 8 else "saturate"
    return round_to(values, target, mode=mode, overflow=overflow)


def _overflows(values: Array, target: Format, mode: Mode) -> Mask:
    """Finite values that round, with an unbounded exponent, beyond the largest one of `target`."""
    if target.name == "fp32" or mode == "rz":
        return np.zeros(values.shape, dtype=np.bool_)
    top = formats.decode(np.arange(target.largest_code + 1, dtype=np.uint64)[-2:], target)
    limit = top[1] + (top[1] - top[0]) / 2
    # Halfway beyond the largest goes to the even one, which the largest is or is not.
    magnitude = np.abs(values.astype(np.float64))
    result: Mask = magnitude > limit if target.largest_code % 2 == 0 else magnitude >= limit
    return result


def _halfway(values: Array, target: Format) -> tuple[Mask, Mask]:
    """Which values lie exactly halfway between two of `target`, and which close to it."""
    magnitude = np.abs(values)
    if target.bits > 16:
        never = np.zeros(values.shape, dtype=np.bool_)
        return never, never
    middles = formats.midpoints(target)
    middles = middles[middles > 0]
    index = np.clip(np.searchsorted(middles, magnitude), 0, len(middles) - 1)
    other = np.clip(index - 1, 0, None)
    with np.errstate(invalid="ignore"):
        gaps = [np.abs(magnitude - middles[i]) / middles[i] for i in (index, other)]
    distance = np.fmin(*gaps)
    return distance == 0, distance < 2.0 ** -(target.mantissa_bits + 3)


def _policy(over: Mask, policies: Mapping[str, Mask]) -> str:
    if not over.any():
        return ""
    return next((name for name, mask in policies.items() if mask[over].all()), "mixed")
