"""What the tokens of one chunk make of one another: decayed scores, their triangular inverse, u and w.

One program computes one chunk of one value head, from the operands as callers have them: gates and
normalisation are part of it, nothing of them is stored. Notation of `oracles.delta_chunk`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.delta_tiles import (
    CHUNK,
    LEVELS,
    find_chunk,
    half_decay,
    last_row,
    load_decay,
    load_gate,
    load_rows,
    load_unit,
    lower_half,
    natural_exp,
    product,
    quarter,
    store_tile,
)


@triton.jit
def inverted(lower):
    """(I + L)^-1 of strictly lower triangular L [64, 64], by blocks of doubling size.

    Where X inverts the diagonal blocks of some size and B holds the quarters between them, X - X B X
    inverts those of twice the size.
    """
    row = tl.arange(0, CHUNK)
    x = (row[:, None] == row[None, :]).to(tl.float32)
    for level in tl.static_range(LEVELS):
        between = tl.where(quarter(level), lower, 0.0)
        x -= product(product(x, between), x)
    return x


@triton.jit
def within(
    q_ptr,
    k_ptr,
    v_ptr,
    g_ptr,
    b_ptr,
    w_ptr,
    a_log_ptr,
    bias_ptr,
    cu_ptr,
    scores_ptr,
    inverse_ptr,
    u_ptr,
    wy_ptr,
    qg_ptr,
    kg_ptr,
    last_ptr,
    tokens,
    sequences,
    scale,
    lower_bound,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    GATE: tl.constexpr,
    NORMALISE: tl.constexpr,
    SCALAR: tl.constexpr,
    QK: tl.constexpr,
    INVERSE: tl.constexpr,
    WRITE: tl.constexpr,
    ERASE: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    PADDED_V: tl.constexpr,
):
    """Writes the tiles of chunk `program_id(0)` and value head `program_id(1)`; `inverse_ptr` may be None."""
    number, head = tl.program_id(0), tl.program_id(1)
    sequence, first, end = find_chunk(cu_ptr, tokens, sequences, number, N)
    if sequence >= sequences:
        return
    shared, heads = head // GROUPS, HEADS // GROUPS
    decay = load_decay(
        g_ptr, a_log_ptr, bias_ptr, first, end, HEADS, head, 0, lower_bound, GATE, K, PADDED_K
    )
    q = load_unit(q_ptr, first, end, heads, shared, K, PADDED_K, NORMALISE, QK)
    k = load_unit(k_ptr, first, end, heads, shared, K, PADDED_K, NORMALISE, QK)
    bk = load_gate(b_ptr, first, end, HEADS, head, 0, K, PADDED_K, SCALAR) * k

    row = tl.arange(0, CHUNK)
    diagonal = row[:, None] == row[None, :]
    scores = tl.where(diagonal, tl.sum(q * k, 1)[:, None], 0.0)
    lower = tl.zeros((CHUNK, CHUNK), tl.float32)
    for level in tl.static_range(LEVELS):
        factor = half_decay(decay, level)
        under = lower_half(level)[:, None]
        right = tl.where(under, 0.0, k * factor).trans()
        inside = quarter(level)
        scores += tl.where(inside, product(tl.where(under, q * factor, 0.0), right), 0.0)
        lower += tl.where(inside, product(tl.where(under, bk * factor, 0.0), right), 0.0)

    tile = number * HEADS + head
    store_tile(scores_ptr, tile, scores * scale)
    inverse = inverted(lower).to(INVERSE)
    if inverse_ptr is not None:
        store_tile(inverse_ptr, tile, inverse)
    grown = natural_exp(decay)
    last = last_row(decay)
    store_tile(last_ptr, tile, natural_exp(last))
    store_tile(qg_ptr, tile, q * grown)
    store_tile(kg_ptr, tile, k * natural_exp(last - decay))
    store_tile(wy_ptr, tile, product(inverse, (bk * grown).to(ERASE)))
    w = load_gate(w_ptr, first, end, HEADS, head, 0, V, PADDED_V, SCALAR)
    v = load_rows(v_ptr, first, end, HEADS, head, 0, V, PADDED_V).to(tl.float32)
    store_tile(u_ptr, tile, product(inverse, (w * v).to(WRITE)))
