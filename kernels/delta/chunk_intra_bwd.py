"""Gradients of a chunk's operands, from those of its output, of v_new and of the states at its end.

`of_products` takes the products with values and states apart, one program a chunk and value head;
`of_scores` the decayed scores, by blocks of keys; `of_units` sums what value heads share and undoes the
normalisation. Notation of `oracles.delta.chunk_adjoint`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bitproof.kernels.delta.gates import biased, factor, load_gate, raw_gradient
from bitproof.kernels.delta.tiles import (
    BLOCK_LEVEL,
    CHUNK,
    LEVELS,
    columns_of,
    find_chunk,
    half_factors,
    inverse_norm,
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
    store_rows,
    store_tile,
)


@triton.jit
def strictly_lower(x):
    """`x` [64, 64] below its diagonal.

    In floats, because ptxas 12.8 and 12.9 take the comparison of integers for false everywhere in
    `of_products` with fp32 operands, and store zeros: see docs/delta.md.
    """
    row = tl.arange(0, CHUNK).to(tl.float32)
    return tl.where(row[:, None] > row[None, :], x, 0.0)


@triton.jit
def stacked(upper, lower):
    """One matrix [2 R, C] of two [R, C], so that one product takes both."""
    ROWS: tl.constexpr = upper.shape[0]
    COLUMNS: tl.constexpr = upper.shape[1]
    return tl.join(upper, lower).permute(2, 0, 1).reshape(2 * ROWS, COLUMNS)


@triton.jit
def apart(both):
    """The two matrices of `stacked`."""
    ROWS: tl.constexpr = both.shape[0] // 2
    COLUMNS: tl.constexpr = both.shape[1]
    return tl.split(both.reshape(2, ROWS, COLUMNS).permute(1, 2, 0))


@triton.jit
def with_scores(dleft, dk, q, k, bk, down, up, dpairs, inside):
    """dq above dbk, and dk, with what pairs in `inside` add, whose factors decay by `down` and `up`.

    `dpairs` [128, 64] are the gradients of the scores above those of L.
    """
    by = tl.where(stacked(inside, inside), dpairs, 0.0)
    dleft += stacked(down, down) * product(by, k * up)
    dk += up * product(by.trans(), stacked(q * down, bk * down))
    return dleft, dk


@triton.jit(do_not_specialize=["tokens", "sequences"])
def of_products(
    k_ptr,
    v_ptr,
    b_ptr,
    w_ptr,
    cu_ptr,
    decay_ptr,
    inverse_ptr,
    states_ptr,
    v_new_ptr,
    do_ptr,
    dv_new_ptr,
    dstates_ptr,
    dq_ptr,
    dk_ptr,
    derase_ptr,
    dpairs_ptr,
    dlast_ptr,
    dv_ptr,
    dw_ptr,
    tokens,
    sequences,
    scale,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    NORMALISE: tl.constexpr,
    SCALAR: tl.constexpr,
    QK: tl.constexpr,
    WRITE: tl.constexpr,
    ERASE: tl.constexpr,
    DW: tl.constexpr,
    DINVERSE: tl.constexpr,
    PARTS: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    PADDED_V: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Writes dv, dw (or beta's share, in place PARTS - 1 of [T, HEADS, PARTS]) and fp32 workspaces.

    dv and dw are [T, HEADS, V] in their own types. The workspaces are [chunks, HEADS, ...]: dq, dk and derase
    [.., 64, PADDED_K], what the gradients of q, k and b * k get by way of states; dpairs [.., 128, 64], the
    gradients of scores, times the scale, above those of L; dlast [.., PADDED_K], what states give to the last
    row's dG. Reads decay, inverse, states and v_new of a forward pass, what `pass_gradients` writes, and do
    [T, HEADS, V].
    """
    number, head = tl.program_id(0), tl.program_id(1)
    sequence, first, end = find_chunk(cu_ptr, tokens, sequences, number, N)
    if sequence >= sequences:
        nothing = tl.zeros((CHUNK, PADDED_V), tl.float32)
        store_rows(dv_ptr, nothing, first, end, HEADS, head, 0, V, PADDED_V)
        if SCALAR:
            none = tl.zeros((CHUNK, 1), tl.float32)
            store_rows(dw_ptr, none, first, end, HEADS, head, PARTS - 1, PARTS, 1)
        else:
            store_rows(dw_ptr, nothing, first, end, HEADS, head, 0, V, PADDED_V)
        return
    tile = number * HEADS + head
    inverse = load_tile(inverse_ptr, tile, CHUNK, CHUNK)
    dq = tl.zeros((CHUNK, PADDED_K), tl.float32)
    dk = tl.zeros((CHUNK, PADDED_K), tl.float32)
    dw = tl.zeros((CHUNK, PADDED_K), tl.float32)
    dlast = tl.zeros((PADDED_K,), tl.float32)
    dinverse = tl.zeros((CHUNK, CHUNK), tl.float32)
    dscores = tl.zeros((CHUNK, CHUNK), tl.float32)
    dbeta = tl.zeros((CHUNK,), tl.float32)
    for column in range(0, PADDED_V, BLOCK_V):
        do = load_rows(do_ptr, first, end, HEADS, head, column, V, BLOCK_V)
        state = tl.load(columns_of(states_ptr, tile, column, PADDED_K, PADDED_V, BLOCK_V))
        dstate = tl.load(columns_of(dstates_ptr, tile, column, PADDED_K, PADDED_V, BLOCK_V))
        v_new = tl.load(columns_of(v_new_ptr, tile, column, CHUNK, PADDED_V, BLOCK_V))
        dn = tl.load(columns_of(dv_new_ptr, tile, column, CHUNK, PADDED_V, BLOCK_V))
        dq += product(do, state.trans())
        dk += product(v_new, dstate.trans())
        dw -= product(dn, state.trans())
        dlast += tl.sum(state.to(tl.float32) * dstate.to(tl.float32), 1)
        dscores += product(do, v_new.trans())
        v = load_rows(v_ptr, first, end, HEADS, head, column, V, BLOCK_V).to(tl.float32)
        w = load_gate(w_ptr, first, end, HEADS, head, column, V, BLOCK_V, SCALAR)
        dinverse += product(dn, (w * v).to(WRITE).trans())
        dwrite = product(inverse.trans(), dn)
        store_rows(dv_ptr, dwrite * w, first, end, HEADS, head, column, V, BLOCK_V)
        if SCALAR:
            dbeta += tl.sum(dwrite * v, 1)
        else:
            store_rows(dw_ptr, dwrite * v, first, end, HEADS, head, column, V, BLOCK_V)
    if SCALAR:
        store_rows(dw_ptr, dbeta[:, None], first, end, HEADS, head, PARTS - 1, PARTS, 1)

    shared, heads = head // GROUPS, HEADS // GROUPS
    row = tl.arange(0, CHUNK)
    decay = load_decays(decay_ptr, tile, row, 0, PADDED_K, PADDED_K)
    last = load_last(decay_ptr, tile, 0, PADDED_K, PADDED_K)
    grown = natural_exp(decay)
    store_tile(dq_ptr, tile, scale * dq * grown)
    store_tile(dk_ptr, tile, dk * natural_exp(last - decay))
    store_tile(dlast_ptr, tile, natural_exp(last) * dlast[None, :])
    norm = load_norm(k_ptr, first, end, heads, shared, K, PADDED_K, NORMALISE)
    k = load_unit(k_ptr, norm, first, end, heads, shared, 0, K, PADDED_K, QK)
    bk = load_gate(b_ptr, first, end, HEADS, head, 0, K, PADDED_K, SCALAR) * k
    dw_stored = dw.to(DW)
    dinverse += product(dw_stored, (bk * grown).to(ERASE).trans())
    store_tile(derase_ptr, tile, product(inverse.trans(), dw_stored) * grown)
    half = product(inverse.trans(), strictly_lower(dinverse).to(DINVERSE)).to(DINVERSE)
    dscores = tl.where(row[:, None] >= row[None, :], scale * dscores, 0.0)
    store_tile(dpairs_ptr, 2 * tile, dscores)
    store_tile(dpairs_ptr, 2 * tile + 1, -strictly_lower(product(half, inverse.trans())))


