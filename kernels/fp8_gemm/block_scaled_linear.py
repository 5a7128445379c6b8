"""Block-scaled fp8 linear: activations per token and 128 columns, weights per 128 x 128.

    y[m, n] = sum over K blocks j of (sum over k in j of a[m, k] b[n, k]) * sa[m, j] * sb[n // 128, j]

The inner sum is one tensor-core product of 128 terms from zero; fl(sa * sb) times it is added to the fp32
accumulator by a fused multiply-add, block after block; the result is rounded once to y's type.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.fp8_gemm.arguments import (
    Tiling,
    describable,
    output_type,
    require_linear,
    tiling_of,
)
from bitproof.kernels.fp8_gemm.tiles import SCALED, block_product, find_tile, promote, scale_of


@triton.jit
def _operand(
    source, first, block, rows, depth, stride, HEIGHT: tl.constexpr, DESCRIBED: tl.constexpr
):
    """K block `block` of HEIGHT rows from `first` on: zeros where the matrix has no element."""
    if DESCRIBED:
        values = source.load([first, block * SCALED])
    else:
        row = first + tl.arange(0, HEIGHT)
        column = block * SCALED + tl.arange(0, SCALED)
        place = source + row.to(tl.int64)[:, None] * stride + column
        values = tl.load(place, mask=(row < rows)[:, None] & (column < depth), other=0.0)
    return values


@triton.jit
def _store(acc, y_ptr, first, first_column, rows, columns, HEIGHT: tl.constexpr):
    row = first + tl.arange(0, HEIGHT)
    column = first_column + tl.arange(0, acc.shape[1])
    place = y_ptr + row.to(tl.int64)[:, None] * columns + column
    inside = (row < rows)[:, None] & (column < columns)
    tl.store(place, acc.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "a_scale_block"])
def _multiply_tiles(
    a,
    a_scale_ptr,
    b,
    b_scale_ptr,
    y_ptr,
    rows,
    columns,
    depth,
    a_stride,
    b_stride,
    a_scale_row,
    a_scale_block,
    POWERS: tl.constexpr,
    DECODED: tl.constexpr,
    DESCRIBED: tl.constexpr,
    PARTS: tl.constexpr,
    TALL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program a tile. `a` and `b` are TMA descriptors if DESCRIBED, else pointers."""
    HEIGHT: tl.constexpr = BLOCK_M // PARTS
    m_tile, n_tile = find_tile(rows, columns, BLOCK_M, BLOCK_N, TALL)
    first, first_column = m_tile * BLOCK_M, n_tile * BLOCK_N
    per_row = tl.cdiv(depth, SCALED)
    b_scale_ptr += (first_column // SCALED).to(tl.int64) * per_row
    row = first + tl.arange(0, HEIGHT)
    upper_place = a_scale_ptr + row.to(tl.int64) * a_scale_row
    lower_place = a_scale_ptr + (row + HEIGHT).to(tl.int64) * a_scale_row
    upper_mask, lower_mask = row < rows, row + HEIGHT < rows
    upper = tl.zeros((HEIGHT, BLOCK_N), tl.float32)
    lower = upper
    # Scales come one K block ahead: whoever waits for them keeps the tensor core waiting.
    some = per_row > 0
    b_scale = tl.load(b_scale_ptr, mask=some, other=0)
    scale = tl.load(upper_place, mask=upper_mask & some, other=0)
    lower_scale = scale
    if PARTS == 2:
        lower_scale = tl.load(lower_place, mask=lower_mask & some, other=0)
    for block in range(per_row):
        more = block + 1 < per_row
        weight = scale_of(b_scale, POWERS)
        both = scale_of(scale, POWERS) * weight
        upper_place += a_scale_block
        b_scale = tl.load(b_scale_ptr + block + 1, mask=more, other=0)
        scale = tl.load(upper_place, mask=upper_mask & more, other=0)
        if PARTS == 2:
            lower_both = scale_of(lower_scale, POWERS) * weight
            lower_place += a_scale_block
            lower_scale = tl.load(lower_place, mask=lower_mask & more, other=0)
        right = _operand(b, first_column, block, columns, depth, b_stride, BLOCK_N, DESCRIBED)
        left = _operand(a, first, block, rows, depth, a_stride, HEIGHT, DESCRIBED)
        upper = promote(upper, block_product(left, right, DECODED), both)
        if PARTS == 2:
            other = _operand(a, first + HEIGHT, block, rows, depth, a_stride, HEIGHT, DESCRIBED)
            lower = promote(lower, block_product(other, right, DECODED), lower_both)
    _store(upper, y_ptr, first, first_column, rows, columns, HEIGHT)
    if PARTS == 2:
        _store(lower, y_ptr, first + HEIGHT, first_column, rows, columns, HEIGHT)


def multiply(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    *,
    out: str = "bf16",
    decoded: bool = False,
    tiling: Tiling | None = None,
) -> Tensor:
    """a [M, K] times b [N, K] transposed -> y [M, N] in `out` ("bf16", "fp16", "fp32").

    a and b are e4m3 with rows any stride apart; a_scale [M, ceil(K / 128)], any strides, and b_scale
    [ceil(N / 128), ceil(K / 128)], contiguous, are both fp32 or both e8m0 codes in uint8. Products of two
    scales have to be normal numbers of fp32. M and K may be 0, N and K need not be multiples of 128. M adds
    no compiled variant, but strides do: let a single row keep those of more (`.contiguous()` does not).
    `decoded` multiplies in bf16. ValueError: operands that do not fit together.
    """
    tiling = tiling or Tiling()
    require_linear(a, a_scale, b, b_scale, (torch.float32, torch.uint8))
    (m, k), n = a.shape, b.shape[0]
    y = torch.empty((m, n), dtype=output_type(out), device=a.device)
    if not y.numel():
        return y
    height = tiling.block_m // tiling.parts
    described = k > 0 and describable(a) and describable(b)
    left, right = (
        (TensorDescriptor.from_tensor(a, [height, SCALED.value]), _describe(b, tiling.block_n))
        if described
        else (a, b)
    )
    grid = (triton.cdiv(m, tiling.block_m) * triton.cdiv(n, tiling.block_n),)
    _multiply_tiles[grid](
        left,
        a_scale,
        right,
        b_scale,
        y,
        m,
        n,
        k,
        a.stride(0),
        b.stride(0),
        *a_scale.stride(),
        POWERS=a_scale.dtype == torch.uint8,
        DECODED=decoded,
        DESCRIBED=described,
        PARTS=tiling.parts,
        TALL=tiling.tall,
        BLOCK_M=tiling.block_m,
        BLOCK_N=tiling.block_n,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    )
    return y


def _describe(matrix: Tensor, height: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(matrix, [height, SCALED.value])


def block_scaled_linear(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`multiply` on a, a_scale, b and b_scale of a case -> y."""
    names = ("a", "a_scale", "b", "b_scale")
    y = multiply(
        *(tensors[name] for name in names),
        out=params["out"],
        decoded=params["decoded"],
        tiling=tiling_of(params),
    )
    return {"y": y}
