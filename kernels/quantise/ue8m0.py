"""fp8 with one power-of-two scale (ue8m0, a byte) for each group, and the same written back in place.

scale = 2^e with the smallest e for which max(amax, 1e-4) <= 448 * 2^e, so that x / scale is exact
and only the rounding to e4m3 loses anything.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.quantise.arguments import allocate_quantised, launch_groups
from bitproof.kernels.quantise.e4m3_rounding import round_e4m3, saturate, to_e4m3
from bitproof.kernels.quantise.groups import largest_magnitude, tile_of_groups
from bitproof.kernels.quantise.power_of_two_scales import covering_exponent, power_of_two
from bitproof.oracles import formats

FLOOR = tl.constexpr(1e-4)
LARGEST = tl.constexpr(448.0)


@triton.jit
def _scaled(x):
    """(x / 2^e, e, infinite) of groups [TILE, GROUP]: NaN throughout a group that has an infinity."""
    amax = tl.maximum(largest_magnitude(x), FLOOR)
    infinite = amax == float("inf")
    exponent = covering_exponent(amax, LARGEST)
    scaled = x * power_of_two(-exponent)[:, None]
    return tl.where(infinite[:, None], float("nan"), scaled), exponent, infinite


@triton.jit
def _quantise(
    x_ptr,
    y_ptr,
    scale_ptr,
    x_stride,
    columns,
    count,
    per_row,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
):
    number, row, column, inside = tile_of_groups(columns, count, per_row, GROUP, TILE)
    x = tl.load(x_ptr + row[:, None] * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    scaled, exponent, infinite = _scaled(x)
    tl.store(y_ptr + row[:, None] * columns + column, to_e4m3(scaled), mask=inside)
    code = tl.where(infinite, 255, exponent + 127)
    tl.store(scale_ptr + number, code.to(tl.uint8), mask=number < count)


@triton.jit
def _round_trip(
    x_ptr,
    x_stride,
    columns,
    count,
    per_row,
    LIMIT: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
):
    number, row, column, inside = tile_of_groups(columns, count, per_row, GROUP, TILE)  # noqa: RUF059
    address = x_ptr + row[:, None] * x_stride + column
    x = tl.load(address, mask=inside, other=0.0).to(tl.float32)
    scaled, exponent, _ = _scaled(x)
    value = round_e4m3(saturate(scaled, 448.0)) * power_of_two(exponent)[:, None]
    tl.store(address, saturate(value, LIMIT).to(x_ptr.dtype.element_ty), mask=inside)


def ue8m0_group(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [M, K] fp32, bf16 or fp16 -> y [M, K] e4m3, scale [M, ceil(K / group)] uint8 (e8m0).

    `group` is a power of two up to 4096; K need not be a multiple of it, M and K may be 0. A group with an
    infinity is NaN throughout and has the scale's NaN, 255. ValueError: an x or a group that is neither.
    """
    x, group = tensors["x"], params["group"]
    outputs = allocate_quantised(x, group, torch.float8_e4m3fn, torch.uint8)
    launch_groups(_quantise, x, *outputs.values(), group=group, launch=params["launch"])
    return outputs


def ue8m0_inplace(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [M, K] fp32, bf16 or fp16, rows any stride apart -> the same tensor, quantised and dequantised.

    The element y * 2^e is rounded to x's type and saturates at its largest finite value. ValueError as for
    `ue8m0_group`, and where rows share memory.
    """
    x = tensors["x"]
    if x.shape[0] > 1 and x.stride(0) < x.shape[1]:
        raise ValueError("x is written in place, but its rows share memory: pass x.contiguous()")
    largest = formats.of_dtype(x.dtype).largest
    launch_groups(_round_trip, x, group=params["group"], launch=params["launch"], LIMIT=largest)
    return {"x": x}
