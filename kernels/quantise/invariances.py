"""Relations of the quantisers that hold bit for bit: how scales follow their inputs, and of the KV store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs
from bitproof.harness.invariances import (
    fixed_points,
    monotone,
    negated,
    row_alone,
    rows_permuted,
    scaled,
)
from bitproof.harness.spec import Invariance, Tensors
from bitproof.kernels.quantise.arguments import CACHES

ScaleOf = Callable[[Tensor, int], Tensor]
"""The scales of 2^steps * x, from those of x and `steps`."""


def of_cast(target: str) -> tuple[Invariance, ...]:
    """Those of an elementwise conversion to `target`."""
    return (
        rows_permuted(["x"], ["y"]),
        negated(["x"], ["y"]),
        monotone("x", "y"),
        fixed_points("x", "y", target),
    )


def of_codes(scale: ScaleOf) -> tuple[Invariance, ...]:
    """Those of codes y with a scale for each group; `scale` gives the scales of 2^steps * x."""
    return (
        row_alone(["x"], ["y", "scale"]),
        rows_permuted(["x"], ["y", "scale"]),
        negated(["x"], ["y"], same=["scale"]),
        scaled("x", ["y"], {"scale": scale}),
    )


def fp32_scales(scale: Tensor, steps: int) -> Tensor:
    """The scales of 2^steps * x, fp32; a zero group keeps the floor's."""
    floor = torch.tensor(1e-10, dtype=torch.float32) / 448.0
    return torch.where(scale == floor, scale, scale * 2.0**steps)


def e8m0_scales(scale: Tensor, steps: int, *, floor: int) -> Tensor:
    """The codes of the scales of 2^steps * x; a zero group keeps the floor's, 2^floor."""
    code = scale.to(torch.int64)
    return torch.where(code == 127 + floor, code, code + steps).to(torch.uint8)


def others_skipped() -> Invariance:
    """A token stored alone leaves in its slot what it leaves there among others, and nothing elsewhere."""

    def chosen(inputs: Inputs) -> Tensor:
        indices = inputs.tensors["indices"]
        token = generators.pick(inputs.seed, len(indices))
        alone = torch.full_like(indices, -1)
        alone[token] = indices[token]
        return alone

    def transform(inputs: Inputs) -> Inputs | None:
        if len(inputs.tensors["indices"]) < 2:
            return None
        return inputs.replace(indices=chosen(inputs))

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        slots = chosen(inputs)
        slots = slots[slots >= 0]
        expected = {}
        for name in CACHES:
            pattern = bits(inputs.tensors[name]).clone()
            pattern[slots] = bits(found[name])[slots]
            expected[name] = pattern.view(found[name].dtype)
        return expected

    return Invariance(name="the other tokens skipped", transform=transform, relate=relate)


def exchanged() -> Invariance:
    """Keys given as values and values as keys exchange the caches."""

    def crossed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        other = {"k": "v", "v": "k"}
        return {other[n[0]] + n[1:]: t for n, t in tensors.items() if n[0] in other}

    def transform(inputs: Inputs) -> Inputs | None:
        return inputs.replace(**crossed(inputs.tensors))

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return crossed(found)

    return Invariance(name="keys and values exchanged", transform=transform, relate=relate)
