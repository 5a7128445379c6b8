"""Four-bit floats (e2m1), two to a byte, with one power-of-two scale for each 32 elements of a row.

scale = 2^e with the smallest e for which amax <= 6 * 2^e. The rounding to {0, 0.5, 1, 1.5, 2, 3, 4, 6}
is done on the bits of x / 2^e, which is exact.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.quantise.arguments import allocate_quantised, launch_groups
from bitproof.kernels.quantise.groups import largest_magnitude, tile_of_groups
from bitproof.kernels.quantise.power_of_two_scales import covering_exponent, power_of_two

LARGEST = tl.constexpr(6.0)
# 6 * 2^-126: below it the scale would leave e8m0's range of normal fp32 powers.
FLOOR = tl.constexpr(7.052966104933725e-38)
# In [2^22, 2^23) the last place of an fp32 is 0.5, e2m1's subnormal step.
MAGIC = tl.constexpr(4194304.0)


@triton.jit
def _encode(x):
    """The e2m1 codes, int32, nearest to fp32 `x` in [-6, 6]: ties to even, the sign of zero kept."""
    word = x.to(tl.int32, bitcast=True)
    magnitude = word & 0x7FFFFFFF
    # The exponent field and one bit of mantissa, 126 binades lower: 1.0 is code 2, 6.0 code 7.
    normal = ((magnitude + 0x1FFFFF + ((magnitude >> 22) & 1)) >> 22) - 252
    subnormal = (tl.abs(x) + MAGIC).to(tl.int32, bitcast=True) & 3
    code = tl.where(magnitude >= 0x3F800000, normal, subnormal)
    return code | ((word >> 28) & 8)


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
    unfit = tl.max((tl.abs(x) < float("inf")).to(tl.int32) ^ 1, axis=1) != 0
    x = tl.where(unfit[:, None], 0.0, x)
    exponent = covering_exponent(tl.maximum(largest_magnitude(x), FLOOR), LARGEST)
    code = _encode(x * power_of_two(-exponent)[:, None])
    low, high = tl.split(tl.reshape(code, [TILE, GROUP // 2, 2]))
    pair = (number % per_row * (GROUP // 2))[:, None] + tl.arange(0, GROUP // 2)[None, :]
    kept = (number < count)[:, None] & (pair < columns // 2)
    y = (low | (high << 4)).to(tl.uint8)
    tl.store(y_ptr + row[:, None] * (columns // 2) + pair, y, mask=kept)
    scale = tl.where(unfit, 255, exponent + 127).to(tl.uint8)
    tl.store(scale_ptr + number, scale, mask=number < count)


def e2m1_group(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [M, K] fp32, bf16 or fp16 -> y [M, K / 2] uint8, scale [M, ceil(K / group)] uint8 (e8m0).

    The even column is in a byte's low four bits. `group` is a power of two from 2 to 4096; K need not be a
    multiple of it, M and K may be 0. A group with a NaN or an infinity has the scale's NaN, 255, and codes 0.
    ValueError: an odd K; an x or a group that is neither.
    """
    x, group = tensors["x"], params["group"]
    if x.shape[1] % 2:
        raise ValueError(f"two e2m1 codes share a byte but K = {x.shape[1]} is odd; pad K to even")
    outputs = allocate_quantised(x, group, torch.uint8, torch.uint8, packed=2)
    launch_groups(_quantise, x, *outputs.values(), group=group, launch=params["launch"])
    return outputs
