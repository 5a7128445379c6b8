"""Summaries of what a rank's tokens do to a state, forward and back, and the fold that merges them.

A summary is [HEADS, K, V + K]. Its first V columns are what the tokens make of a state of zero or, where
the sequence begins or ends here, of its own; the K others are what they multiply a state by: what they make
of the identity when nothing is written. Both are columns of the passes in `kernels.delta.chunk_states`.
`oracles.delta.ranks` has the formulas.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bitproof.kernels.delta.chunk_states import state_places
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
)


@triton.jit
def first_columns(
    ptr, number, column, of_values, own, K: tl.constexpr, V: tl.constexpr, V_FIRST: tl.constexpr,
    PADDED_K: tl.constexpr, PADDED_V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What a summary's columns from `column` on begin with, fp32 [PADDED_K, BLOCK].

    Columns below PADDED_V are those of state `number`, where `own` says that the sequence has one here, or
    zero; the others are those of the identity.
    """
    place, inside = state_places(ptr, number, column, K, V, V_FIRST, PADDED_K, BLOCK)
    state = tl.load(place, mask=inside & of_values & (own != 0), other=0.0)
    row = tl.arange(0, PADDED_K)[:, None]
    diagonal = row == column - PADDED_V + tl.arange(0, BLOCK)[None, :]
    return tl.where(diagonal & (of_values == 0), 1.0, state)


@triton.jit
def summary_start(ptr, number, K: tl.constexpr, V: tl.constexpr):
    """Where summary `number` begins."""
    return ptr + number.to(tl.int64) * (K * (V + K))


