"""Quantising new keys and values into their slots of a cache: int8 or fp8, an fp16 scale for 32 elements.

scale = fp16(amax / MAG), and that fp16 value divides. In fp16's subnormal range, whose steps are coarse,
the scale is taken one step up where it would not cover amax, so that it is never zero. One program
handles the same blocks of K and of V.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.quantise.arguments import (
    BLOCK,
    CACHES,
    groups_per_program,
    options,
    require_dense,
    require_dense_rows,
    require_floats,
)
from bitproof.kernels.quantise.e4m3_rounding import saturate, to_e4m3
from bitproof.kernels.quantise.groups import largest_magnitude

LARGEST_FP16 = tl.constexpr(65504.0)
SMALLEST_NORMAL_FP16 = tl.constexpr(2.0**-14)
SUBNORMAL_STEP_FP16 = tl.constexpr(2.0**-24)


@triton.jit
def _scale(amax, MAG: tl.constexpr):
    """The fp16 scale of each block, as fp32: positive, and covering amax where fp16 is subnormal."""
    exact = saturate(tl.math.div_rn(amax, MAG), LARGEST_FP16)
    scale = exact.to(tl.float16).to(tl.float32)
    short = (scale < SMALLEST_NORMAL_FP16) & (scale * MAG < amax)
    scale = tl.where(short, scale + SUBNORMAL_STEP_FP16, scale)
    return tl.where(amax == 0.0, 1.0, scale)


@triton.jit
def _round_half_away(x):
    """The integer nearest to `x` in [-127, 127] as fp32, ties away from zero."""
    magnitude = tl.abs(x)
    # The integer part of |x| + 0.5 would round the sum: 0.49999997 + 0.5 is 1. By way of int32, since
    # a compiled floor takes subnormals for zero.
    whole = magnitude.to(tl.int32).to(tl.float32)
    rounded = tl.where(magnitude - whole >= 0.5, whole + 1.0, whole)
    return tl.where(x < 0.0, -rounded, rounded)


@triton.jit
def _store_blocks(source, cache, scales, inside, live, MAG: tl.constexpr, INTEGER: tl.constexpr):
    """Quantises blocks [TILE, 32] at `source` to `cache` and their scales [TILE] to `scales`."""
    x = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    scale = _scale(largest_magnitude(x), MAG)
    q = tl.math.div_rn(x, scale[:, None])
    if INTEGER:
        # int8 has no NaN: the block's scale says it.
        nan = tl.max((x != x).to(tl.int32), axis=1) != 0
        scale = tl.where(nan, float("nan"), scale)
        code = tl.where(nan[:, None], 0.0, _round_half_away(saturate(q, MAG))).to(tl.int8)
    else:
        code = to_e4m3(q)
    tl.store(cache, code, mask=inside)
    tl.store(scales, scale.to(tl.float16), mask=live)


@triton.jit
def _store(
    k_ptr,
    v_ptr,
    indices_ptr,
    k_cache_ptr,
    v_cache_ptr,
    k_scale_ptr,
    v_scale_ptr,
    k_token,
    k_head,
    v_token,
    v_head,
    heads,
    dim,
    per_head,
    count,
    MAG: tl.constexpr,
    INTEGER: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    token = number // (per_head * heads)
    head = number // per_head % heads
    block = number % per_head
    slot = tl.load(indices_ptr + token, mask=number < count, other=-1)
    live = (number < count) & (slot >= 0)
    column = (block * BLOCK)[:, None] + tl.arange(0, BLOCK)[None, :]
    inside = live[:, None] & (column < dim)
    row = slot * heads + head
    cache = row[:, None] * dim + column
    scale = row * per_head + block
    k_source = k_ptr + (token * k_token + head * k_head)[:, None] + column
    v_source = v_ptr + (token * v_token + head * v_head)[:, None] + column
    _store_blocks(k_source, k_cache_ptr + cache, k_scale_ptr + scale, inside, live, MAG, INTEGER)
    _store_blocks(v_source, v_cache_ptr + cache, v_scale_ptr + scale, inside, live, MAG, INTEGER)


def _require(k: Tensor, v: Tensor, tensors: Tensors) -> None:
    require_floats("k", k, 3)
    require_floats("v", v, 3)
    if v.shape != k.shape:
        raise ValueError(f"v must have k's shape {tuple(k.shape)}, it has {tuple(v.shape)}")
    indices = tensors["indices"]
    if indices.dtype != torch.int64 or tuple(indices.shape) != (len(k),):
        raise ValueError(f"indices must be int64 [{len(k)}], a slot for each token")
    for name in CACHES:
        cache = tensors[name]
        held = k.shape[2] if name.endswith("cache") else triton.cdiv(k.shape[2], BLOCK)
        if tuple(cache.shape[1:]) != (k.shape[1], held) or not cache.is_contiguous():
            raise ValueError(f"{name} must be dense, [slots, {k.shape[1]}, {held}]")


def kv_store(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """k, v [T, H, D] fp32, bf16 or fp16 into the slots `indices` [T] int64 of the caches, in place.

    k_cache, v_cache [S, H, D] int8 or e4m3 and k_scale, v_scale [S, H, ceil(D / 32)] fp16 are dense;
    the rows of k and v may be apart. Slots are distinct, -1 skips a token, others are not touched; T may
    be 0. Returns the four caches.
    ValueError: a k or v of another type, with another number of axes, or with a last axis that is not dense;
    v of another shape than k; indices that are not one int64 a token; caches that do not fit k's heads.
    """
    k, v, launch = tensors["k"], tensors["v"], params["launch"]
    _require(k, v, tensors)
    caches = {name: tensors[name] for name in CACHES}
    require_dense_rows(k=k, v=v)
    require_dense(indices=tensors["indices"], **caches)
    tokens, heads, dim = k.shape
    per_head = triton.cdiv(dim, BLOCK)
    count = tokens * heads * per_head
    if count:
        integer = caches["k_cache"].dtype == torch.int8
        tile = groups_per_program(launch, BLOCK)
        _store[(triton.cdiv(count, tile),)](
            k,
            v,
            tensors["indices"],
            *caches.values(),
            k.stride(0),
            k.stride(1),
            v.stride(0),
            v.stride(1),
            heads,
            dim,
            per_head,
            count,
            MAG=127.0 if integer else 448.0,
            INTEGER=integer,
            BLOCK=BLOCK,
            TILE=tile,
            **options(launch),
        )
    return caches
