"""How far results lie from exact values: the largest error on either side, and the input that shows it.

An ulp is the distance between the numbers of the result's type in the binade of the exact value, and below
the normal numbers that of the subnormal ones. An infinity counts as one step beyond the largest number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bitproof.harness.bits import bits

SIDES = ("away", "toward")
CLASSES = ("normal", "subnormal")


@dataclass(frozen=True, kw_only=True)
class Largest:
    """The largest error of some results: in ulps, with the bit patterns of the inputs and of the result."""

    ulps: float = 0.0
    inputs: tuple[str, ...] = ()
    got: str = ""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """The errors of `tried` results.

    normal      the largest away from zero and toward zero, where arguments and exact value are normal
                numbers, zeros or infinities
    subnormal   the same, where one of them is subnormal
    beyond      what exact values become whose magnitude rounds past the largest number
    infinite    what exact infinities become
    nan_lost, nan_made   numbers where a NaN is right, NaN where a number is; `nan_at` has the first inputs of
                each that there are
    """

    tried: int = 0
    normal: Mapping[str, Largest] = field(default_factory=dict)
    subnormal: Mapping[str, Largest] = field(default_factory=dict)
    beyond: tuple[str, ...] = ()
    infinite: tuple[str, ...] = ()
    nan_lost: int = 0
    nan_made: int = 0
    nan_at: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Tally:
    """Adds up the errors of results in a type, a batch at a time; of equal errors the first is kept."""

    def __init__(self, dtype: torch.dtype) -> None:
        """Of results in the floating-point type `dtype`."""
        self._info = torch.finfo(dtype)
        largest = self._info.max
        step = math.ldexp(self._info.eps, math.frexp(largest)[1] - 1)
        # What rounds to nearest past the largest number.
        self._threshold = largest + step / 2
        self._infinity = largest + step
        self._tried = 0
        self._largest = {(kind, side): Largest() for kind in CLASSES for side in SIDES}
        self._became: dict[str, set[str]] = {"beyond": set(), "infinite": set()}
        self._nan = {"lost": 0, "made": 0}
        self._nan_at: dict[str, tuple[str, ...]] = {}

    def add(self, got: Tensor, exact: Tensor, operands: Sequence[Tensor]) -> None:
        """Judge results [n] by float64 values [n]; `operands` are the arguments, [n] each."""
        self._tried += got.numel()
        value, size = got.double(), exact.abs()
        right, made = exact.isnan(), value.isnan()
        masks = {"lost": right & ~made, "made": made & ~right}
        outside = {"infinite": size.isinf(), "beyond": (size >= self._threshold) & ~size.isinf()}
        signed = self._measure(value, exact)
        signed[right | made | (size >= self._threshold)] = 0.0
        tiny = (size > 0) & (size < self._info.smallest_normal)
        for operand in operands:
            if operand.is_floating_point():
                smallest = torch.finfo(operand.dtype).smallest_normal
                magnitude = operand.double().abs()
                tiny |= (magnitude > 0) & (magnitude < smallest)
        by_kind = {
            "normal": signed.masked_fill(tiny, 0.0),
            "subnormal": signed.masked_fill(~tiny, 0.0),
        }
        ends = [end for kind in CLASSES for end in (by_kind[kind].max(), -by_kind[kind].min())]
        counts = [mask.sum() for mask in (*masks.values(), *outside.values())]
        *found, lost, odd, infinite, beyond = torch.stack([*ends, *counts]).tolist()
        places = [(kind, side) for kind in CLASSES for side in SIDES]
        for (kind, side), ulps in zip(places, found, strict=True):
            if ulps > self._largest[kind, side].ulps:
                where = by_kind[kind] == (ulps if side == "away" else -ulps)
                first = int(where.nonzero()[0])
                self._largest[kind, side] = Largest(
                    ulps=ulps, inputs=_show(operands, first), got=_hexadecimal(got[first])
                )
        for name, count in (("lost", lost), ("made", odd)):
            self._nan[name] += int(count)
            if count and name not in self._nan_at:
                self._nan_at[name] = _show(operands, int(masks[name].nonzero()[0]))
        for name, count in (("infinite", infinite), ("beyond", beyond)):
            if count:
                self._became[name] |= self._name(value[outside[name]], exact[outside[name]])

    def errors(self) -> Errors:
        """What was found so far."""
        by_kind = {
            kind: {
                side: self._largest[kind, side]
                for side in SIDES
                if self._largest[kind, side].inputs
            }
            for kind in CLASSES
        }
        return Errors(
            tried=self._tried,
            normal=by_kind["normal"],
            subnormal=by_kind["subnormal"],
            beyond=tuple(sorted(self._became["beyond"])),
            infinite=tuple(sorted(self._became["infinite"])),
            nan_lost=self._nan["lost"],
            nan_made=self._nan["made"],
            nan_at=dict(self._nan_at),
        )

    def _measure(self, value: Tensor, exact: Tensor) -> Tensor:
        """Ulps by which magnitudes are too large (positive) or too small; NaN where one is."""
        exponent = exact.view(torch.int64) & 0x7FF0_0000_0000_0000
        step = exponent.view(torch.float64).clamp(min=self._info.smallest_normal) * self._info.eps
        distance = (value.clamp(-self._infinity, self._infinity) - exact) / step
        return torch.where(exact.signbit(), -distance, distance)

    def _name(self, value: Tensor, exact: Tensor) -> set[str]:
        """What became of values that are not in range."""
        same = value.signbit() == exact.signbit()
        largest = value.abs() == self._info.max
        found = {
            "NaN": value.isnan(),
            "infinity": value.isinf() & same,
            "the largest": largest & same,
        }
        rest = torch.ones_like(same)
        for mask in found.values():
            rest &= ~mask
        return {name for name, mask in {**found, "another number": rest}.items() if mask.any()}


def _show(operands: Sequence[Tensor], place: int) -> tuple[str, ...]:
    return tuple(_hexadecimal(operand[place]) for operand in operands)


def _hexadecimal(element: Tensor) -> str:
    """The bit pattern of one element, as wide as its type."""
    size = element.element_size()
    pattern = int(bits(element.reshape(1)).cpu()) % (1 << 8 * size)
    return f"0x{pattern:0{2 * size}x}"
