"""The products of a mixture of experts: each block of routes with the weights of its expert.

Rows of the left operand are gathered by the alignment table, so that tokens are neither copied nor padded in
memory; padding rows of a block read nothing and write nothing. See `kernels.fp8_gemm.block_scaled_linear` for
how an element is summed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from bitproof.kernels.fp8_gemm.align_tokens import Alignment
from bitproof.kernels.fp8_gemm.arguments import Tiling, describable
from bitproof.kernels.fp8_gemm.tiles import SCALED, block_product, promote


@triton.jit
def _weights(source, first, block, depth, HEIGHT: tl.constexpr, DESCRIBED: tl.constexpr):
    """K block `block` of HEIGHT rows of all experts' weights from row `first` on; rows are whole blocks."""
    if DESCRIBED:
        values = source.load([first, block * SCALED])
    else:
        row = first + tl.arange(0, HEIGHT)
        place = row.to(tl.int64)[:, None] * depth + block * SCALED + tl.arange(0, SCALED)
        values = tl.load(source + place)
    return values


@triton.jit(do_not_specialize=["routes", "m_blocks"])
def _multiply_blocks(
    a_ptr,
    a_scale_ptr,
    b,
    b_scale_ptr,
    y_ptr,
    weight_ptr,
    routes_ptr,
    experts_ptr,
    routes,
    m_blocks,
    columns,
    depth,
    TOP_K: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DECODED: tl.constexpr,
    DESCRIBED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program a tile; blocks of one N tile follow one another: those of an expert share weights."""
    number, n_tile = tl.program_id(0) % m_blocks, tl.program_id(0) // m_blocks
    expert = tl.load(experts_ptr + number)
    if expert >= 0:
        route = tl.load(routes_ptr + number * BLOCK_M + tl.arange(0, BLOCK_M))
        inside = route < routes
        source = (route // TOP_K).to(tl.int64)
        per_row = depth // SCALED
        first_column = n_tile * BLOCK_N
        a_place = a_ptr + source[:, None] * depth + tl.arange(0, SCALED)
        a_scale_place = a_scale_ptr + source * per_row
        scale_row = expert.to(tl.int64) * (columns // SCALED) + first_column // SCALED
        b_scale_place = b_scale_ptr + scale_row * per_row
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        # Scales come one K block ahead: whoever waits for them keeps the tensor core waiting.
        b_scale = tl.load(b_scale_place)
        a_scale = tl.load(a_scale_place, mask=inside, other=0.0)
        for block in range(per_row):
            more = block + 1 < per_row
            both = a_scale * b_scale
            b_scale = tl.load(b_scale_place + block + 1, mask=more, other=0.0)
            a_scale = tl.load(a_scale_place + block + 1, mask=inside & more, other=0.0)
            left = tl.load(a_place + block * SCALED, mask=inside[:, None], other=0.0)
            right = _weights(b, expert * columns + first_column, block, depth, BLOCK_N, DESCRIBED)
            acc = promote(acc, block_product(left, right, DECODED), both)
        if WEIGHTED:
            weight = tl.load(weight_ptr + route, mask=inside, other=0.0)
            acc = acc * weight[:, None]
        column = first_column + tl.arange(0, BLOCK_N)
        place = y_ptr + route.to(tl.int64)[:, None] * columns + column
        tl.store(place, acc.to(y_ptr.dtype.element_ty), mask=inside[:, None])


def multiply_by_expert(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    alignment: Alignment,
    *,
    routes: int,
    top_k: int,
    weights: Tensor | None = None,
    decoded: bool = False,
    tiling: Tiling,
) -> Tensor:
    """Row r of y [routes, N] bf16 is row r // top_k of a times the weights of route r's expert, transposed.

    a [rows, K] e4m3 with a_scale [rows, K / 128] fp32, b [E, N, K] e4m3 with b_scale [E, N / 128, K / 128]
    fp32, all contiguous, N and K multiples of 128. The blocks of `alignment` have `tiling.block_m` rows. Each
    row is multiplied by its route's number in weights [routes] fp32, if there are any, before it is
    rounded. Rows of routes that nobody owns are not written.
    """
    experts, n, k = b.shape
    y = torch.empty((routes, n), dtype=torch.bfloat16, device=a.device)
    m_blocks = alignment.experts.numel()
    flat = b.view(experts * n, k)
    described = describable(flat)
    right = TensorDescriptor.from_tensor(flat, [tiling.block_n, SCALED.value]) if described else b
    if m_blocks:
        _multiply_blocks[(m_blocks * triton.cdiv(n, tiling.block_n),)](
            a,
            a_scale,
            right,
            b_scale,
            y,
            weights,
            alignment.routes,
            alignment.experts,
            routes,
            m_blocks,
            n,
            k,
            TOP_K=top_k,
            WEIGHTED=weights is not None,
            DECODED=decoded,
            DESCRIBED=described,
            BLOCK_M=tiling.block_m,
            BLOCK_N=tiling.block_n,
            num_warps=tiling.num_warps,
            num_stages=tiling.num_stages,
        )
    return y
