"""What the tokens of one chunk make of one another: decays, scores, their triangular inverse, u and w.

One program computes one chunk of one value head, from the operands as callers have them: gates and
normalisation are part of it. Notation of `oracles.delta.chunk`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bitproof.kernels.delta.gates import activated, biased, factor, load_gate
from bitproof.kernels.delta.tiles import (
    BLOCK_LEVEL,
    CHUNK,
    LEVELS,
    columns_of,
    find_chunk,
    half_factors,
    load_decays,
    load_last,
    load_norm,
    load_rows,
    load_tile,
    load_unit,
    natural_exp,
    near,
    near_factors,
    product,
    quarter,
    store_tile,
)


@triton.jit(do_not_specialize=["tokens", "sequences"])
def decays(
    g_ptr,
    a_log_ptr,
    bias_ptr,
    cu_ptr,
    decay_ptr,
    tokens,
    sequences,
    lower_bound,
    HEADS: tl.constexpr,
    K: tl.constexpr,
    GATE: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Writes the cumulative log-decay of chunk `program_id(0)`; rows past its end repeat the last.

    fp32 [chunks, HEADS, 64, PADDED_K], natural log, zero in columns past K.
    """
    number, head, column = tl.program_id(0), tl.program_id(1), tl.program_id(2) * BLOCK_K
    sequence, first, end = find_chunk(cu_ptr, tokens, sequences, number, N)
    if sequence >= sequences:
        return
    x = biased(g_ptr, bias_ptr, first, end, HEADS, head, column, K, BLOCK_K)
    g = activated(x, factor(a_log_ptr, head), lower_bound, GATE)
    row = first + tl.arange(0, CHUNK)
    inside = (row < end)[:, None] & (column + tl.arange(0, BLOCK_K) < K)[None, :]
    total = tl.cumsum(tl.where(inside, g, 0.0), 0)
    tl.store(columns_of(decay_ptr, number * HEADS + head, column, CHUNK, PADDED_K, BLOCK_K), total)


@triton.jit
def add_columns(
    x,
    k,
    decay,
    decay_ptr,
    tile,
    column,
    within,
    quarters,
    half,
    PADDED_K: tl.constexpr,
    BOUNDED: tl.constexpr,
):
    """What the columns of a block add to three sums [64, 64] of x_i[d] k_j[d] e^(G_i[d] - G_j[d]).

    Of pairs in one block of 16 rows, in one of 32, and in the chunk; `joined` takes each from where it
    says something. `decay` is those columns of G, which lie from `column` on in tile `tile`.
    """
    BLOCK_K: tl.constexpr = k.shape[1]
    if BOUNDED:
        down, up = near_factors(decay_ptr, tile, column, decay, PADDED_K, BLOCK_K)
        within = product(x * down, (k * up).trans(), within)
    else:
        for level in tl.static_range(BLOCK_LEVEL):
            down, up = half_factors(decay_ptr, tile, column, decay, level, PADDED_K, BLOCK_K)
            within += tl.where(quarter(level), product(x * down, (k * up).trans()), 0.0)
    down, up = half_factors(decay_ptr, tile, column, decay, BLOCK_LEVEL, PADDED_K, BLOCK_K)
    quarters = product(x * down, (k * up).trans(), quarters)
    down, up = half_factors(decay_ptr, tile, column, decay, BLOCK_LEVEL + 1, PADDED_K, BLOCK_K)
    half = product(x * down, (k * up).trans(), half)
    return within, quarters, half


@triton.jit
def joined(within, quarters, half):
    """The sums of `add_columns` as one matrix, zero on the diagonal and above."""
    lower = tl.where(near(), within, tl.where(quarter(BLOCK_LEVEL), quarters, 0.0))
    return tl.where(quarter(BLOCK_LEVEL + 1), half, lower)


@triton.jit
def inverted(lower):
    """(I + L)^-1 of strictly lower triangular L [64, 64], by blocks of doubling size.

    Where X inverts the diagonal blocks of some size and B holds the quarters between them, X - X B X
    inverts those of twice the size. For blocks of one row X is I.
    """
    row = tl.arange(0, CHUNK)
    x = (row[:, None] == row[None, :]).to(tl.float32) - tl.where(quarter(0), lower, 0.0)
    for level in range(1, LEVELS):
        between = tl.where(quarter(level), lower, 0.0)
        x -= product(product(x, between), x)
    return x


