"""fp8 with one given scale for the whole tensor, read on the device.

The reciprocal is taken once and multiplied: y = x * (1 / scale) rounded to e4m3, saturating. That is the
contract, so that a division here would be the error.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.quantise.arguments import WIDTH, launch_groups, require_floats
from bitproof.kernels.quantise.e4m3_rounding import to_e4m3
from bitproof.kernels.quantise.groups import tile_of_groups


@triton.jit
def _quantise(
    x_ptr,
    scale_ptr,
    y_ptr,
    x_stride,
    columns,
    count,
    per_row,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
):
    _, row, column, inside = tile_of_groups(columns, count, per_row, GROUP, TILE)
    x = tl.load(x_ptr + row[:, None] * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    inverse = tl.math.div_rn(1.0, tl.load(scale_ptr))
    y = to_e4m3(x * inverse)
    tl.store(y_ptr + row[:, None] * columns + column, y, mask=inside)


def per_tensor_static(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [M, K] fp32, bf16 or fp16, rows any stride apart; scale [1] fp32 -> y [M, K] e4m3.

    The scale is in [2^-126, 2^126]; M and K may be 0. The dequantised value is y * scale.
    ValueError: an x of another type, with another number of axes, or with a last axis that is not dense.
    """
    x = tensors["x"]
    require_floats("x", x, 2)
    y = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    launch_groups(_quantise, x, tensors["scale"], y, group=WIDTH, launch=params["launch"])
    return {"y": y}
