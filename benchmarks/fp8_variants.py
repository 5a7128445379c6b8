"""Other ways to write the block-scaled linear for sm_90, timed by `benchmarks/fp8_gemm.py --variants`.

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

SCALED = tl.constexpr(128)
HEIGHT = 64  # rows that one warp group multiplies
BLOCK_N = 128


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
def _promote(acc, product, scale):
    return gl.fma(product, gl.expand_dims(scale, 1).broadcast_to(product.shape), acc)


@gluon.jit
def _next(stage, phase, STAGES: gl.constexpr):
    last = stage == STAGES - 1
    return gl.where(last, 0, stage + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def _consume(
    a_parts,
    b_parts,
    y_part,
    ready,
    free,
    turns,
    a_scale_ptr,
    b_scale_ptr,
    y,
    rows,
    columns,
    depth,
    a_scale_block,
    WHO: gl.constexpr,
    ORDER: gl.constexpr,
    HEIGHT: gl.constexpr,
    BLOCK_N: gl.constexpr,
    TALL: gl.constexpr,
    STAGES: gl.constexpr,
):
    """The warp group that multiplies the upper (WHO of 0) or lower (1) half of each tile.

    ORDER 0: whenever it can; else in turns with the other one, which may begin once this one has issued its
    product (1), has it (2), or has half of it (3).
    """
    SUM: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], instr_shape=[16, BLOCK_N, 32])
    HALF: gl.constexpr = SCALED // 2
    per_row = gl.cdiv(depth, SCALED)
    tiles = gl.cdiv(rows, 2 * HEIGHT) * gl.cdiv(columns, BLOCK_N)
    stage = 0
    phase = 0
    turn = 1 - WHO
    zeros = gl.full([HEIGHT, BLOCK_N], 0.0, gl.float32, SUM)
    row = WHO * HEIGHT + gl.arange(0, HEIGHT, layout=gl.SliceLayout(1, SUM))
    first, column = _place(gl.program_id(0), rows, columns, 2 * HEIGHT, BLOCK_N, TALL)
    place = a_scale_ptr + first + row
    weights = b_scale_ptr + (column // SCALED) * per_row
    weight = gl.load(weights)
    scale = gl.load(place, mask=first + row < rows, other=0.0)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        # The scales of the next tile are on their way before this one begins.
        after = tile + gl.num_programs(0)
        more_tiles = after < tiles
        next_first, next_column = _place(after, rows, columns, 2 * HEIGHT, BLOCK_N, TALL)
        next_place = a_scale_ptr + next_first + row
        next_weights = b_scale_ptr + (next_column // SCALED) * per_row
        next_weight = gl.load(next_weights, mask=more_tiles, other=0.0)
        next_scale = gl.load(next_place, mask=(next_first + row < rows) & more_tiles, other=0.0)
        inside = first + row < rows
        acc = zeros
        for block in range(per_row):
            more = block + 1 < per_row
            both = scale * weight
            place += a_scale_block
            weight = gl.load(weights + block + 1, mask=more, other=0.0)
            scale = gl.load(place, mask=inside & more, other=0.0)
            left = a_parts.index(stage * 2 + WHO)
            right = b_parts.index(stage).permute((1, 0))
            mbarrier.wait(ready.index(stage), phase)
            if ORDER > 0:
                mbarrier.wait(turns.index(WHO), turn)
                turn ^= 1
            if ORDER == 3:
                lower, upper = left.slice(0, HALF, dim=1), left.slice(HALF, HALF, dim=1)
                product = warpgroup_mma(
                    lower, right.slice(0, HALF, dim=0), zeros, use_acc=False, is_async=True
                )
                product = warpgroup_mma(
                    upper, right.slice(HALF, HALF, dim=0), product, is_async=True
                )
                product = warpgroup_mma_wait(1, deps=(product,))
                mbarrier.arrive(turns.index(1 - WHO))
            else:
                product = warpgroup_mma(left, right, zeros, use_acc=False, is_async=True)
            if ORDER == 1:
                mbarrier.arrive(turns.index(1 - WHO))
            product = warpgroup_mma_wait(0, deps=(product,))
            if ORDER == 2:
                mbarrier.arrive(turns.index(1 - WHO))
            mbarrier.arrive(free.index(stage))
            acc = _promote(acc, product, both)
            stage, phase = _next(stage, phase, STAGES)
        tma.store_wait(0)
        y_part.store(acc.to(y.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(y, [first + WHO * HEIGHT, column], y_part)
        first, column, place, weights = next_first, next_column, next_place, next_weights
        scale, weight = next_scale, next_weight
    tma.store_wait(0)


@gluon.jit
def _multiply_specialised(
    a,
    a_scale_ptr,
    b,
    b_scale_ptr,
    y,
    rows,
    columns,
    depth,
    a_scale_block,
    ORDER: gl.constexpr,
    HEIGHT: gl.constexpr,
    BLOCK_N: gl.constexpr,
    TALL: gl.constexpr,
    STAGES: gl.constexpr,
):
    a_parts = gl.allocate_shared_memory(a.dtype, [STAGES * 2, HEIGHT, SCALED], a.layout)
    b_parts = gl.allocate_shared_memory(b.dtype, [STAGES, BLOCK_N, SCALED], b.layout)
    upper = gl.allocate_shared_memory(y.dtype, [HEIGHT, BLOCK_N], y.layout)
    lower = gl.allocate_shared_memory(y.dtype, [HEIGHT, BLOCK_N], y.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for who in gl.static_range(2):
        mbarrier.init(turns.index(who), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=2)
    fence_async_shared()
    blocks = gl.cdiv(depth, SCALED)
    # fmt: off
    gl.warp_specialize([
        (_consume, (a_parts, b_parts, upper, ready, free, turns, a_scale_ptr, b_scale_ptr, y, rows, columns,
                    depth, a_scale_block, 0, ORDER, HEIGHT, BLOCK_N, TALL, STAGES)),
        (_consume, (a_parts, b_parts, lower, ready, free, turns, a_scale_ptr, b_scale_ptr, y, rows, columns,
                    depth, a_scale_block, 1, ORDER, HEIGHT, BLOCK_N, TALL, STAGES)),
        (_produce, (a, b, a_parts, b_parts, ready, free, rows, columns, blocks,
                    HEIGHT, BLOCK_N, TALL, STAGES)),
    ], [4, 1], [240, 24])
    # fmt: on


def multiply_specialised(
    a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, *, stages: int, order: int, tall: int
) -> Tensor:
    """y [M, N] bf16 of fp8 operands that TMA can read; a_scale lies column by column, 8 divides N."""
    (m, k), n = a.shape, b.shape[0]
    y = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    tiles = triton.cdiv(m, 2 * HEIGHT) * triton.cdiv(n, BLOCK_N)
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    _multiply_specialised[(min(tiles, processors),)](
        _swizzled(a, [HEIGHT, SCALED.value], gl.float8e4nv),
        a_scale,
        _swizzled(b, [BLOCK_N, SCALED.value], gl.float8e4nv),
        b_scale,
        _swizzled(y, [HEIGHT, BLOCK_N], gl.bfloat16),
        m,
        n,
        k,
        a_scale.stride(1),
        ORDER=order,
        HEIGHT=HEIGHT,
        BLOCK_N=BLOCK_N,
        TALL=tall,
        STAGES=stages,
        num_warps=4,
    )
    return y


def _swizzled(matrix: Tensor, shape: list[int], dtype: gl.dtype) -> SwizzledDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for(shape, dtype)
    return SwizzledDescriptor.from_tensor(matrix, shape, layout)


ORDERS = ("in any order", "after the issue", "after the product", "after half the product")
VARIANTS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    f"specialised, {ORDERS[order]}, {stages} stages": partial(
        multiply_specialised, stages=stages, order=order, tall=16
    )
    for order, stages in ((0, 4), (1, 4), (3, 4), (2, 4), (1, 6), (3, 6))
}
