"""Block-scaled products in float64, and how far their sums on a tensor core may be off, element by element.

What a sum on a tensor core may lose is said in `oracles.partial_sums`. Native products of e4m3 are bounded as
the worst published instruction gives them (sm_89: 16 products a step, 14 bits; wgmma of sm_90: 32), those
decoded to bf16 alike (sm_80: 8 products a step). What adds with more bits loses less.

A K block of 128 is a sum from zero. Its sum is multiplied by the rounded product of two scales
and added to the accumulator by a fused multiply-add, so that each block adds two fp32 roundings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from bitproof.oracles import partial_sums
from bitproof.oracles.estimates import TINY, UNIT, Estimate, around, exactly, gamma, round_estimate
from bitproof.oracles.formats import BF16, E4M3, E8M0, FP16, FP32, Floats, decode, to_numpy

SCALED: Final = 128
# fp8 operands are multiplied as they are or widened to fp16, whichever the target and the tile give.
_NATIVE: Final = partial_sums.find_steps("e4m3", "fp16")
_DECODED: Final = partial_sums.find_steps("bf16")
_LANES: Final = 128

_FORMATS: Final = {"bf16": BF16, "fp16": FP16, "fp32": FP32}
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def linear(tensors: Mapping[str, torch.Tensor], params: Mapping[str, Any]) -> dict[str, Estimate]:
    """a [M, K] times b [N, K] transposed, both e4m3 with scales -> y [M, N] rounded to params["out"].

    a_scale [M, ceil(K / 128)] and b_scale [ceil(N / 128), ceil(K / 128)] are fp32 or e8m0 codes.
    """
    scales = (
        scale_values(tensors["a_scale"]),
        rows_of_blocks(tensors["b_scale"], tensors["b"].shape[0]),
    )
    left, right = (dequantise(tensors[n], one) for n, one in zip("ab", scales, strict=True))
    summed = multiply(exactly(left), right, scales, decoded=bool(params["decoded"]))
    return {"y": stored(summed, params["out"])}


def vector(tensors: Mapping[str, torch.Tensor], params: Mapping[str, Any]) -> dict[str, Estimate]:
    """x [1, K] bf16 or fp16 times b [N, K] e4m3 transposed -> y [1, N] rounded to params["out"].

    An element is exact products of x and b, each multiplied by its scale and added with one rounding, then
    sums of 128 lanes and of params["splits"] slots, in any order.
    """
    x = to_numpy(tensors["x"]).astype(np.float64)
    b = dequantise(tensors["b"], rows_of_blocks(tensors["b_scale"], tensors["b"].shape[0]))
    splits = int(params["splits"])
    each = -(-blocks(x.shape[1]) // splits)
    with np.errstate(invalid="ignore"):
        magnitude = np.abs(x) @ np.abs(b).T
        lost = gamma(each + _LANES + splits) * magnitude
        summed = around(x @ b.T, lost + np.where(magnitude > 0, x.shape[1] * TINY, 0.0))
        # Where terms of either sign may pass fp32's range, their sum is any number at all.
        partly = (magnitude + lost >= FP32.beyond) & (magnitude > np.abs(summed.value))
        summed = Estimate(
            value=summed.value,
            low=np.where(partly, -np.inf, summed.low),
            high=np.where(partly, np.inf, summed.high),
        )
    return {"y": stored(summed, params["out"])}


def dtypes(
    tensors: Mapping[str, torch.Tensor], params: Mapping[str, Any]
) -> dict[str, torch.dtype]:
    """The type of y: params["out"]."""
    return {"y": _DTYPES[params["out"]]}


def stored(summed: Estimate, out: str) -> Estimate:
    """An fp32 sum as it is stored in the format named `out`: past its largest number infinite, fp32 too."""
    if out != "fp32":
        return round_estimate(summed, _FORMATS[out])
    low, high = (
        np.where(np.abs(end) >= FP32.beyond, np.copysign(np.inf, end), end)
        for end in (summed.low, summed.high)
    )
    return Estimate(value=summed.value, low=low, high=high)


def multiply(
    left: Estimate, right: Floats, scales: tuple[Floats, Floats], *, decoded: bool
) -> Estimate:
    """left [M, K] times right [N, K] transposed, scales multiplied into both, as an fp32 accumulator.

    `left` may be uncertain itself: what a kernel quantised that had only sums with errors to go by. `scales`
    [M, ceil(K / 128)] and [N, ceil(K / 128)] are at most what was multiplied in.
    """
    shape = left.shape[0], right.shape[0]
    value, under, over = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    spread = left.error
    certain = not bool((spread > 0).any())
    steps = _DECODED if decoded else _NATIVE
    with np.errstate(invalid="ignore", over="ignore"):
        for block in range(blocks(left.shape[1])):
            part = slice(block * SCALED, (block + 1) * SCALED)
            here = scales[0][:, block], scales[1][:, block]
            x, w = left.value[:, part], right[:, part]
            if certain:
                found = _multiply_codes(x, w, here, steps)
            else:
                found = partial_sums.multiply(
                    x, w, steps, E4M3, scales=here, spread=spread[:, part]
                )
            # The product of two scales is rounded, the sum with it is rounded.
            rounded = UNIT * np.maximum(np.abs(found.low), np.abs(found.high))
            value = value + found.value
            under = under + (found.value - found.low) + rounded
            over = over + (found.high - found.value) + rounded
            rounded = UNIT * (np.abs(value) + np.maximum(under, over))
            rounded = rounded + np.where(rounded > 0, TINY, 0.0)
            under, over = under + rounded, over + rounded
        return Estimate(value=value, low=value - under, high=value + over)


def _multiply_codes(
    x: Floats, w: Floats, scales: tuple[Floats, Floats], steps: partial_sums.Steps
) -> Estimate:
    """x [M, k] times w [N, k] transposed, which are e4m3 numbers times `scales` [M] and [N]."""
    left, right = (
        np.where(np.isfinite(scale) & (scale != 0), np.abs(scale), 1.0) for scale in scales
    )
    # What is divided was multiplied exactly.
    found = partial_sums.multiply(x / left[:, None], w / right[:, None], steps, E4M3)
    both = left[:, None] * right
    return Estimate(value=found.value * both, low=found.low * both, high=found.high * both)


def dequantise(codes: torch.Tensor, scales: Floats) -> Floats:
    """Codes [rows, K] times scales [rows, ceil(K / 128)], exact in float64."""
    values = to_numpy(codes).astype(np.float64)
    return np.asarray(values * np.repeat(scales, SCALED, axis=-1)[..., : values.shape[-1]])


def rows_of_blocks(scales: torch.Tensor, rows: int) -> Floats:
    """A scale for each row and K block, from one for 128 rows: [ceil(rows / 128), B] -> [rows, B]."""
    return np.repeat(scale_values(scales), SCALED, axis=0)[:rows]


def scale_values(scales: torch.Tensor) -> Floats:
    """Scales in float64: fp32 as they are, uint8 as e8m0 codes."""
    values = to_numpy(scales)
    return decode(values, E8M0) if values.dtype == np.uint8 else values.astype(np.float64)


def blocks(count: int) -> int:
    """How many scales serve `count` elements."""
    return -(-count // SCALED)
