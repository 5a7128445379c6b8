"""Conversions of fp32, bf16 and fp16 to e4m3, e5m2, bf16 and fp16.

`cast_*` are Triton's own `.to`; `round_e4m3` rounds on the e4m3 grid in fp32 arithmetic first. All are
elementwise over a dense vector, one program for `launch.block` elements; ValueError for any other.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness.case import Launch
from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.quantise.arguments import options, require_dense, require_floats
from bitproof.kernels.quantise.e4m3_rounding import to_e4m3


@triton.jit
def _cast(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < n
    x = tl.load(x_ptr + element, mask=inside)
    y = x.to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + element, y, mask=inside)


@triton.jit
def _round(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < n
    x = tl.load(x_ptr + element, mask=inside)
    y = to_e4m3(x.to(tl.float32))
    tl.store(y_ptr + element, y, mask=inside)


def cast(tensors: Tensors, params: Params, *, to: torch.dtype) -> dict[str, Tensor]:
    """x [n] fp32, bf16 or fp16 -> y [n] in the dtype `to`, by Triton's own conversion.

    ValueError: an x of another type, with more axes, or not dense.
    """
    return _elementwise(_cast, tensors["x"], to, params["launch"])


def cast_rounded(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [n] fp32, bf16 or fp16 -> y [n] e4m3, rounded on the grid before the conversion.

    ValueError as for `cast`.
    """
    return _elementwise(_round, tensors["x"], torch.float8_e4m3fn, params["launch"])


def _elementwise(kernel: Any, x: Tensor, to: torch.dtype, launch: Launch) -> dict[str, Tensor]:
    require_floats("x", x, 1)
    require_dense(x=x)
    y = torch.empty(x.shape, dtype=to, device=x.device)
    if x.numel():
        grid = (triton.cdiv(x.numel(), launch.block),)
        kernel[grid](x, y, x.numel(), BLOCK=launch.block, **options(launch))
    return {"y": y}
