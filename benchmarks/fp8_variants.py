"""Other ways to write the block-scaled linear for sm_90, timed by `benchmarks/fp8_gemm.py --variants`.

`pairs`        two K blocks in each turn of the loop: one product still runs when the turn ends
`specialised`  Gluon: one warp reads by TMA, two warp groups multiply 64 rows each, programs persist

Each gives the bits that `kernels.fp8_gemm.block_scaled_linear` gives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as SwizzledDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from bitproof.kernels.fp8_gemm.tiles import find_tile, promote

SCALED = tl.constexpr(128)
HEIGHT = 64  # rows that one warp group multiplies
BLOCK_N = 128


@triton.jit
def _multiply_pairs(
    a,
    a_scale_ptr,
    b,
    b_scale_ptr,
    y_ptr,
    rows,
    columns,
    depth,
    a_scale_block,
    TALL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    m_tile, n_tile = find_tile(rows, columns, BLOCK_M, BLOCK_N, TALL)
    first, first_column = m_tile * BLOCK_M, n_tile * BLOCK_N
    per_row = tl.cdiv(depth, SCALED)
    b_scale_ptr += (first_column // SCALED).to(tl.int64) * per_row
    row = first + tl.arange(0, BLOCK_M)
    place = a_scale_ptr + row
    inside = row < rows
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    odd = acc
    odd_scale = tl.zeros((BLOCK_M,), tl.float32)
    for block in range(0, per_row, 2):
        more = block + 1 < per_row
        scale = tl.load(place, mask=inside, other=0) * tl.load(b_scale_ptr + block)
        weight = tl.load(b_scale_ptr + block + 1, mask=more, other=0)
        next_scale = tl.load(place + a_scale_block, mask=inside & more, other=0) * weight
        place += 2 * a_scale_block
        k = block * SCALED
        even = tl.dot(a.load([first, k]), b.load([first_column, k]).T)
        acc = promote(acc, odd, odd_scale)
        k += SCALED  # past the end of K TMA reads zeros, and their scale is zero
        odd = tl.dot(a.load([first, k]), b.load([first_column, k]).T)
        acc = promote(acc, even, scale)
        odd_scale = next_scale
    acc = promote(acc, odd, odd_scale)
    column = first_column + tl.arange(0, BLOCK_N)
    target = y_ptr + row.to(tl.int64)[:, None] * columns + column
    inside = (row < rows)[:, None] & (column < columns)
    tl.store(target, acc.to(y_ptr.dtype.element_ty), mask=inside)


@gluon.jit
def _place(tile, rows, columns, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, TALL: gl.constexpr):
    """First row and first column of a tile: `tiles.find_tile` for programs that take several."""
    m_tiles = gl.cdiv(rows, BLOCK_M)
    n_tiles = gl.cdiv(columns, BLOCK_N)
    stripe = tile // (TALL * n_tiles)
    height = gl.minimum(m_tiles - stripe * TALL, TALL)
    place = tile % (TALL * n_tiles)
    return (stripe * TALL + place % height) * BLOCK_M, place // height * BLOCK_N


@gluon.jit
def _produce(
    a,
    b,
    a_parts,
    b_parts,
    ready,
    free,
    rows,
    columns,
    blocks,
    HEIGHT: gl.constexpr,
    BLOCK_N: gl.constexpr,
    TALL: gl.constexpr,
    STAGES: gl.constexpr,
):
    """The warp that reads: each K block of each tile into the next free stage."""
    tiles = gl.cdiv(rows, 2 * HEIGHT) * gl.cdiv(columns, BLOCK_N)
    stage = 0
    phase = 1
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = _place(tile, rows, columns, 2 * HEIGHT, BLOCK_N, TALL)
        for block in range(blocks):
            k = block * SCALED
            arrived = ready.index(stage)
            mbarrier.wait(free.index(stage), phase)
            mbarrier.expect(arrived, (2 * HEIGHT + BLOCK_N) * SCALED)
            tma.async_copy_global_to_shared(b, [column, k], arrived, b_parts.index(stage))
            for part in gl.static_range(2):
                to = a_parts.index(stage * 2 + part)
                tma.async_copy_global_to_shared(a, [row + part * HEIGHT, k], arrived, to)
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1


@gluon.jit
def _store(acc, y_ptr, first, first_column, rows, columns):
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    row = first + gl.arange(0, acc.shape[0], layout=gl.SliceLayout(1, LAYOUT))
    column = first_column + gl.arange(0, acc.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    value = gl.convert_layout(acc.to(y_ptr.dtype.element_ty), LAYOUT)
    place = y_ptr + (row.to(gl.int64) * columns)[:, None] + column[None, :]
    gl.store(place, value, mask=(row < rows)[:, None] & (column < columns)[None, :])


@gluon.jit
def _promote(acc, product, scale):
    return gl.fma(product, gl.expand_dims(scale, 1).broadcast_to(product.shape), acc)


@gluon.jit
def _consume(
    a_parts,
    b_parts,
    ready,
    free,
    a_scale_ptr,
    b_scale_ptr,
    y_ptr,
    rows,
    columns,
    depth,
    a_scale_block,
    WHO: gl.constexpr,
    HEIGHT: gl.constexpr,
    BLOCK_N: gl.constexpr,
    TALL: gl.constexpr,
    STAGES: gl.constexpr,
):
    """The warp group that multiplies the upper (WHO of 0) or lower (1) half of each tile."""
    SUM: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], instr_shape=[16, BLOCK_N, 32])
    per_row = gl.cdiv(depth, SCALED)
    tiles = gl.cdiv(rows, 2 * HEIGHT) * gl.cdiv(columns, BLOCK_N)
    stage = 0
    phase = 0
    zeros = gl.full([HEIGHT, BLOCK_N], 0.0, gl.float32, SUM)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        first, column = _place(tile, rows, columns, 2 * HEIGHT, BLOCK_N, TALL)
        first += WHO * HEIGHT
        row = first + gl.arange(0, HEIGHT, layout=gl.SliceLayout(1, SUM))
        inside = row < rows
        weights = b_scale_ptr + (column // SCALED) * per_row
        place = a_scale_ptr + row
        acc = zeros
        weight = gl.load(weights)
        scale = gl.load(place, mask=inside, other=0.0)
        for block in range(per_row):
            more = block + 1 < per_row
            both = scale * weight
            place += a_scale_block
            weight = gl.load(weights + block + 1, mask=more, other=0.0)
            scale = gl.load(place, mask=inside & more, other=0.0)
            mbarrier.wait(ready.index(stage), phase)
            left = a_parts.index(stage * 2 + WHO)
            right = b_parts.index(stage).permute((1, 0))
            product = warpgroup_mma(left, right, zeros, use_acc=False, is_async=True)
            product = warpgroup_mma_wait(0, deps=(product,))
            mbarrier.arrive(free.index(stage))
            acc = _promote(acc, product, both)
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1
        _store(acc, y_ptr, first, column, rows, columns)


@gluon.jit
def _multiply_specialised(
    a,
    a_scale_ptr,
    b,
    b_scale_ptr,
    y_ptr,
    rows,
    columns,
    depth,
    a_scale_block,
    HEIGHT: gl.constexpr,
    BLOCK_N: gl.constexpr,
    TALL: gl.constexpr,
    STAGES: gl.constexpr,
):
    a_parts = gl.allocate_shared_memory(a.dtype, [STAGES * 2, HEIGHT, SCALED], a.layout)
    b_parts = gl.allocate_shared_memory(b.dtype, [STAGES, BLOCK_N, SCALED], b.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=2)
    fence_async_shared()
    blocks = gl.cdiv(depth, SCALED)
    # fmt: off
    gl.warp_specialize([
        (_consume, (a_parts, b_parts, ready, free, a_scale_ptr, b_scale_ptr, y_ptr, rows, columns,
                    depth, a_scale_block, 0, HEIGHT, BLOCK_N, TALL, STAGES)),
        (_consume, (a_parts, b_parts, ready, free, a_scale_ptr, b_scale_ptr, y_ptr, rows, columns,
                    depth, a_scale_block, 1, HEIGHT, BLOCK_N, TALL, STAGES)),
        (_produce, (a, b, a_parts, b_parts, ready, free, rows, columns, blocks,
                    HEIGHT, BLOCK_N, TALL, STAGES)),
    ], [4, 1], [240, 24])
    # fmt: on


def multiply_pairs(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    *,
    block_m: int,
    num_warps: int,
    num_stages: int,
    tall: int,
) -> Tensor:
    """y [M, N] bf16 of fp8 operands that TMA can read; a_scale lies column by column."""
    (m, k), n = a.shape, b.shape[0]
    y = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    _multiply_pairs[(triton.cdiv(m, block_m) * triton.cdiv(n, BLOCK_N),)](
        TensorDescriptor.from_tensor(a, [block_m, SCALED.value]),
        a_scale,
        TensorDescriptor.from_tensor(b, [BLOCK_N, SCALED.value]),
        b_scale,
        y,
        m,
        n,
        k,
        a_scale.stride(1),
        TALL=tall,
        BLOCK_M=block_m,
        BLOCK_N=BLOCK_N,
        num_warps=num_warps,
        num_stages=num_stages,
    )
    return y


def multiply_specialised(
    a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, *, stages: int, tall: int
) -> Tensor:
    """y [M, N] bf16 of fp8 operands that TMA can read; a_scale lies column by column."""
    (m, k), n = a.shape, b.shape[0]
    y = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    tiles = triton.cdiv(m, 2 * HEIGHT) * triton.cdiv(n, BLOCK_N)
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    _multiply_specialised[(min(tiles, processors),)](
        _swizzled(a, HEIGHT),
        a_scale,
        _swizzled(b, BLOCK_N),
        b_scale,
        y,
        m,
        n,
        k,
        a_scale.stride(1),
        HEIGHT=HEIGHT,
        BLOCK_N=BLOCK_N,
        TALL=tall,
        STAGES=stages,
        num_warps=4,
    )
    return y


def _swizzled(matrix: Tensor, height: int) -> SwizzledDescriptor:
    shape = [height, SCALED.value]
    layout = gl.NVMMASharedLayout.get_default_for(shape, gl.float8e4nv)
    return SwizzledDescriptor.from_tensor(matrix, shape, layout)


VARIANTS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    **{
        f"pairs of {block_m} x 128, {warps} warps, {stages} stages, {tall} tall": partial(
            multiply_pairs, block_m=block_m, num_warps=warps, num_stages=stages, tall=tall
        )
        for block_m, warps, stages, tall in (
            (128, 8, 3, 16),
            (128, 8, 3, 8),
            (64, 4, 2, 32),
            (64, 4, 2, 16),
        )
    },
    **{
        f"specialised, {stages} stages, {tall} tall": partial(
            multiply_specialised, stages=stages, tall=tall
        )
        for stages, tall in ((6, 8), (6, 16), (6, 32), (5, 16), (4, 16))
    },
}
