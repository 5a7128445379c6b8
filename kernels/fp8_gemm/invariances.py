"""Relations of the block-scaled products that hold bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs
from bitproof.harness.spec import Invariance, Tensors
from bitproof.kernels.fp8_gemm.align_tokens import most_blocks
from bitproof.kernels.fp8_gemm.arguments import SCALED, by_columns

_BY_EXPERT = ("w1", "w1_scale", "w2", "w2_scale")


def rows_kept(tensors: Sequence[str]) -> Invariance:
    """Some rows of `tensors`, in their order, give what they give among all. From three rows on."""

    def kept(inputs: Inputs) -> Tensor:
        first = inputs.tensors[tensors[0]]
        order = generators.permutation(inputs.seed, len(first), first.device)
        return order[: len(first) - 1 - generators.pick(inputs.seed, len(first) - 2)].sort().values

    def transform(inputs: Inputs) -> Inputs | None:
        if len(inputs.tensors[tensors[0]]) < 3:
            return None
        rows = kept(inputs)
        return inputs.replace(**{name: _take(inputs.tensors[name], rows) for name in tensors})

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {"y": _take(found["y"], kept(inputs))}

    return Invariance(name="some rows of the batch", transform=transform, relate=relate)


def scaled() -> Invariance:
    """Scales of a times 8 multiply y by 8. Applies within 2^±10, where only fp16 overflows."""

    def transform(inputs: Inputs) -> Inputs | None:
        scale = inputs.tensors["a_scale"]
        if inputs.params["out"] == "fp16":
            return None
        if scale.dtype == torch.uint8:
            plain = (scale >= 117) & (scale <= 137)
            return inputs.replace(a_scale=scale + 3) if bool(plain.all()) else None
        plain = (scale >= 2.0**-10) & (scale <= 2.0**10)
        return inputs.replace(a_scale=scale * 8.0) if bool(plain.all()) else None

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {"y": found["y"] * 8.0}

    return Invariance(name="scales of a times 8", transform=transform, relate=relate)


def other_tiles() -> Invariance:
    """Tiles of other heights give the same bits, as long as they get the same instruction.

    Heights of 16 and 32 are one such pair, 64 and 128 another: operands that are widened in registers meet
    mma.sync in another order of k than they meet wgmma.
    """

    def transform(inputs: Inputs) -> Inputs:
        height = inputs.params["block_m"] // inputs.params["parts"]
        other = {16: 32, 32: 16, 64: 128, 128: 64}[height]
        params = {**inputs.params, "block_m": other, "parts": 1}
        return dataclasses.replace(inputs, params=params, case=None)

    return Invariance(
        name="tiles of another height", transform=transform, relate=lambda found, inputs: found
    )


def decoded() -> Invariance:
    """Weights that are read by way of bf16 give the same bits: every e4m3 value is one of bf16."""

    def transform(inputs: Inputs) -> Inputs:
        params = {**inputs.params, "decoded": not inputs.params["decoded"]}
        return dataclasses.replace(inputs, params=params, case=None)

    return Invariance(
        name="weights decoded the other way",
        transform=transform,
        relate=lambda found, inputs: found,
    )


def first_columns(tensor: str, scale: str) -> Invariance:
    """The first 128 columns alone give what they give beside others. Applies to more than 128."""

    def transform(inputs: Inputs) -> Inputs | None:
        weights, scales = inputs.tensors[tensor], inputs.tensors[scale]
        if len(weights) <= SCALED:
            return None
        return inputs.replace(**{tensor: weights[:SCALED], scale: scales[:1]})

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {"y": found["y"][:, :SCALED]}

    return Invariance(name="the first columns alone", transform=transform, relate=relate)


def experts_permuted() -> Invariance:
    """Experts under other numbers, with their weights, change nothing. From two experts on."""

    def transform(inputs: Inputs) -> Inputs | None:
        weights = inputs.tensors["w1"]
        if len(weights) < 2:
            return None
        order = generators.permutation(inputs.seed, len(weights), weights.device)
        place = torch.argsort(order).to(torch.int32)
        choices = inputs.tensors["choices"]
        renamed = torch.where(choices < 0, choices, place[choices.clamp(min=0).long()])
        return inputs.replace(
            choices=renamed, **{name: _take(inputs.tensors[name], order) for name in _BY_EXPERT}
        )

    return Invariance(
        name="experts in another order", transform=transform, relate=lambda found, inputs: found
    )


def choice_elsewhere() -> Invariance:
    """One choice more of an expert that lives elsewhere adds nothing, whatever its weight is."""

    def transform(inputs: Inputs) -> Inputs:
        choices, weights = inputs.tensors["choices"], inputs.tensors["weights"]
        return inputs.replace(
            choices=torch.cat([choices, torch.full_like(choices[:, :1], -1)], 1),
            weights=torch.cat([weights, torch.full_like(weights[:, :1], 1e30)], 1),
        )

    return Invariance(
        name="one more choice of an expert elsewhere",
        transform=transform,
        relate=lambda found, inputs: found,
    )


def expert_unchosen() -> Invariance:
    """One more expert, whom no token chooses, changes no row and no block; the table may get longer."""

    def transform(inputs: Inputs) -> Inputs:
        params = {**inputs.params, "experts": inputs.params["experts"] + 1}
        return dataclasses.replace(inputs, params=params, case=None)

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        count, block = inputs.tensors["choices"].numel(), inputs.params["block"]
        more = most_blocks(count, inputs.params["experts"] + 1, block) - len(found["experts"])
        return {
            "routes": _extended(found["routes"], more * block, count),
            "experts": _extended(found["experts"], more, -1),
            "filled": found["filled"],
        }

    return Invariance(name="an expert nobody chooses", transform=transform, relate=relate)


def _extended(tensor: Tensor, more: int, value: int) -> Tensor:
    return torch.cat([tensor, tensor.new_full((more,), value)])


def resized_rows(inputs: Inputs) -> Iterable[Inputs]:
    """Other token counts of a linear: one, and next to what the compiler specialises on."""
    held = len(inputs.tensors["a"])
    for count in (1, 16, 17) if held else ():
        rows = torch.arange(count) % held
        scale = _take(inputs.tensors["a_scale"], rows)
        if inputs.tensors["a_scale"].stride(0) == 1:
            scale = by_columns(scale)
        yield inputs.replace(a=_take(inputs.tensors["a"], rows), a_scale=scale)


def _take(tensor: Tensor, rows: Tensor) -> Tensor:
    """Rows by their bits: torch does not index every type."""
    return bits(tensor)[rows.to(tensor.device)].view(tensor.dtype)
