"""The block-scaled linear for sm_90 with warps that specialise, in Gluon: `multiply` to the bit, and faster.

A program takes tile after tile of 128 x 128. One warp reads by TMA into a ring of stages; two warp groups
multiply 64 rows each, so that either promotes while the tensor core works for the other. TMA writes a tile
while the next one begins. How an element is summed is said in `kernels.fp8_gemm.block_scaled_linear`.
"""

from __future__ import annotations

import torch
import triton
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
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bitproof.kernels.fp8_gemm.arguments import describable, output_type, require_linear

# Gluon renamed both after triton 3.6.
_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global

SCALED = gl.constexpr(128)
HEIGHT = 64  # rows that one warp group multiplies
BLOCK_N = 128
STAGES = 4
TALL = 16  # M tiles that take each N tile in turn


@gluon.jit
def _place(tile, rows, columns, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, TALL: gl.constexpr):
    """First row and first column of a tile, in the order of `tiles.find_tile`."""
    m_tiles = gl.cdiv(rows, BLOCK_M)
    n_tiles = gl.cdiv(columns, BLOCK_N)
    stripe = tile // (TALL * n_tiles)
    height = gl.minimum(m_tiles - stripe * TALL, TALL)
    place = tile % (TALL * n_tiles)
    return (stripe * TALL + place % height) * BLOCK_M, place // height * BLOCK_N


@gluon.jit
def _next(stage, phase, STAGES: gl.constexpr):
    """The stage after this one, and the parity of its barriers, which changes once around the ring."""
    last = stage == STAGES - 1
    return gl.where(last, 0, stage + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def _read(
    a,
    b,
    a_parts,
    b_parts,
    ready,
    free,
    rows,
    columns,
    depth,
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
        for block in range(gl.cdiv(depth, SCALED)):
            k = block * SCALED
            arrived = ready.index(stage)
            mbarrier.wait(free.index(stage), phase)
            mbarrier.expect(arrived, (2 * HEIGHT + BLOCK_N) * SCALED)
            _load(b, [column, k], arrived, b_parts.index(stage))
            for part in gl.static_range(2):
                to = a_parts.index(stage * 2 + part)
                _load(a, [row + part * HEIGHT, k], arrived, to)
            stage, phase = _next(stage, phase, STAGES)


@gluon.jit
def _promote(acc, product, scale):
    return gl.fma(product, gl.expand_dims(scale, 1).broadcast_to(product.shape), acc)


@gluon.jit
def _multiply(
    a_parts,
    b_parts,
    y_part,
    ready,
    free,
    a_scale_ptr,
    b_scale_ptr,
    y,
    rows,
    columns,
    depth,
    a_scale_row,
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
    row = WHO * HEIGHT + gl.arange(0, HEIGHT, layout=gl.SliceLayout(1, SUM))
    first, column = _place(gl.program_id(0), rows, columns, 2 * HEIGHT, BLOCK_N, TALL)
    place = a_scale_ptr + (first + row).to(gl.int64) * a_scale_row
    weights = b_scale_ptr + (column // SCALED).to(gl.int64) * per_row
    weight = gl.load(weights)
    scale = gl.load(place, mask=first + row < rows, other=0.0)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        # The scales of the next tile are on their way before this one begins.
        after = gl.minimum(tile + gl.num_programs(0), tiles - 1)
        next_first, next_column = _place(after, rows, columns, 2 * HEIGHT, BLOCK_N, TALL)
        next_place = a_scale_ptr + (next_first + row).to(gl.int64) * a_scale_row
        next_weights = b_scale_ptr + (next_column // SCALED).to(gl.int64) * per_row
        next_weight = gl.load(next_weights)
        next_scale = gl.load(next_place, mask=next_first + row < rows, other=0.0)
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
            product = warpgroup_mma(left, right, zeros, use_acc=False, is_async=True)
            product = warpgroup_mma_wait(0, deps=(product,))
            mbarrier.arrive(free.index(stage))
            acc = _promote(acc, product, both)
            stage, phase = _next(stage, phase, STAGES)
        tma.store_wait(0)
        y_part.store(acc.to(y.dtype))
        fence_async_shared()
        _store(y, [first + WHO * HEIGHT, column], y_part)
        first, column, place, weights = next_first, next_column, next_place, next_weights
        scale, weight = next_scale, next_weight
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["rows", "a_scale_block"])
def _multiply_specialised(
    a,
    a_scale_ptr,
    b,
    b_scale_ptr,
    y,
    rows,
    columns,
    depth,
    a_scale_row,
    a_scale_block,
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
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=2)
    fence_async_shared()
    # fmt: off
    gl.warp_specialize([
        (_multiply, (a_parts, b_parts, upper, ready, free, a_scale_ptr, b_scale_ptr, y, rows, columns,
                     depth, a_scale_row, a_scale_block, 0, HEIGHT, BLOCK_N, TALL, STAGES)),
        (_multiply, (a_parts, b_parts, lower, ready, free, a_scale_ptr, b_scale_ptr, y, rows, columns,
                     depth, a_scale_row, a_scale_block, 1, HEIGHT, BLOCK_N, TALL, STAGES)),
        (_read, (a, b, a_parts, b_parts, ready, free, rows, columns, depth,
                 HEIGHT, BLOCK_N, TALL, STAGES)),
    ], [4, 1], [240, 24])
    # fmt: on


def multiply_specialised(
    a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, *, out: str = "bf16"
) -> Tensor:
    """a [M, K] times b [N, K] transposed -> y [M, N] in `out` ("bf16", "fp16"), on a card of sm_90.

    As `block_scaled_linear.multiply` with scales in fp32, for K from 1 on and rows that TMA can read and
    write: a and b begin at a multiple of 16 bytes, as do their rows, and 8 divides N.
    ValueError: operands that do not fit together, that TMA cannot take, or another card.
    """
    require_linear(a, a_scale, b, b_scale, (torch.float32,))
    (m, k), n = a.shape, b.shape[0]
    dtype = output_type(out)
    if dtype.itemsize != 2:
        raise ValueError(f"specialised warps write bf16 or fp16, out is {out!r}: use multiply")
    if k < 1 or n % 8 or not (describable(a) and describable(b)):
        raise ValueError(
            f"TMA cannot take K = {k}, N = {n} with rows {a.stride(0)} and {b.stride(0)} apart: use multiply"
        )
    if a.device.type != "cuda" or torch.cuda.get_device_capability(a.device) != (9, 0):
        raise ValueError(f"specialised warps are for sm_90, a is on {a.device}: use multiply")
    y = torch.empty((m, n), dtype=dtype, device=a.device)
    if not y.numel():
        return y
    tiles = triton.cdiv(m, 2 * HEIGHT) * triton.cdiv(n, BLOCK_N)
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    _multiply_specialised[(min(tiles, processors),)](
        _describe(a, [HEIGHT, SCALED.value], gl.float8e4nv),
        a_scale,
        _describe(b, [BLOCK_N, SCALED.value], gl.float8e4nv),
        b_scale,
        _describe(y, [HEIGHT, BLOCK_N], gl.bfloat16 if out == "bf16" else gl.float16),
        m,
        n,
        k,
        *a_scale.stride(),
        HEIGHT=HEIGHT,
        BLOCK_N=BLOCK_N,
        TALL=TALL,
        STAGES=STAGES,
        num_warps=4,
    )
    return y


def _describe(matrix: Tensor, shape: list[int], dtype: gl.dtype) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for(shape, dtype)
    return TensorDescriptor.from_tensor(matrix, shape, layout)