@triton.jit(do_not_specialize=["tokens", "sequences"])
def relate(
    q_ptr,
    k_ptr,
    cu_ptr,
    decay_ptr,
    scores_ptr,
    qg_ptr,
    kg_ptr,
    tokens,
    sequences,
    scale,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    K: tl.constexpr,
    NORMALISE: tl.constexpr,
    QK: tl.constexpr,
    BOUNDED: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Writes scores, q and k with their decays, of chunk `program_id(0)` and value head `program_id(1)`.

    Scores are [chunks, HEADS, 64, 64], qg and kg [chunks, HEADS, 64, PADDED_K], each in its workspace's type;
    reads decay, fp32, shaped as qg.
    """
    number, head = tl.program_id(0), tl.program_id(1)
    sequence, first, end = find_chunk(cu_ptr, tokens, sequences, number, N)
    if sequence >= sequences:
        return
    tile = number * HEADS + head
    shared, heads = head // GROUPS, HEADS // GROUPS
    q_norm = load_norm(q_ptr, first, end, heads, shared, K, PADDED_K, NORMALISE)
    k_norm = load_norm(k_ptr, first, end, heads, shared, K, PADDED_K, NORMALISE)
    row = tl.arange(0, CHUNK)
    diagonal = tl.zeros((CHUNK,), tl.float32)
    within = tl.zeros((CHUNK, CHUNK), tl.float32)
    quarters = tl.zeros((CHUNK, CHUNK), tl.float32)
    half = tl.zeros((CHUNK, CHUNK), tl.float32)
    for column in range(0, PADDED_K, BLOCK_K):
        q = load_unit(q_ptr, q_norm, first, end, heads, shared, column, K, BLOCK_K, QK)
        k = load_unit(k_ptr, k_norm, first, end, heads, shared, column, K, BLOCK_K, QK)
        decay = load_decays(decay_ptr, tile, row, column, PADDED_K, BLOCK_K)
        diagonal += tl.sum(q * k, 1)
        within, quarters, half = add_columns(
            q, k, decay, decay_ptr, tile, column, within, quarters, half, PADDED_K, BOUNDED
        )
        last = load_last(decay_ptr, tile, column, PADDED_K, BLOCK_K)
        qg = (q * natural_exp(decay)).to(qg_ptr.dtype.element_ty)
        kg = (k * natural_exp(last - decay)).to(kg_ptr.dtype.element_ty)
        tl.store(columns_of(qg_ptr, tile, column, CHUNK, PADDED_K, BLOCK_K), qg)
        tl.store(columns_of(kg_ptr, tile, column, CHUNK, PADDED_K, BLOCK_K), kg)
    scores = joined(within, quarters, half)
    scores += tl.where(row[:, None] == row[None, :], diagonal[:, None], 0.0)
    store_tile(scores_ptr, tile, scores * scale)


@triton.jit(do_not_specialize=["tokens", "sequences"])
def solve(
    k_ptr,
    b_ptr,
    cu_ptr,
    decay_ptr,
    inverse_ptr,
    tokens,
    sequences,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    K: tl.constexpr,
    NORMALISE: tl.constexpr,
    SCALAR: tl.constexpr,
    QK: tl.constexpr,
    BOUNDED: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Writes (I + L)^-1 of chunk `program_id(0)` and value head `program_id(1)`.

    [chunks, HEADS, 64, 64], in the workspace's type; reads decay [chunks, HEADS, 64, PADDED_K] in fp32.
    """
    number, head = tl.program_id(0), tl.program_id(1)
    sequence, first, end = find_chunk(cu_ptr, tokens, sequences, number, N)
    if sequence >= sequences:
        return
    tile = number * HEADS + head
    shared, heads = head // GROUPS, HEADS // GROUPS
    norm = load_norm(k_ptr, first, end, heads, shared, K, PADDED_K, NORMALISE)
    row = tl.arange(0, CHUNK)
    within = tl.zeros((CHUNK, CHUNK), tl.float32)
    quarters = tl.zeros((CHUNK, CHUNK), tl.float32)
    half = tl.zeros((CHUNK, CHUNK), tl.float32)
    for column in range(0, PADDED_K, BLOCK_K):
        k = load_unit(k_ptr, norm, first, end, heads, shared, column, K, BLOCK_K, QK)
        bk = load_gate(b_ptr, first, end, HEADS, head, column, K, BLOCK_K, SCALAR) * k
        decay = load_decays(decay_ptr, tile, row, column, PADDED_K, BLOCK_K)
        within, quarters, half = add_columns(
            bk, k, decay, decay_ptr, tile, column, within, quarters, half, PADDED_K, BOUNDED
        )
    store_tile(inverse_ptr, tile, inverted(joined(within, quarters, half)))


@triton.jit(do_not_specialize=["tokens", "sequences"])
def represent(
    k_ptr,
    v_ptr,
    b_ptr,
    w_ptr,
    cu_ptr,
    decay_ptr,
    inverse_ptr,
    u_ptr,
    wy_ptr,
    tokens,
    sequences,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    NORMALISE: tl.constexpr,
    SCALAR: tl.constexpr,
    QK: tl.constexpr,
    WRITE: tl.constexpr,
    ERASE: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    PADDED_V: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Writes the WY representation, u and w, of the same chunk and value head.

    u is [chunks, HEADS, 64, PADDED_V], w [chunks, HEADS, 64, PADDED_K], each in its workspace's type; reads
    what `decays` and `solve` write.
    """
    number, head = tl.program_id(0), tl.program_id(1)
    sequence, first, end = find_chunk(cu_ptr, tokens, sequences, number, N)
    if sequence >= sequences:
        return
    tile = number * HEADS + head
    shared, heads = head // GROUPS, HEADS // GROUPS
    inverse = load_tile(inverse_ptr, tile, CHUNK, CHUNK)
    norm = load_norm(k_ptr, first, end, heads, shared, K, PADDED_K, NORMALISE)
    row = tl.arange(0, CHUNK)
    for column in tl.static_range(0, PADDED_K, BLOCK_K):
        k = load_unit(k_ptr, norm, first, end, heads, shared, column, K, BLOCK_K, QK)
        bk = load_gate(b_ptr, first, end, HEADS, head, column, K, BLOCK_K, SCALAR) * k
        decay = load_decays(decay_ptr, tile, row, column, PADDED_K, BLOCK_K)
        wy = product(inverse, (bk * natural_exp(decay)).to(ERASE)).to(wy_ptr.dtype.element_ty)
        tl.store(columns_of(wy_ptr, tile, column, CHUNK, PADDED_K, BLOCK_K), wy)
    for column in tl.static_range(0, PADDED_V, BLOCK_V):
        w = load_gate(w_ptr, first, end, HEADS, head, column, V, BLOCK_V, SCALAR)
        v = load_rows(v_ptr, first, end, HEADS, head, column, V, BLOCK_V).to(tl.float32)
        u = product(inverse, (w * v).to(WRITE)).to(u_ptr.dtype.element_ty)
        tl.store(columns_of(u_ptr, tile, column, CHUNK, PADDED_V, BLOCK_V), u)
