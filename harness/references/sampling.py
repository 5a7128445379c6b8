"""What an operation may lose in the precision that a reference declares: one sample of it.

The model is that of a right kernel, which need not be the reference's own sequence of operations:

* every result is rounded at random to a neighbour in its declared type; a stored value is rounded once and
  is the same wherever it is used again, in the backward pass too;
* sums and products of matrices are accumulated in fp32 in any order: their error has the deviation
  u · sqrt(n/3) · Σ|terms| of n roundings of partial sums that grow evenly, u = 2^-24 (N. Higham, Accuracy
  and Stability of Numerical Algorithms, chapters 3 and 4, with independent roundings);
* functions that cards approximate are right to two units of fp32, and the argument of an exponential or a
  logarithm has been rounded once in fp32, because kernels multiply it by log2(e) first;
* a product of fp32 may be fused with the sum that follows, and is then not rounded;
* a softmax or a normalisation is the sequence of operations that torch decomposes it into.

Where products of matrices read narrower operands than are declared, as tensor cores do, those are rounded on
their way in.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch._decomp import get_decompositions

from bitproof.harness.references.lifting import leaves, map_leaves, name_of
from bitproof.harness.references.operations import (
    APPROXIMATED,
    DECOMPOSED,
    FROM_ONE,
    PRODUCTS,
    SCALED_ARGUMENT,
    STORED_SUMS,
    SUMS,
)
from bitproof.harness.references.rounding import pick_neighbour, round_nearest, round_randomly
from bitproof.oracles import formats

# What products of matrices read: what is declared, or operands of so many bits whatever is.
Operands = Literal["declared", "tf32", "bf16", "fp16"]
_NARROW = {"tf32": (10, -126), "bf16": (7, -126), "fp16": (10, -14)}  # mantissa, least exponent

_UNIT = 2.0**-24
# Relative to the result, uniform: two units in the last place of fp32.
_APPROXIMATION = 2 * 2.0**-23
_ARGUMENT = 2.0**-23


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    packets = [
        getattr(torch.ops.aten, name) for name in DECOMPOSED if hasattr(torch.ops.aten, name)
    ]
    found: dict[Any, Callable[..., Any]] = dict(get_decompositions(packets))
    return {**found, torch.ops.aten.native_layer_norm.default: _normalise_layer}


def _normalise_layer(
    x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A layer normalisation whose mean and deviation stay in fp32, where torch's own on a CPU rounds them."""
    axes = list(range(x.dim() - len(shape), x.dim()))
    wide = x if x.dtype == torch.float64 else x.to(torch.float32)
    mean = wide.mean(axes, keepdim=True)
    centred = wide - mean
    scale = torch.rsqrt(centred.square().mean(axes, keepdim=True) + eps)
    y = centred * scale
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return y.to(x.dtype), mean, scale


