"""Rounding at random to the neighbours in a format, in float64 arithmetic on the tensors' own device.

Monte Carlo arithmetic (D. S. Parker, 1997; random rounding as in Forsythe, 1959): a number between two of a
format becomes either, the nearer one more often, each element independently, so that no error has a bias
that the inputs' order or their likeness could cancel or add up.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bitproof.oracles import formats

# Below these numbers arithmetic on cards may give 0: in fp32, and in bf16, which is computed in fp32.
_FLUSHED = {torch.float32: 2.0**-126, torch.bfloat16: 2.0**-126}


def round_nearest(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest numbers of `dtype`, ties to even; float64, fresh memory. See `_settle` for overflow."""
    if dtype == torch.float64:
        return values.clone()
    fmt = formats.of_dtype(dtype)
    spacing = spacing_of(values, fmt)
    return _settle(torch.round(values / spacing) * spacing, values, fmt)


def round_randomly(values: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """One of the two neighbours in `dtype`, up with the chance of its nearness; float64, fresh memory.

    A subnormal of fp32 or bf16 becomes 0 half of the time. In float64 itself, which has no neighbours here,
    a number is disturbed by up to half a unit.
    """
    chance = torch.rand(
        values.shape, dtype=torch.float64, device=values.device, generator=generator
    )
    if dtype == torch.float64:
        return values * (1 + (chance - 0.5) * 2.0**-52)
    fmt = formats.of_dtype(dtype)
    rounded = _settle(
        pick_neighbour(values, fmt.mantissa_bits, fmt.minimum_exponent, chance), values, fmt
    )
    flushed = _FLUSHED.get(dtype)
    if flushed is not None:
        small = rounded.abs() < flushed
        if bool(small.any()):
            coins = torch.rand(
                values.shape, dtype=torch.float64, device=values.device, generator=generator
            )
            rounded = torch.where(small & (coins < 0.5), 0.0, rounded)
    return rounded


def pick_neighbour(values: Tensor, mantissa_bits: int, lowest: int, chance: Tensor) -> Tensor:
    """The upper neighbour where `chance`, in [0, 1), is below the distance from the lower one.

    Neighbours among numbers of so many mantissa bits, whose smallest normal exponent is `lowest`.
    """
    spacing = _spacing(values, mantissa_bits, lowest)
    steps = values / spacing
    below = steps.floor()
    return (below + (chance < steps - below)) * spacing


def spacing_of(values: Tensor, fmt: formats.Format) -> Tensor:
    """The distance between neighbours of a format at each value: float64, the subnormal step near 0."""
    return _spacing(values, fmt.mantissa_bits, fmt.minimum_exponent)


def _spacing(values: Tensor, mantissa_bits: int, lowest: int) -> Tensor:
    exponent = torch.frexp(torch.where(values.isfinite(), values, 1.0)).exponent - 1
    binade = exponent.clamp(min=lowest) - mantissa_bits
    return torch.ldexp(torch.ones_like(values), binade)


def _settle(rounded: Tensor, values: Tensor, fmt: formats.Format) -> Tensor:
    """Beyond the largest number: infinity from where rounding to nearest gives it, if the format has one.

    Other formats saturate, as torch and cards convert to them.
    """
    largest = fmt.largest
    over = rounded.abs() > largest
    if not bool(over.any()):
        return torch.where(values.isfinite(), rounded, values)
    beyond = values.abs() >= fmt.beyond
    end = torch.where(beyond, torch.inf, largest) if fmt.infinity is not None else largest
    settled = torch.where(over, torch.sign(values) * end, rounded)
    return torch.where(values.isnan(), values, settled)
