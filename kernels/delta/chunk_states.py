"""The passes over a sequence's chunks: states forward, with the output, and their gradients backward.

One program carries BLOCK_V columns of the state of one sequence and value head through its chunks in turn,
in fp32. Notation of `oracles.delta.chunk`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bitproof.kernels.delta.tiles import (
    CHUNK,
    columns_of,
    find_sequence,
    fine_product,
    load_last,
    load_rows,
    load_tile,
    natural_exp,
    product,
    store_rows,
)


@triton.jit
def state_places(
    ptr, number, first_column, K: tl.constexpr, V: tl.constexpr, V_FIRST: tl.constexpr,
    PADDED_K: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """(pointers [PADDED_K, BLOCK_V], mask) of columns of state `number`, laid out [V, K] if V_FIRST."""
    row = tl.arange(0, PADDED_K)[:, None]
    column = first_column + tl.arange(0, BLOCK_V)[None, :]
    start = ptr + number.to(tl.int64) * (K * V)
    inner = column * K + row if V_FIRST else row * V + column
    return start + inner, (row < K) & (column < V)


@triton.jit(do_not_specialize=["tokens", "sequences"])
def pass_states(
    u_ptr,
    wy_ptr,
    qg_ptr,
    kg_ptr,
    scores_ptr,
    decay_ptr,
    cu_ptr,
    initial_ptr,
    o_ptr,
    final_ptr,
    states_ptr,
    v_new_ptr,
    tokens,
    sequences,
    scale,
    HEADS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    V_FIRST: tl.constexpr,
    STATE: tl.constexpr,
    V_NEW: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    PADDED_V: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Writes o where `o_ptr` is given, the final state where `final_ptr` is, the rest where `states_ptr` is.

    o is [T, HEADS, V] in its own type, the final state fp32. The rest are workspaces [chunks, HEADS, ...]:
    states [.., PADDED_K, PADDED_V] in STATE, v_new [.., 64, PADDED_V] in V_NEW. Reads u, shaped as v_new; wy,
    qg, kg and, in fp32, decay [.., 64, PADDED_K]; scores [.., 64, 64].
    """
    column, head, sequence = tl.program_id(0) * BLOCK_V, tl.program_id(1), tl.program_id(2)
    tl.assume(column < PADDED_V)  # so that 32 bits hold every offset within a tile
    first, end, chunk = find_sequence(cu_ptr, tokens, sequences, sequence, N)
    if sequence == sequences:
        if o_ptr is not None:
            for row in range(first, end, CHUNK):
                nothing = tl.zeros((CHUNK, BLOCK_V), tl.float32)
                store_rows(o_ptr, nothing, row, end, HEADS, head, column, V, BLOCK_V)
        return
    number = sequence * HEADS + head
    if initial_ptr is None:
        state = tl.zeros((PADDED_K, BLOCK_V), tl.float32)
    else:
        given, inside = state_places(initial_ptr, number, column, K, V, V_FIRST, PADDED_K, BLOCK_V)
        state = tl.load(given, mask=inside, other=0.0)
    for step in range(tl.cdiv(end - first, CHUNK)):
        tile = (chunk + step) * HEADS + head
        wy = load_tile(wy_ptr, tile, CHUNK, PADDED_K)
        u = tl.load(columns_of(u_ptr, tile, column, CHUNK, PADDED_V, BLOCK_V))
        kg = load_tile(kg_ptr, tile, CHUNK, PADDED_K)
        decay = load_last(decay_ptr, tile, 0, PADDED_K, PADDED_K)
        snapshot = state.to(STATE)
        v_new = (u.to(tl.float32) - product(wy, snapshot)).to(V_NEW)
        if states_ptr is not None:
            tl.store(columns_of(states_ptr, tile, column, PADDED_K, PADDED_V, BLOCK_V), snapshot)
            tl.store(columns_of(v_new_ptr, tile, column, CHUNK, PADDED_V, BLOCK_V), v_new)
        if o_ptr is not None:
            qg = load_tile(qg_ptr, tile, CHUNK, PADDED_K)
            scores = load_tile(scores_ptr, tile, CHUNK, CHUNK)
            o = scale * product(qg, snapshot) + fine_product(scores, v_new, kg)
            start = first + step * CHUNK
            store_rows(o_ptr, o, start, end, HEADS, head, column, V, BLOCK_V)
        state = natural_exp(decay).trans() * state + fine_product(kg.trans(), v_new, kg)
    if final_ptr is not None:
        given, inside = state_places(final_ptr, number, column, K, V, V_FIRST, PADDED_K, BLOCK_V)
        tl.store(given, state, mask=inside)


@triton.jit(do_not_specialize=["tokens", "sequences"])
def pass_gradients(
    wy_ptr,
    qg_ptr,
    kg_ptr,
    scores_ptr,
    decay_ptr,
    do_ptr,
    dfinal_ptr,
    cu_ptr,
    dv_new_ptr,
    dstates_ptr,
    dinitial_ptr,
    tokens,
    sequences,
    scale,
    HEADS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    V_FIRST: tl.constexpr,
    DSTATE: tl.constexpr,
    DV_NEW: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    PADDED_V: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """From the last chunk to the first: the gradients of v_new, of states at chunk ends, of initial ones.

    They are [chunks, HEADS, 64, PADDED_V] in DV_NEW, [chunks, HEADS, PADDED_K, PADDED_V] in DSTATE, and fp32.
    Reads wy, qg, kg, scores and decay as `pass_states` does, do [T, HEADS, V], and dfinal in fp32.
    """
    column, head, sequence = tl.program_id(0) * BLOCK_V, tl.program_id(1), tl.program_id(2)
    tl.assume(column < PADDED_V)  # so that 32 bits hold every offset within a tile
    first, end, chunk = find_sequence(cu_ptr, tokens, sequences, sequence, N)
    number = sequence * HEADS + head
    given, inside = state_places(dfinal_ptr, number, column, K, V, V_FIRST, PADDED_K, BLOCK_V)
    state = tl.load(given, mask=inside, other=0.0)
    chunks = tl.cdiv(end - first, CHUNK)
    for back in range(chunks):
        step = chunks - 1 - back
        tile = (chunk + step) * HEADS + head
        snapshot = state.to(DSTATE)
        tl.store(columns_of(dstates_ptr, tile, column, PADDED_K, PADDED_V, BLOCK_V), snapshot)
        do = load_rows(do_ptr, first + step * CHUNK, end, HEADS, head, column, V, BLOCK_V)
        scores = load_tile(scores_ptr, tile, CHUNK, CHUNK)
        kg = load_tile(kg_ptr, tile, CHUNK, PADDED_K)
        dv_new = fine_product(scores.trans(), do, kg) + product(kg, snapshot)
        dv_new = dv_new.to(DV_NEW)
        tl.store(columns_of(dv_new_ptr, tile, column, CHUNK, PADDED_V, BLOCK_V), dv_new)
        qg = load_tile(qg_ptr, tile, CHUNK, PADDED_K)
        wy = load_tile(wy_ptr, tile, CHUNK, PADDED_K)
        decay = load_last(decay_ptr, tile, 0, PADDED_K, PADDED_K)
        state = (
            natural_exp(decay).trans() * state
            + scale * product(qg.trans(), do)
            - product(wy.trans(), dv_new)
        )
    given, inside = state_places(dinitial_ptr, number, column, K, V, V_FIRST, PADDED_K, BLOCK_V)
    tl.store(given, state, mask=inside)