@dataclass(frozen=True, kw_only=True)
class Exact:
    """The oracle's arithmetic: float64, and nothing that is declared rounds."""

    rounds: bool = False

    def begin(self, func: Any, args: Any, kwargs: Any, dtype: torch.dtype) -> tuple[Any, None]:
        """The arguments as they are."""
        return args, None

    def finish(self, func: Any, noted: Any, result: Tensor, dtype: torch.dtype) -> Tensor:
        """The result itself."""
        return result

    def decomposition(self, func: Any) -> None:
        """None: every operation is exact enough in float64."""


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """The declared precision with every result rounded to nearest: errors that all elements have alike.

    Independent roundings average out over a sum. Those of equal numbers do not, and inputs of which many are
    equal are inputs too. Where `fused` is 0 or 1, every second product of fp32, from the first or from the
    second, is not rounded, as where a compiler makes it one instruction with the sum that follows: in
    a·b - c·d one product is fused and the other is rounded, so that their errors do not cancel.
    """

    fused: int | None = None
    rounds: bool = True
    _products: Iterator[int] = field(default_factory=itertools.count)

    def begin(self, func: Any, args: Any, kwargs: Any, dtype: torch.dtype) -> tuple[Any, None]:
        """The arguments as they are."""
        return args, None

    def finish(self, func: Any, noted: Any, result: Tensor, dtype: torch.dtype) -> Tensor:
        """The nearest number of the declared type, or the result itself of a product that is fused."""
        product = self.fused is not None and name_of(func) == "mul" and dtype == torch.float32
        if product and next(self._products) % 2 == self.fused:
            return result.clone()
        return _by_parts(result, dtype, round_nearest)

    def decomposition(self, func: Any) -> Callable[..., Any] | None:
        """As in the other samples, so that it rounds what they round."""
        return _decompositions().get(func)


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """One sample of Monte Carlo arithmetic, from `generator`; `operands` of products of matrices."""

    generator: torch.Generator
    operands: Operands = "declared"
    rounds: bool = True

    def begin(
        self, func: Any, args: Any, kwargs: Any, dtype: torch.dtype
    ) -> tuple[Any, Tensor | None]:
        """Arguments that were rounded on their way in, and the deviation of an accumulated result."""
        name = name_of(func)
        if name in PRODUCTS:
            if self.operands != "declared":
                args = map_leaves(self._truncate, args)
            return args, self._spread(name, args, kwargs, dtype)
        if name in SUMS and not any(leaf.is_complex() for leaf in _tensors(args)):
            return args, self._spread(name, args, kwargs, dtype)
        if name in SCALED_ARGUMENT and dtype != torch.float64 and not args[0].is_complex():
            noise = 1 + _ARGUMENT * self._uniform(args[0])
            # What writes in place has no other use for its argument.
            written = func._schema.name.endswith("_")
            disturbed = args[0].mul_(noise) if written else args[0] * noise
            return (disturbed, *args[1:]), None
        return args, None

    def finish(self, func: Any, noted: Any, result: Tensor, dtype: torch.dtype) -> Tensor:
        """The result with its evaluation's error, rounded at random to the declared type."""
        name = name_of(func)
        if noted is not None and noted.shape == result.shape:
            result.add_(noted.nan_to_num_(0.0, 0.0, 0.0) * self._uniform(result))
        if name in APPROXIMATED and not result.is_complex():
            unit = _APPROXIMATION if dtype != torch.float64 else 2.0**-52
            result.mul_(1 + unit * self._uniform(result))
            if name in FROM_ONE and dtype != torch.float64:
                result.add_(_UNIT * self._uniform(result))
        return _by_parts(result, dtype, self._round)

    def decomposition(self, func: Any) -> Callable[..., Any] | None:
        """How torch writes a compound operation in simple ones."""
        return _decompositions().get(func)

    def _round(self, part: Tensor, dtype: torch.dtype) -> Tensor:
        return round_randomly(part, dtype, self.generator)

    def _uniform(self, like: Tensor) -> Tensor:
        """Independent numbers in [-1, 1)."""
        drawn = torch.rand(
            like.shape, dtype=torch.float64, device=like.device, generator=self.generator
        )
        return drawn.mul_(2).sub_(1)

    def _truncate(self, operand: Any) -> Any:
        if not isinstance(operand, Tensor):
            return operand
        chance = torch.rand(
            operand.shape, dtype=torch.float64, device=operand.device, generator=self.generator
        )
        return pick_neighbour(operand, *_NARROW[self.operands], chance)

    def _spread(self, name: str, args: Any, kwargs: Any, dtype: torch.dtype) -> Tensor | None:
        """How far a sum of n terms deviates: √3 standard deviations, by element; None where none is known."""
        packet = getattr(torch.ops.aten, name)
        kwargs = {key: value for key, value in kwargs.items() if key != "out"}
        scale = packet(*_absolute(args), **_absolute(kwargs))
        if not isinstance(scale, Tensor):
            return None
        unit = _UNIT if dtype != torch.float64 else 2.0**-53
        if name in STORED_SUMS:
            if dtype != torch.float64:
                unit = 2.0 ** -(formats.of_dtype(dtype).mantissa_bits + 1)
            ones = map_leaves(_one, args)
            stored: Tensor = scale * (unit * packet(*ones, **kwargs).sqrt())
            return stored
        spread: Tensor = scale * (unit * math.sqrt(_count_terms(name, args, scale)))
        return spread


def _count_terms(name: str, args: Any, result: Tensor) -> float:
    """How many terms an element of the result adds up, at most."""
    if name == "convolution":
        return float(args[1][0].numel())
    if name == "cumsum":
        return float(args[0].shape[args[1]]) if args[0].dim() else 1.0
    if name in PRODUCTS:
        left = args[1] if name.startswith("add") or name == "baddbmm" else args[0]
        return float(left.shape[-1])
    return max(1.0, _tensors(args)[0].numel() / max(1, result.numel()))


def _tensors(args: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(args) if isinstance(leaf, Tensor)]


def _absolute(tree: Any) -> Any:
    def size(leaf: Any) -> Any:
        floating = isinstance(leaf, float) or (
            isinstance(leaf, Tensor) and leaf.is_floating_point()
        )
        return abs(leaf) if floating else leaf

    return map_leaves(size, tree)


def _one(leaf: Any) -> Any:
    floating = isinstance(leaf, Tensor) and leaf.is_floating_point()
    return torch.ones_like(leaf) if floating else leaf


def _by_parts(
    result: Tensor, dtype: torch.dtype, rounding: Callable[[Tensor, torch.dtype], Tensor]
) -> Tensor:
    """`rounding` of a real tensor, or of both parts of a complex one."""
    if not result.is_complex():
        return rounding(result, dtype)
    part = _PARTS[dtype]
    return torch.view_as_complex(rounding(torch.view_as_real(result).contiguous(), part))


_PARTS = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