@triton.jit(do_not_specialize=["tokens", "sequences"])
def of_scores(
    q_ptr,
    k_ptr,
    g_ptr,
    b_ptr,
    a_log_ptr,
    bias_ptr,
    cu_ptr,
    decay_ptr,
    dq_ptr,
    dk_ptr,
    derase_ptr,
    dpairs_ptr,
    dlast_ptr,
    dq_rows_ptr,
    dk_rows_ptr,
    dg_ptr,
    db_ptr,
    da_log_ptr,
    dbias_ptr,
    tokens,
    sequences,
    lower_bound,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    K: tl.constexpr,
    GATE: tl.constexpr,
    NORMALISE: tl.constexpr,
    SCALAR: tl.constexpr,
    QK: tl.constexpr,
    BOUNDED: tl.constexpr,
    PARTS: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Writes the gradients of unit q and k per value head in fp32, dg, db, and shares of the parameters'.

    The first four are [T, HEADS, K], dg and db in their own types. Reads decay and the workspaces that
    `of_products` writes.

    db is beta's share, in place program_id(2) of [T, HEADS, PARTS], where the gate is SCALAR. The shares of
    A_log [chunks, HEADS, K blocks] and dt_bias [chunks, HEADS, PADDED_K] are None where there is no gate.
    """
    number, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence, first, end = find_chunk(cu_ptr, tokens, sequences, number, N)
    tile, column = number * HEADS + head, block * BLOCK_K
    index = column + tl.arange(0, BLOCK_K)
    blocks: tl.constexpr = PADDED_K // BLOCK_K
    if sequence >= sequences:
        nothing = tl.zeros((CHUNK, BLOCK_K), tl.float32)
        store_rows(dg_ptr, nothing, first, end, HEADS, head, column, K, BLOCK_K)
        if SCALAR:
            none = tl.zeros((CHUNK, 1), tl.float32)
            store_rows(db_ptr, none, first, end, HEADS, head, block, PARTS, 1)
        else:
            store_rows(db_ptr, nothing, first, end, HEADS, head, column, K, BLOCK_K)
        if da_log_ptr is not None:
            tl.store(da_log_ptr + tile.to(tl.int64) * blocks + block, 0.0)
            tl.store(
                dbias_ptr + tile.to(tl.int64) * PADDED_K + index, tl.zeros((BLOCK_K,), tl.float32)
            )
        return
    shared, heads = head // GROUPS, HEADS // GROUPS
    q_norm = load_norm(q_ptr, first, end, heads, shared, K, PADDED_K, NORMALISE)
    k_norm = load_norm(k_ptr, first, end, heads, shared, K, PADDED_K, NORMALISE)
    q = load_unit(q_ptr, q_norm, first, end, heads, shared, column, K, BLOCK_K, QK)
    k = load_unit(k_ptr, k_norm, first, end, heads, shared, column, K, BLOCK_K, QK)
    b = load_gate(b_ptr, first, end, HEADS, head, column, K, BLOCK_K, SCALAR)
    bk = b * k
    row = tl.arange(0, CHUNK)
    decay = load_decays(decay_ptr, tile, row, column, PADDED_K, BLOCK_K)
    dpairs = load_tile(dpairs_ptr, tile, 2 * CHUNK, CHUNK)
    dleft = tl.zeros((2 * CHUNK, BLOCK_K), tl.float32)
    dk = tl.zeros((CHUNK, BLOCK_K), tl.float32)
    if BOUNDED:
        down, up = near_factors(decay_ptr, tile, column, decay, PADDED_K, BLOCK_K)
        dleft, dk = with_scores(dleft, dk, q, k, bk, down, up, dpairs, near())
    for level in tl.static_range(BLOCK_LEVEL if BOUNDED else 0, LEVELS):
        down, up = half_factors(decay_ptr, tile, column, decay, level, PADDED_K, BLOCK_K)
        dleft, dk = with_scores(dleft, dk, q, k, bk, down, up, dpairs, quarter(level))
    dq, dbk = apart(dleft)

    ddecay = q * dq + bk * dbk - k * dk
    dq_outer = tl.load(columns_of(dq_ptr, tile, column, CHUNK, PADDED_K, BLOCK_K))
    dk_outer = tl.load(columns_of(dk_ptr, tile, column, CHUNK, PADDED_K, BLOCK_K))
    dbk_outer = tl.load(columns_of(derase_ptr, tile, column, CHUNK, PADDED_K, BLOCK_K))
    dlast = tl.load(dlast_ptr + tile.to(tl.int64) * PADDED_K + index) + tl.sum(k * dk_outer, 0)
    ddecay += q * dq_outer - k * dk_outer + bk * dbk_outer
    ddecay += tl.where((row == CHUNK - 1)[:, None], dlast[None, :], 0.0)
    dbk += dbk_outer
    of_itself = dpairs_ptr + tile.to(tl.int64) * (2 * CHUNK * CHUNK) + row * (CHUNK + 1)
    same = tl.load(of_itself)[:, None]
    dq_unit, dk_unit = dq + dq_outer + same * k, dk + dk_outer + same * q + b * dbk
    store_rows(dq_rows_ptr, dq_unit, first, end, HEADS, head, column, K, BLOCK_K)
    store_rows(dk_rows_ptr, dk_unit, first, end, HEADS, head, column, K, BLOCK_K)
    if SCALAR:
        share = tl.sum(k * dbk, 1)[:, None]
        store_rows(db_ptr, share, first, end, HEADS, head, block, PARTS, 1)
    else:
        store_rows(db_ptr, k * dbk, first, end, HEADS, head, column, K, BLOCK_K)
    # From the last row on: row i's log-decay is part of every later row's.
    dg = tl.cumsum(ddecay, 0, reverse=True)
    x = biased(g_ptr, bias_ptr, first, end, HEADS, head, column, K, BLOCK_K)
    dx, da_log = raw_gradient(x, dg, factor(a_log_ptr, head), lower_bound, GATE)
    store_rows(dg_ptr, dx, first, end, HEADS, head, column, K, BLOCK_K)
    if da_log_ptr is not None:
        valid = (first + row < end)[:, None] & (index < K)[None, :]
        da_log = tl.sum(tl.sum(tl.where(valid, da_log, 0.0), 1), 0)
        tl.store(da_log_ptr + tile.to(tl.int64) * blocks + block, da_log)
        tl.store(
            dbias_ptr + tile.to(tl.int64) * PADDED_K + index, tl.sum(tl.where(valid, dx, 0.0), 0)
        )


@triton.jit(do_not_specialize=["tokens", "sequences"])
def of_units(
    x_ptr,
    dunit_ptr,
    cu_ptr,
    dx_ptr,
    tokens,
    sequences,
    heads,
    GROUPS: tl.constexpr,
    K: tl.constexpr,
    NORMALISE: tl.constexpr,
    PADDED_K: tl.constexpr,
):
    """The gradient of q or k from that of its normalised rows, [T, heads * GROUPS, K] in fp32."""
    first, head = tl.program_id(0) * CHUNK, tl.program_id(1)
    end = tl.load(cu_ptr + sequences)
    dy = tl.zeros((CHUNK, PADDED_K), tl.float32)
    for member in tl.static_range(GROUPS):
        of_value = head * GROUPS + member
        dy += load_rows(dunit_ptr, first, end, heads * GROUPS, of_value, 0, K, PADDED_K)
    if NORMALISE:
        x = load_rows(x_ptr, first, end, heads, head, 0, K, PADDED_K).to(tl.float32)
        norm = inverse_norm(x, NORMALISE)
        y = x * norm
        dy = norm * (dy - y * tl.sum(dy * y, 1)[:, None])
    store_rows(dx_ptr, dy, first, tokens, heads, head, 0, K, PADDED_K)