@triton.jit
def store_summary(
    ptr, state, head, column, of_values, K: tl.constexpr, V: tl.constexpr, STATE: tl.constexpr,
    TRANSITION: tl.constexpr, PADDED_K: tl.constexpr, PADDED_V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store columns of a summary, rounded to STATE below V and to TRANSITION from there on."""
    row = tl.arange(0, PADDED_K)[:, None]
    index = column + tl.arange(0, BLOCK)[None, :]
    place = tl.where(of_values, index, index - PADDED_V + V)
    inside = (row < K) & tl.where(of_values, index < V, index - PADDED_V < K)
    kept = tl.where(of_values, state.to(STATE).to(tl.float32), state.to(TRANSITION).to(tl.float32))
    start = summary_start(ptr, head, K, V)
    tl.store(start + row * (V + K) + place, kept.to(ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tokens", "sequences", "sequence", "needed", "own"])
def summarise(
    u_ptr,
    wy_ptr,
    kg_ptr,
    decay_ptr,
    cu_ptr,
    initial_ptr,
    summary_ptr,
    tokens,
    sequences,
    sequence,
    needed,
    own,
    HEADS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    V_FIRST: tl.constexpr,
    STATE: tl.constexpr,
    V_NEW: tl.constexpr,
    SENT_STATE: tl.constexpr,
    SENT_TRANSITION: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    PADDED_V: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The summary of part `sequence`, from its first chunk to its last; zeros where none is `needed`.

    With `own`, its sequence begins here, at `initial_ptr`'s state: nobody needs to multiply by what its
    tokens do, and those columns are zero. Reads what `chunk_states.pass_states` reads.
    """
    column, head = tl.program_id(0) * BLOCK, tl.program_id(1)
    of_values = column < PADDED_V
    first, end, chunk = find_sequence(cu_ptr, tokens, sequences, sequence, N)
    number = sequence * HEADS + head
    used = (needed != 0) & (of_values | (own == 0))
    state = first_columns(
        initial_ptr, number, column, of_values, own, K, V, V_FIRST, PADDED_K, PADDED_V, BLOCK
    )
    state = tl.where(used, state, 0.0)
    chunks = tl.where(used, tl.cdiv(end - first, CHUNK), 0)
    for step in range(chunks):
        tile = (chunk + step) * HEADS + head
        wy = load_tile(wy_ptr, tile, CHUNK, PADDED_K)
        kg = load_tile(kg_ptr, tile, CHUNK, PADDED_K)
        place = columns_of(u_ptr, tile, column, CHUNK, PADDED_V, BLOCK)
        u = tl.load(place, mask=of_values, other=0.0)
        decay = load_last(decay_ptr, tile, 0, PADDED_K, PADDED_K)
        v_new = (u.to(tl.float32) - product(wy, state.to(STATE))).to(V_NEW)
        state = natural_exp(decay).trans() * state + fine_product(kg.trans(), v_new, kg)
    store_summary(
        summary_ptr, state, head, column, of_values, K, V, SENT_STATE, SENT_TRANSITION, PADDED_K,
        PADDED_V, BLOCK,
    )  # fmt: skip


@triton.jit(do_not_specialize=["tokens", "sequences", "sequence", "needed", "own"])
def summarise_gradients(
    wy_ptr,
    qg_ptr,
    kg_ptr,
    scores_ptr,
    decay_ptr,
    do_ptr,
    cu_ptr,
    dfinal_ptr,
    summary_ptr,
    tokens,
    sequences,
    sequence,
    needed,
    own,
    scale,
    HEADS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    V_FIRST: tl.constexpr,
    DSTATE: tl.constexpr,
    DV_NEW: tl.constexpr,
    SENT_STATE: tl.constexpr,
    SENT_TRANSITION: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    PADDED_V: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The mirrored summary of part `sequence`, from its last chunk on; zeros where none is `needed`.

    With `own`, its sequence ends here, at the gradient in `dfinal_ptr`. Reads what
    `chunk_states.pass_gradients` reads.
    """
    column, head = tl.program_id(0) * BLOCK, tl.program_id(1)
    of_values = column < PADDED_V
    first, end, chunk = find_sequence(cu_ptr, tokens, sequences, sequence, N)
    number = sequence * HEADS + head
    used = (needed != 0) & (of_values | (own == 0))
    state = first_columns(
        dfinal_ptr, number, column, of_values, own, K, V, V_FIRST, PADDED_K, PADDED_V, BLOCK
    )
    state = tl.where(used, state, 0.0)
    chunks = tl.where(used, tl.cdiv(end - first, CHUNK), 0)
    for back in range(chunks):
        step = chunks - 1 - back
        tile = (chunk + step) * HEADS + head
        wy = load_tile(wy_ptr, tile, CHUNK, PADDED_K)
        kg = load_tile(kg_ptr, tile, CHUNK, PADDED_K)
        decay = load_last(decay_ptr, tile, 0, PADDED_K, PADDED_K)
        # The identity's columns have no output: nothing is loaded there.
        last = tl.where(of_values, end, first)
        do = load_rows(do_ptr, first + step * CHUNK, last, HEADS, head, column, V, BLOCK)
        scores = load_tile(scores_ptr, tile, CHUNK, CHUNK)
        qg = load_tile(qg_ptr, tile, CHUNK, PADDED_K)
        dv_new = fine_product(scores.trans(), do, kg) + product(kg, state.to(DSTATE))
        dv_new = dv_new.to(DV_NEW)
        state = (
            natural_exp(decay).trans() * state
            + scale * product(qg.trans(), do)
            - product(wy.trans(), dv_new)
        )
    store_summary(
        summary_ptr, state, head, column, of_values, K, V, SENT_STATE, SENT_TRANSITION, PADDED_K,
        PADDED_V, BLOCK,
    )  # fmt: skip


@triton.jit(do_not_specialize=["sequence", "farthest", "step", "count"])
def fold(
    summaries_ptr,
    states_ptr,
    sequence,
    farthest,
    step,
    count,
    HEADS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    V_FIRST: tl.constexpr,
    MERGED: tl.constexpr,
    PADDED_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Writes state `sequence`, merged from `count` summaries, rank `farthest` first and on in `step`s.

    Nothing is written where there is none. Summaries are [ranks, HEADS, K, V + K]; states fp32 as
    `chunk_states` has them, rounded to MERGED. A product of fp32 operands is three of their tf32 parts: it
    errs as fp32 does.
    """
    column, head = tl.program_id(0) * BLOCK_V, tl.program_id(1)
    if count == 0:
        return
    row = tl.arange(0, PADDED_K)
    index = column + tl.arange(0, BLOCK_V)
    line = row[:, None] * (V + K)
    values = (row < K)[:, None] & (index < V)[None, :]
    square = (row < K)[:, None] & (row < K)[None, :]
    start = summary_start(summaries_ptr, farthest * HEADS + head, K, V)
    state = tl.load(start + line + index[None, :], mask=values, other=0.0).to(tl.float32)
    for turn in range(1, count):
        start = summary_start(summaries_ptr, (farthest + turn * step) * HEADS + head, K, V)
        added = tl.load(start + line + index[None, :], mask=values, other=0.0)
        by = tl.load(start + line + V + row[None, :], mask=square, other=0.0)
        state = added.to(tl.float32) + tl.dot(by.to(tl.float32), state, input_precision="tf32x3")
    given, inside = state_places(
        states_ptr, sequence * HEADS + head, column, K, V, V_FIRST, PADDED_K, BLOCK_V
    )
    tl.store(given, state.to(MERGED).to(tl.float32), mask=inside)
