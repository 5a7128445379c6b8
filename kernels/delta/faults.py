"""Planted faults of the delta rule's forward pass by chunks: what a tired colleague would write.

`faults_recurrent` has those of the one token by token, `faults_backward` those of the backward pass;
docs/delta.md lists those of the systems' history that no edit can plant, with the reason.
"""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Fault

_in_arguments = partial(Fault, module="bitproof.kernels.delta.arguments", caught_by="agreement")
_in_chunk_fwd = partial(Fault, module="bitproof.kernels.delta.chunk_fwd", caught_by="agreement")
_in_chunk_intra = partial(Fault, module="bitproof.kernels.delta.chunk_intra", caught_by="agreement")
_in_chunk_states = partial(
    Fault, module="bitproof.kernels.delta.chunk_states", caught_by="agreement"
)
_in_gates = partial(Fault, module="bitproof.kernels.delta.gates", caught_by="agreement")
_in_tiles = partial(Fault, module="bitproof.kernels.delta.tiles", caught_by="agreement")

_BF16 = ".to(tl.bfloat16).to(tl.float32)"
_UNINITIALISED = "state = tl.zeros((PADDED_K, BLOCK_V), tl.float32)"
_RAW_DECAY = "g = activated(x, factor(a_log_ptr, head), lower_bound, GATE)"

