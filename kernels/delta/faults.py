"""Planted faults of the delta rule's forward pass: what a tired colleague would write, and who must see it.

Those of the backward pass are in `kernels.delta.gradient_faults`; docs/delta.md lists those of the systems'
history that no edit can plant, with the reason.
"""

from __future__ import annotations

from bitproof.kernels.delta.gradient_faults import GRADIENTS, SCALAR_GRADIENTS
from bitproof.kernels.delta.planting import INTERPRETED, fault, on_card, specialised

__all__ = [
    "GRADIENTS",
    "SCALAR",
    "SCALAR_GRADIENTS",
    "SCALAR_TOKENS",
    "STATES",
    "TOKENS",
    "WITHIN",
]


_BF16 = ".to(tl.bfloat16).to(tl.float32)"
_UNINITIALISED = "state = tl.zeros((PADDED_K, BLOCK_V), tl.float32)"
_RAW_DECAY = "g = activated(x, factor(a_log_ptr, head), lower_bound, GATE)"

STATES = (
    fault(
        "chunk_states",
        "pass_states",
        "begins at what the final state's memory holds",
        _UNINITIALISED,
        "place, mask = state_places(final_ptr, number, column, K, V, V_FIRST, PADDED_K, BLOCK_V)\n"
        "        state = tl.load(place, mask=mask, other=0.0)",
        "reproducibility",
    ),
    fault(
        "chunk_states",
        "pass_states",
        "begins at the initial state of the sequence before",
        "state_places(initial_ptr, number,",
        "state_places(initial_ptr, tl.maximum(number - HEADS, head),",
    ),
    fault(
        "chunk_states",
        "pass_states",
        "transposes the initial state alone",
        "state_places(final_ptr, number, column, K, V, V_FIRST,",
        "state_places(final_ptr, number, column, K, V, False,",
    ),
    fault(
        "chunk_states",
        "pass_states",
        "takes the first columns of a state for all",
        "column, head, sequence = tl.program_id(0) * BLOCK_V,",
        "column, head, sequence = tl.program_id(0) * 0,",
    ),
    fault(
        "chunk_states",
        "state_places",
        "reads and writes states past V",
        "(row < K) & (column < V)",
        "(row < K) & (column >= 0)",
        "memory",
    ),
    fault(
        "chunk_states",
        "pass_states",
        "keeps v_new in bf16 whatever the policy",
        "(u.to(tl.float32) - product(wy, snapshot)).to(V_NEW)",
        f"(u.to(tl.float32) - product(wy, snapshot)){_BF16}.to(V_NEW)",
    ),
    fault(
        "chunk_states",
        "pass_states",
        "leaves the scale out of what the state gives",
        "scale * product(qg, snapshot)",
        "product(qg, snapshot)",
    ),
    fault(
        "chunk_states",
        "pass_states",
        "answers for one token of a chunk with a quarter more",
        "product(scores, v_new, kg)\n",
        "product(scores, v_new, kg)\n"
        "            o *= tl.where(tl.arange(0, CHUNK) == 37, 1.25, 1.0)[:, None]\n",
    ),
    fault(
        "chunk_states",
        "pass_states",
        "leaves nobody's rows of o as they were",
        "for row in range(first, end, CHUNK)",
        "for row in range(first, first)",
        "memory",
    ),
    fault(
        "chunk_states",
        "state_places",
        "reaches past K in a state",
        "(row < K) & (column < V)",
        "(row < PADDED_K) & (column < V)",
        "memory",
    ),
)
WITHIN = (
    fault(
        "chunk_intra",
        "solve",
        "includes the diagonal in L",
        "store_tile(inverse_ptr, tile, inverted(joined(within, quarters, half)))",
        "k = load_unit(k_ptr, norm, first, end, heads, shared, 0, K, PADDED_K, QK)\n"
        "    bk = load_gate(b_ptr, first, end, HEADS, head, 0, K, PADDED_K, SCALAR) * k\n"
        "    more = 1.0 + tl.sum(bk * k, 1)\n"
        "    lower = joined(within, quarters, half) / more[:, None]\n"
        "    inverse = inverted(lower) / more[None, :]\n"
        "    store_tile(inverse_ptr, tile, inverse)",
    ),
    fault(
        "chunk_intra",
        "solve",
        "puts b on the column side",
        "bk, k, decay,",
        "k, bk, decay,",
    ),
    fault(
        "chunk_intra",
        "solve",
        "squares b in L",
        "bk, k, decay,",
        "bk * load_gate(b_ptr, first, end, HEADS, head, column, K, BLOCK_K, SCALAR), k, decay,",
    ),
    fault(
        "chunk_intra",
        "relate",
        "scales the scores twice",
        "scores * scale",
        "scores * scale * scale",
    ),
    fault(
        "chunk_intra",
        "relate",
        "keeps scores in bf16 whatever the policy",
        "scores * scale",
        f"(scores * scale){_BF16}",
    ),
    fault(
        "chunk_intra",
        "represent",
        "keeps u in bf16 whatever the policy",
        ".to(u_ptr.dtype.element_ty)",
        f"{_BF16}.to(u_ptr.dtype.element_ty)",
    ),
    fault(
        "chunk_intra",
        "relate",
        "leaves the scores above the diagonal unwritten",
        "store_tile(scores_ptr, tile, scores * scale)",
        "place = columns_of(scores_ptr, tile, 0, CHUNK, CHUNK, CHUNK)\n"
        "    kept = (scores * scale).to(scores_ptr.dtype.element_ty)\n"
        "    tl.store(place, kept, mask=row[:, None] >= row[None, :])",
        "reproducibility",
    ),
    fault(
        "chunk_intra",
        "decays",
        "decays past a sequence's end",
        "(row < end)[:, None] & ",
        "(row >= first)[:, None] & ",
    ),
    fault(
        "chunk_intra",
        "decays",
        "adds dt_bias outside of the product",
        _RAW_DECAY,
        "raw = biased(g_ptr, None, first, end, HEADS, head, column, K, BLOCK_K)\n"
        "    a = factor(a_log_ptr, head)\n"
        "    g = activated(raw + (x - raw) / a, a, lower_bound, GATE)",
    ),
    fault(
        "tiles",
        "half_factors",
        "counts decays from a row later on",
        "load_decays(decay_ptr, tile, first_lower,",
        "load_decays(decay_ptr, tile, first_lower + ((first_lower & -first_lower) >> 1),",
    ),
    on_card(
        "tiles",
        "near_factors",
        "anchors a block of 16 at its middle row",
        "load_decays(decay_ptr, tile, anchor,",
        "load_decays(decay_ptr, tile, anchor + 8,",
        because="a default run has too few examples of the invariances there; "
        "test_an_anchor_ahead_is_seen gives it one",
        caught_by="invariances",
    ),
    fault(
        "tiles",
        "factor",
        "reads the first head's A_log in every head",
        "a_log_ptr + head",
        "a_log_ptr + head * 0",
    ),
    fault(
        "tiles",
        "biased",
        "reads the first head's dt_bias in every head",
        "bias_ptr + head * WIDTH",
        "bias_ptr + head * 0",
    ),
    fault(
        "tiles",
        "inverse_norm",
        "adds the norm's eps outside of the root",
        "tl.sqrt_rn(tl.sum(x * x, 1) + EPSILON)",
        "(tl.sqrt_rn(tl.sum(x * x, 1)) + EPSILON)",
    ),
    fault("tiles", "EPSILON", "divides by a norm of zero", "1e-6", "0.0"),
    fault(
        "tiles",
        "load_rows",
        "reads past K into the next head",
        "mask=mask",
        "mask=(first + tl.arange(0, CHUNK) < end)[:, None] & (column + tl.arange(0, BLOCK) >= 0)",
    ),
    fault(
        "tiles",
        "find_chunk",
        "cuts chunks at multiples of 64 wherever sequences begin",
        "start + (number - ends + chunks) * CHUNK",
        "start // CHUNK * CHUNK + (number - ends + chunks) * CHUNK",
    ),
    fault(
        "tiles",
        "find_chunk",
        "allots a chunk to an empty sequence",
        "chunks = tl.cdiv(stop - start, CHUNK)",
        "chunks = tl.maximum(tl.cdiv(stop - start, CHUNK), 1)",
    ),
    on_card(
        "arguments",
        "Operands",
        "sizes the table of sequences by the tokens",
        "triton.next_power_of_2(self.sequences + 1)",
        "triton.next_power_of_2(max(self.sequences, len(self.q)) + 1)",
        because=INTERPRETED,
        caught_by="compile_cache",
    ),
    fault(
        "chunk_fwd",
        "forward",
        "answers with o in fp32 whatever the operands",
        "torch.empty_like(x.v)",
        "torch.empty_like(x.v, dtype=torch.float32)",
    ),
    specialised("chunk_intra", "solve"),
)
SCALAR = (
    fault(
        "tiles",
        "load_gate",
        "reads the first head's beta in every head",
        "one = load_rows(ptr, first, end, heads, head, 0, 1, 1)",
        "one = load_rows(ptr, first, end, heads, 0, 0, 1, 1)",
    ),
    fault(
        "chunk_intra",
        "represent",
        "leaves beta out of u",
        "(w * v).to(WRITE)",
        "v.to(WRITE)",
    ),
    fault(
        "chunk_intra",
        "relate",
        "takes another head's q for a value head",
        "shared, heads = head // GROUPS,",
        "shared, heads = head % (HEADS // GROUPS),",
    ),
    fault(
        "tiles",
        "load_unit",
        "promotes after the norm",
        "(x * norm).to(STORED)",
        "(x * norm).to(ptr.dtype.element_ty).to(STORED)",
    ),
    fault(
        "chunk_fwd",
        "stored_types",
        "stores in the operands' type whatever the policy",
        "return torch.float32 if name in precision.fp32 else dtype",
        "return dtype",
    ),
    on_card(
        "chunk_states",
        "pass_states",
        "drops the third chunk",
        "range(tl.cdiv(end - first, CHUNK))",
        "range(tl.minimum(tl.cdiv(end - first, CHUNK), 2))",
        because="the interpreter's cases seldom have three chunks; "
        "test_a_dropped_third_chunk_is_seen gives it one",
    ),
    fault(
        "tiles",
        "find_sequence",
        "passes the states of the sequence before on",
        "index < number, tl.cdiv",
        "index < number - 1, tl.cdiv",
    ),
    fault(
        "chunk_states",
        "pass_states",
        "answers with the final state as products read it",
        "tl.store(given, state, mask=inside)",
        "tl.store(given, state.to(STATE).to(tl.float32), mask=inside)",
    ),
)
TOKENS = (
    fault(
        "recurrent",
        "recurrent",
        "begins at what the final state's memory holds",
        _UNINITIALISED,
        "place, mask = state_places(\n"
        "            final_ptr, number, first_column, K, V, V_FIRST, PADDED_K, BLOCK_V\n"
        "        )\n"
        "        state = tl.load(place, mask=mask, other=0.0)",
        "reproducibility",
    ),
    fault(
        "recurrent",
        "recurrent",
        "reads the state before it is written",
        "        state += k[:, None] * v_new[None, :]\n        o = scale * tl.sum(q[:, None] * state, 0)\n",
        "        o = scale * tl.sum(q[:, None] * state, 0)\n        state += k[:, None] * v_new[None, :]\n",
    ),
    fault(
        "recurrent",
        "recurrent",
        "erases before it decays",
        "        state = decay[:, None] * state\n"
        "        v_new = write - tl.sum(erase[:, None] * state, 0)\n",
        "        v_new = write - tl.sum(erase[:, None] * state, 0)\n"
        "        state = decay[:, None] * state\n",
    ),
    fault(
        "recurrent",
        "recurrent",
        "carries the state on from one sequence to the next",
        "    for row in range(first, end):\n        shared",
        "    for row in range(0, end):\n        shared",
    ),
    fault(
        "recurrent",
        "recurrent",
        "leaves out a sequence's last token",
        "    for row in range(first, end):\n        shared",
        "    for row in range(first, end - 1):\n        shared",
        "memory",
    ),
    fault(
        "recurrent",
        "recurrent",
        "reads the first head's dt_bias in every head",
        "bias_ptr + head * K",
        "bias_ptr + head * 0",
    ),
    fault(
        "recurrent",
        "unit",
        "adds the norm's eps outside of the root",
        "tl.sqrt_rn(tl.sum(x * x, 0) + EPSILON)",
        "(tl.sqrt_rn(tl.sum(x * x, 0)) + EPSILON)",
    ),
    fault(
        "recurrent",
        "unit",
        "rounds normalised q and k",
        "EPSILON)",
        f"EPSILON)\n        x = x{_BF16}",
    ),
    fault(
        "recurrent",
        "unit",
        "normalises in bf16",
        "x / tl.sqrt_rn(tl.sum(x * x, 0) + EPSILON)",
        f"(x / tl.sqrt_rn(tl.sum(x * x, 0) + EPSILON){_BF16}){_BF16}",
    ),
    fault("tiles", "factor", "takes e for an absent A_log's factor", "a = 1.0", "a = 2.7182817"),
    fault(
        "recurrent",
        "forward",
        "answers with o in fp32 whatever the operands",
        "torch.empty_like(x.v)",
        "torch.empty_like(x.v, dtype=torch.float32)",
    ),
    specialised("recurrent", "recurrent"),
)
SCALAR_TOKENS = (
    fault(
        "recurrent",
        "recurrent",
        "leaves beta out of what is written",
        "erase, write = beta * k, beta * v",
        "erase, write = beta * k, v",
    ),
    fault(
        "recurrent",
        "recurrent",
        "reads the first head's beta in every head",
        "tl.load(b_ptr + mine)",
        "tl.load(b_ptr + row.to(tl.int64) * HEADS)",
    ),
    fault(
        "recurrent",
        "recurrent",
        "rounds o through bf16",
        "o.to(o_ptr.dtype.element_ty)",
        "o.to(tl.bfloat16).to(o_ptr.dtype.element_ty)",
    ),
    fault(
        "recurrent",
        "recurrent",
        "transposes the initial state alone",
        "state_places(final_ptr, number, first_column, K, V, V_FIRST,",
        "state_places(final_ptr, number, first_column, K, V, False,",
    ),
)
