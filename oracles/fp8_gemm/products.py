"""Block-scaled products in float64, and how far their sums on a tensor core may be off, element by element.

Native products of e4m3 on sm_90 (wgmma) go by `oracles.tensor_cores`: a step takes 32 exact products and
the accumulator, cuts each below 2^-13 of the largest, adds the cut terms exactly and cuts the sum to 14
bits. With `u` = 2^-13 times the largest of the products and the accumulator, a step loses at most 33 u
and 2^-13 of its sum. What adds in fp32, or with more bits, loses less. Products decoded to bf16 are cut
below 2^-23 of the largest of 16 products and the accumulator, and so is their sum: 18 cuts a step.

A K block of 128 is four native steps from zero. Its sum is multiplied by the rounded product of two scales
and added to the accumulator by a fused multiply-add, so that each block adds two fp32 roundings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from bitproof.oracles.estimates import TINY, UNIT, Estimate, around, exactly, gamma, round_estimate
from bitproof.oracles.formats import BF16, E8M0, FP16, FP32, Floats, decode, to_numpy

SCALED: Final = 128
_STEP: Final = 32
_CUT: Final = 2.0**-13
_DECODED_STEP: Final = 16
_DECODED_CUTS: Final = 18
_DECODED_CUT: Final = 2.0**-23
_LANES: Final = 128
# From here on rounding to nearest gives fp32's infinity.
_INFINITE: Final = 2.0**128 - 2.0**103

_FORMATS: Final = {"bf16": BF16, "fp16": FP16, "fp32": FP32}
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def linear(tensors: Mapping[str, torch.Tensor], params: Mapping[str, Any]) -> dict[str, Estimate]:
    """a [M, K] times b [N, K] transposed, both e4m3 with scales -> y [M, N] rounded to params["out"].

    a_scale [M, ceil(K / 128)] and b_scale [ceil(N / 128), ceil(K / 128)] are fp32 or e8m0 codes.
    """
    left = dequantise(tensors["a"], scale_values(tensors["a_scale"]))
    right = dequantise(tensors["b"], rows_of_blocks(tensors["b_scale"], tensors["b"].shape[0]))
    summed = multiply(exactly(left), right, decoded=bool(params["decoded"]))
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
        partly = (magnitude + lost >= _INFINITE) & (magnitude > np.abs(summed.value))
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
        np.where(np.abs(end) >= _INFINITE, np.copysign(np.inf, end), end)
        for end in (summed.low, summed.high)
    )
    return Estimate(value=summed.value, low=low, high=high)


def multiply(left: Estimate, right: Floats, *, decoded: bool) -> Estimate:
    """left [M, K] times right [N, K] transposed, scales multiplied into both, as an fp32 accumulator.

    `left` may be uncertain itself: what a kernel quantised that had only sums with errors to go by.
    """
    shape = left.shape[0], right.shape[0]
    value, error = np.zeros(shape), np.zeros(shape)
    spread = left.error
    certain = not bool((spread > 0).any())
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, left.shape[1], SCALED):
            part = slice(start, start + SCALED)
            x, w = left.value[:, part], right[:, part]
            wide = np.zeros_like(x) if certain else spread[:, part]
            found = (_decoded_block if decoded else _native_block)(x, wide, w)
            # The product of two scales is rounded, the sum with it is rounded.
            off = found.error + UNIT * (np.abs(found.value) + found.error)
            value = value + found.value
            error = error + off
            error = error + UNIT * (np.abs(value) + error)
            error = error + np.where(off > 0, TINY, 0.0)
    return around(value, error)


def _decoded_block(x: Floats, spread: Floats, w: Floats) -> Estimate:
    """One K block multiplied in bf16: x [M, k] give or take `spread`, w [N, k]."""
    steps = _DECODED_CUTS * -(-x.shape[1] // _DECODED_STEP)
    magnitude = (np.abs(x) + spread) @ np.abs(w).T
    carried = spread @ np.abs(w).T
    return around(x @ w.T, carried + gamma(steps, _DECODED_CUT) * magnitude)


def _native_block(x: Floats, spread: Floats, w: Floats) -> Estimate:
    """One K block multiplied in e4m3, step by step: x [M, k] give or take `spread`, w [N, k]."""
    shape = x.shape[0], w.shape[0]
    value, carried, lost = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    size_x, size_w = np.abs(x) + spread, np.abs(w)
    uncertain = bool((spread > 0).any())
    for start in range(0, x.shape[1], _STEP):
        part = slice(start, start + _STEP)
        magnitude = size_x[:, part] @ size_w[:, part].T
        largest = np.minimum(
            size_x[:, part].max(axis=1)[:, None] * size_w[:, part].max(axis=1), magnitude
        )
        unit = _CUT * np.maximum(largest, np.abs(value) + carried + lost)
        value = value + x[:, part] @ w[:, part].T
        if uncertain:
            carried = carried + spread[:, part] @ size_w[:, part].T
        lost = lost + (_STEP + 1) * unit
        lost = lost + _CUT * (np.abs(value) + carried + lost)
    return around(value, carried + lost)


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