STATES = (
    _in_chunk_states(
        name="begins at what the final state's memory holds",
        within="pass_states",
        old=_UNINITIALISED,
        new=(
            "place, mask = state_places(final_ptr, number, column, K, V, V_FIRST, PADDED_K, BLOCK_V)\n"
            "        state = tl.load(place, mask=mask, other=0.0)"
        ),
        caught_by="reproducibility",
    ),
    _in_chunk_states(
        name="begins at the initial state of the sequence before",
        within="pass_states",
        old="state_places(initial_ptr, number,",
        new="state_places(initial_ptr, tl.maximum(number - HEADS, head),",
    ),
    _in_chunk_states(
        name="transposes the initial state alone",
        within="pass_states",
        old="state_places(final_ptr, number, column, K, V, V_FIRST,",
        new="state_places(final_ptr, number, column, K, V, False,",
    ),
    _in_chunk_states(
        name="takes the first columns of a state for all",
        within="pass_states",
        old="column, head, sequence = tl.program_id(0) * BLOCK_V,",
        new="column, head, sequence = tl.program_id(0) * 0,",
    ),
    _in_chunk_states(
        name="reads and writes states past V",
        within="state_places",
        old="(row < K) & (column < V)",
        new="(row < K) & (column >= 0)",
        caught_by="memory",
    ),
    _in_chunk_states(
        name="keeps v_new in bf16 whatever the policy",
        within="pass_states",
        old="(u.to(tl.float32) - product(wy, snapshot)).to(V_NEW)",
        new=f"(u.to(tl.float32) - product(wy, snapshot)){_BF16}.to(V_NEW)",
    ),
    _in_chunk_states(
        name="leaves the scale out of what the state gives",
        within="pass_states",
        old="scale * product(qg, snapshot)",
        new="product(qg, snapshot)",
    ),
    _in_chunk_states(
        name="answers for one token of a chunk with a quarter more",
        within="pass_states",
        old="product(scores, v_new, kg)\n",
        new=(
            "product(scores, v_new, kg)\n"
            "            o *= tl.where(tl.arange(0, CHUNK) == 37, 1.25, 1.0)[:, None]\n"
        ),
    ),
    _in_chunk_states(
        name="leaves nobody's rows of o as they were",
        within="pass_states",
        old="for row in range(first, end, CHUNK)",
        new="for row in range(first, first)",
        caught_by="memory",
    ),
    _in_chunk_states(
        name="reaches past K in a state",
        within="state_places",
        old="(row < K) & (column < V)",
        new="(row < PADDED_K) & (column < V)",
        caught_by="memory",
    ),
)
WITHIN = (
    _in_chunk_intra(
        name="includes the diagonal in L",
        within="solve",
        old="store_tile(inverse_ptr, tile, inverted(joined(within, quarters, half)))",
        new=(
            "k = load_unit(k_ptr, norm, first, end, heads, shared, 0, K, PADDED_K, QK)\n"
            "    bk = load_gate(b_ptr, first, end, HEADS, head, 0, K, PADDED_K, SCALAR) * k\n"
            "    more = 1.0 + tl.sum(bk * k, 1)\n"
            "    lower = joined(within, quarters, half) / more[:, None]\n"
            "    inverse = inverted(lower) / more[None, :]\n"
            "    store_tile(inverse_ptr, tile, inverse)"
        ),
    ),
    _in_chunk_intra(
        name="puts b on the column side",
        within="solve",
        old="bk, k, decay,",
        new="k, bk, decay,",
    ),
    _in_chunk_intra(
        name="squares b in L",
        within="solve",
        old="bk, k, decay,",
        new="bk * load_gate(b_ptr, first, end, HEADS, head, column, K, BLOCK_K, SCALAR), k, decay,",
    ),
    _in_chunk_intra(
        name="scales the scores twice",
        within="relate",
        old="scores * scale",
        new="scores * scale * scale",
    ),
    _in_chunk_intra(
        name="keeps scores in bf16 whatever the policy",
        within="relate",
        old="scores * scale",
        new=f"(scores * scale){_BF16}",
    ),
    _in_chunk_intra(
        name="keeps u in bf16 whatever the policy",
        within="represent",
        old=".to(u_ptr.dtype.element_ty)",
        new=f"{_BF16}.to(u_ptr.dtype.element_ty)",
    ),
    _in_chunk_intra(
        name="leaves the scores above the diagonal unwritten",
        within="relate",
        old="store_tile(scores_ptr, tile, scores * scale)",
        new=(
            "place = columns_of(scores_ptr, tile, 0, CHUNK, CHUNK, CHUNK)\n"
            "    kept = (scores * scale).to(scores_ptr.dtype.element_ty)\n"
            "    tl.store(place, kept, mask=row[:, None] >= row[None, :])"
        ),
        caught_by="reproducibility",
    ),
    _in_chunk_intra(
        name="decays past a sequence's end",
        within="decays",
        old="(row < end)[:, None] & ",
        new="(row >= first)[:, None] & ",
    ),
    _in_chunk_intra(
        name="adds dt_bias outside of the product",
        within="decays",
        old=_RAW_DECAY,
        new=(
            "raw = biased(g_ptr, None, first, end, HEADS, head, column, K, BLOCK_K)\n"
            "    a = factor(a_log_ptr, head)\n"
            "    g = activated(raw + (x - raw) / a, a, lower_bound, GATE)"
        ),
    ),
    _in_tiles(
        name="counts decays from a row later on",
        within="half_factors",
        old="load_decays(decay_ptr, tile, first_lower,",
        new="load_decays(decay_ptr, tile, first_lower + ((first_lower & -first_lower) >> 1),",
    ),
    _in_tiles(
        name="anchors a block of 16 at its middle row",
        within="near_factors",
        old="load_decays(decay_ptr, tile, anchor,",
        new="load_decays(decay_ptr, tile, anchor + 8,",
        caught_by="invariances",
        lanes=("cuda",),
        because=(
            "a default run has too few examples of the invariances there; "
            "test_an_anchor_ahead_is_seen gives it one"
        ),
    ),
    _in_gates(
        name="reads the first head's A_log in every head",
        within="factor",
        old="a_log_ptr + head",
        new="a_log_ptr + head * 0",
    ),
    _in_gates(
        name="reads the first head's dt_bias in every head",
        within="biased",
        old="bias_ptr + head * WIDTH",
        new="bias_ptr + head * 0",
    ),
    _in_tiles(
        name="adds the norm's eps outside of the root",
        within="inverse_norm",
        old="tl.sqrt_rn(tl.sum(x * x, 1) + EPSILON)",
        new="(tl.sqrt_rn(tl.sum(x * x, 1)) + EPSILON)",
    ),
    _in_tiles(name="divides by a norm of zero", within="EPSILON", old="1e-6", new="0.0"),
    _in_tiles(
        name="reads past K into the next head",
        within="load_rows",
        old="mask=mask",
        new="mask=(first + tl.arange(0, CHUNK) < end)[:, None] & (column + tl.arange(0, BLOCK) >= 0)",
    ),
    _in_tiles(
        name="cuts chunks at multiples of 64 wherever sequences begin",
        within="find_chunk",
        old="start + (number - ends + chunks) * CHUNK",
        new="start // CHUNK * CHUNK + (number - ends + chunks) * CHUNK",
    ),
    _in_tiles(
        name="allots a chunk to an empty sequence",
        within="find_chunk",
        old="chunks = tl.cdiv(stop - start, CHUNK)",
        new="chunks = tl.maximum(tl.cdiv(stop - start, CHUNK), 1)",
    ),
    _in_arguments(
        name="sizes the table of sequences by the tokens",
        within="Operands",
        old="triton.next_power_of_2(self.most_sequences + 1)",
        new="triton.next_power_of_2(max(self.sequences, len(self.q)) + 1)",
        caught_by="compile_cache",
    ),
    _in_chunk_fwd(
        name="answers with o in fp32 whatever the operands",
        within="forward",
        old="torch.empty_like(x.v)",
        new="torch.empty_like(x.v, dtype=torch.float32)",
    ),
    _in_chunk_intra(
        name="specialises on the token count",
        within="solve",
        old='do_not_specialize=["tokens", "sequences"]',
        new='do_not_specialize=["sequences"]',
        caught_by="compile_cache",
    ),
)
SCALAR = (
    _in_gates(
        name="reads the first head's beta in every head",
        within="load_gate",
        old="one = load_rows(ptr, first, end, heads, head, 0, 1, 1)",
        new="one = load_rows(ptr, first, end, heads, 0, 0, 1, 1)",
    ),
    _in_chunk_intra(
        name="leaves beta out of u",
        within="represent",
        old="(w * v).to(WRITE)",
        new="v.to(WRITE)",
    ),
    _in_chunk_intra(
        name="takes another head's q for a value head",
        within="relate",
        old="shared, heads = head // GROUPS,",
        new="shared, heads = head % (HEADS // GROUPS),",
    ),
    _in_tiles(
        name="promotes after the norm",
        within="load_unit",
        old="(x * norm).to(STORED)",
        new="(x * norm).to(ptr.dtype.element_ty).to(STORED)",
    ),
    _in_chunk_fwd(
        name="stores in the operands' type whatever the policy",
        within="stored_types",
        old="return torch.float32 if name in precision.kept else dtype",
        new="return dtype",
    ),
    _in_chunk_states(
        name="drops the third chunk",
        within="pass_states",
        old="range(tl.cdiv(end - first, CHUNK))",
        new="range(tl.minimum(tl.cdiv(end - first, CHUNK), 2))",
        lanes=("cuda",),
        because=(
            "the interpreter's cases seldom have three chunks; "
            "test_a_dropped_third_chunk_is_seen gives it one"
        ),
    ),
    _in_tiles(
        name="passes the states of the sequence before on",
        within="find_sequence",
        old="index < number, tl.cdiv",
        new="index < number - 1, tl.cdiv",
    ),
    _in_chunk_states(
        name="answers with the final state as products read it",
        within="pass_states",
        old="tl.store(given, state, mask=inside)",
        new="tl.store(given, state.to(STATE).to(tl.float32), mask=inside)",
    ),
)
