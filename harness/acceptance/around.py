"""Cases around an example: other sizes, kinds of values and magnitudes, as an example's inputs suggest.

Axes of one length are one dimension. A dimension that a reference cannot do without (a weight's, one that the
arguments of a model name, one that makes it raise) keeps its length. Values of one sign keep that sign and
stay below the largest of the example, because a gate or a probability beyond its range says nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from bitproof.harness import inputs as declared
from bitproof.harness.bits import bits
from bitproof.harness.inputs.cases import DeclaredCase, case_of
from bitproof.harness.inputs.declaration import Declaration
from bitproof.harness.strategies.fills import EVERY_KIND, KINDS, Fill, Kind, name_of

# Binades to both sides of the example's magnitude.
_REACH = 8
# Elements of a tensor in a case at the listed sizes, at most, where a CPU computes it.
LISTED = 1 << 18
# A dimension up to so long is tried at twice its length, a longer one at one more; on a CPU the latter only
# up to so many rows, since each may be a program.
_SHORT, _LONGEST = 128, 2048


@dataclass(frozen=True, kw_only=True)
class Range:
    """The values of one sign that an input may have: `sign` and the largest magnitude."""

    sign: int
    largest: float


class AroundCase(DeclaredCase):
    """A declared case whose inputs keep an example's signs, and its integers that are offsets.

    `ranges` are those of inputs of one sign, `given` the tensors that are as in the example.
    """

    ranges: ClassVar[Mapping[str, Range]]
    given: ClassVar[Mapping[str, Tensor]]

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """The inputs by name."""
        made = super().tensors(device)
        for name, allowed in self.ranges.items():
            small = made[name].abs().to(torch.float64).clamp(max=allowed.largest)
            made[name] = (allowed.sign * small).to(made[name].dtype)
        return made | {name: tensor.to(device) for name, tensor in self.given.items()}


@dataclass(frozen=True, kw_only=True)
class Around:
    """The cases around an example.

    case      their dataclass
    listed    the case with the example's sizes
    scalable  the inputs that may be times any power of two
    fixed     dimensions that keep their lengths, and why
    larger    for dimensions that may be longer than listed, a length that the reference takes
    empty     dimensions that may be 0
    """

    case: type[AroundCase]
    listed: AroundCase
    scalable: tuple[str, ...]
    sizes: Mapping[str, int]
    fixed: Mapping[str, str]
    larger: Mapping[str, int] = field(default_factory=dict)
    empty: tuple[str, ...] = ()

    def simplest(self, **changes: Any) -> AroundCase:
        """A case of few rows and columns, other sizes than the listed ones where they may be."""
        small = {
            name: size if name in self.fixed else min(size, 24) for name, size in self.sizes.items()
        }
        return vary(self.listed, **{**small, **changes})

    def filled(self, kind: Kind, exponent: int = 0, only: str = "") -> AroundCase:
        """The simplest case with every scalable input of a kind, or `only` one times 2^exponent."""
        fills = {
            name: dataclasses.replace(
                getattr(self.listed, name),
                kind=kind,
                exponent=getattr(self.listed, name).exponent + exponent * (only in ("", name)),
            )
            for name in self.float_inputs()
        }
        return self.simplest(**fills)

    def float_inputs(self) -> tuple[str, ...]:
        """The inputs whose kinds of values vary."""
        tensors = self.case.declaration.of_kind(declared.Tensor)
        return tuple(
            name
            for name, one in tensors.items()
            if one.dtypes[0].is_floating_point and one.between is None
        )

    def corners(self, small_enough: bool) -> Iterable[AroundCase]:
        """The listed sizes where those are small enough to run, larger ones, each kind of values once."""
        if small_enough:
            yield self.listed
        for name, size in self.larger.items():
            if size <= _LONGEST or small_enough:
                yield self.simplest(**{name: size})
        for kind in EVERY_KIND:
            if kind != "special":
                yield self.filled(kind)


def draw_around(
    tensors: Mapping[str, Tensor],
    params: Mapping[str, Any],
    fixed: Mapping[int, str],
    accepts: Callable[[AroundCase], bool],
) -> Around:
    """The cases around an example; `fixed` are lengths that stay, with the reason, `accepts` tries a case."""
    lengths = sorted({n for tensor in tensors.values() for n in tensor.shape}, reverse=True)
    names = {length: f"n{place}" for place, length in enumerate(lengths)}
    offsets = {name: tensor for name, tensor in tensors.items() if _is_offsets(tensor)}
    kept = {names[n]: why for n, why in fixed.items() if n in names}
    for name, tensor in offsets.items():
        for n in {*tensor.shape, *tensor.flatten()[-1:].tolist()} & set(names):
            kept[names[n]] = f"{name} cuts it"
    ranges = {name: found for name, one in tensors.items() if (found := _range_of(one)) is not None}
    inputs = {
        name: _declare(one, tuple(names[n] for n in one.shape), ranges.get(name))
        for name, one in tensors.items()
    }

    def make(kept: Mapping[str, str]) -> Around:
        sizes = {
            name: declared.Size(least=n if name in kept else min(n, 1), most=n)
            for n, name in names.items()
        }
        declaration = Declaration(name="accepted", inputs=inputs, params=params, sizes=sizes)
        base = case_of(declaration)
        case: Any = type(
            "AcceptedCase",
            (AroundCase, base),
            {"ranges": ranges, "given": offsets, "__module__": __name__, "__doc__": "A case."},
        )
        fills = {
            name: Fill(exponent=_exponent(tensors[name]), dtype=name_of(tensors[name].dtype))
            for name, one in inputs.items()
            if one.dtypes[0].is_floating_point
        }
        listed = case(**{name: n for n, name in names.items()}, **fills)
        scalable = tuple(name for name in fills if name not in ranges)
        return Around(
            case=case,
            listed=listed,
            scalable=scalable,
            sizes={name: n for n, name in names.items()},
            fixed=kept,
        )

    around = make(kept)
    for n, name in names.items():
        if name in kept or n < 2:
            continue
        if not all(accepts(around.simplest(**{name: m})) for m in {1, min(n - 1, 24)}):
            kept[name] = "the reference takes no other"
            around = make(kept)
    free = {name: n for n, name in names.items() if name not in kept}
    sizes = {name: n * 2 + 1 if n <= _SHORT else n + 1 for name, n in free.items()}
    return dataclasses.replace(
        around,
        larger={n: size for n, size in sizes.items() if accepts(around.simplest(**{n: size}))},
        empty=tuple(name for name in free if accepts(around.simplest(**{name: 0}))),
    )


def _declare(tensor: Tensor, axes: tuple[str, ...], allowed: Range | None) -> declared.Tensor:
    dtypes = (tensor.dtype,)
    if tensor.dtype == torch.bool:
        return declared.Tensor(*axes, dtypes=dtypes)
    if not tensor.dtype.is_floating_point:
        low, high = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, 0)
        return declared.Tensor(*axes, dtypes=dtypes, between=(low, high))
    usual = _exponent(tensor)
    high = usual + (0 if allowed is not None else _REACH)
    return declared.Tensor(*axes, dtypes=dtypes, scales=(usual - _REACH, high), kinds=KINDS)


def _range_of(tensor: Tensor) -> Range | None:
    """The range of a tensor that has one sign; None for one of both signs, of one value, or of integers."""
    if not tensor.dtype.is_floating_point or not tensor.numel():
        return None
    wide = tensor.to(torch.float64)
    low, high = float(wide.min()), float(wide.max())
    if low < 0 < high or (low == high == 0):
        return None
    return Range(sign=1 if high > 0 else -1, largest=max(abs(low), abs(high)))


def _is_offsets(tensor: Tensor) -> bool:
    """Whether integers ascend from 0, as the ends of packed sequences do."""
    if tensor.dtype not in (torch.int32, torch.int64) or tensor.dim() != 1 or len(tensor) < 2:
        return False
    return int(tensor[0]) == 0 and bool((tensor.diff() >= 0).all()) and int(tensor[-1]) > 0


def _exponent(tensor: Tensor) -> int:
    """The binade of a tensor's root mean square."""
    wide = tensor.to(torch.float64)
    rms = float(wide.square().mean().sqrt()) if wide.numel() else 1.0
    return max(-60, min(60, round(math.log2(rms)))) if 0 < rms < math.inf else 0


def same_bits(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two calls gave the same outputs to the last bit."""
    return one.keys() == other.keys() and all(
        one[name].shape == other[name].shape
        and one[name].dtype == other[name].dtype
        and torch.equal(bits(one[name]), bits(other[name]))
        for name in one
    )


def vary(case: AroundCase, **changes: Any) -> AroundCase:
    """The same case with some of its fields exchanged."""
    made: Any = case  # whose fields no type checker sees
    changed: AroundCase = dataclasses.replace(made, **changes)
    return changed


def with_layout(case: AroundCase, number: int) -> AroundCase:
    """The same case launched in that layout."""
    return vary(case, launch=dataclasses.replace(case.launch, layout=number))
