"""fp8 with one fp32 scale for each group of a row: activations of block-scaled linear layers.

scale = max(amax, 1e-10) / 448, y = x / scale rounded to e4m3; both divisions are IEEE, since a product
with the reciprocal lands on the other side of a rounding midpoint now and then.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.quantise.arguments import allocate_quantised, launch_groups
from bitproof.kernels.quantise.e4m3_rounding import to_e4m3
from bitproof.kernels.quantise.groups import largest_magnitude, tile_of_groups

FLOOR = tl.constexpr(1e-10)
LARGEST = tl.constexpr(448.0)


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
    amax = tl.maximum(largest_magnitude(x), FLOOR)
    scale = tl.math.div_rn(amax, LARGEST)
    y = to_e4m3(tl.math.div_rn(x, scale[:, None]))
    tl.store(y_ptr + row[:, None] * columns + column, y, mask=inside)
    tl.store(scale_ptr + number, scale, mask=number < count)


def per_token_group(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [M, K] fp32, bf16 or fp16, rows any stride apart -> y [M, K] e4m3, scale [M, ceil(K / group)] fp32.

    `group` is a power of two up to 4096; K need not be a multiple of it, M and K may be 0. The dequantised
    value is y * scale. ValueError: an x or a group that is neither.
    """
    x, group = tensors["x"], params["group"]
    outputs = allocate_quantised(x, group, torch.float8_e4m3fn, torch.float32)
    launch_groups(_quantise, x, *outputs.values(), group=group, launch=params["launch"])
    return outputs
