"""Planted faults of the delta rule token by token, see `kernels.delta.faults`."""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Fault

_in_gates = partial(Fault, module="bitproof.kernels.delta.gates", caught_by="agreement")
_in_recurrent = partial(Fault, module="bitproof.kernels.delta.recurrent", caught_by="agreement")

_BF16 = ".to(tl.bfloat16).to(tl.float32)"
_UNINITIALISED = "state = tl.zeros((PADDED_K, BLOCK_V), tl.float32)"

TOKENS = (
    _in_recurrent(
        name="begins at what the final state's memory holds",
        within="recurrent",
        old=_UNINITIALISED,
        new=(
            "place, mask = state_places(\n"
            "            final_ptr, number, first_column, K, V, V_FIRST, PADDED_K, BLOCK_V\n"
            "        )\n"
            "        state = tl.load(place, mask=mask, other=0.0)"
        ),
        caught_by="reproducibility",
    ),
    _in_recurrent(
        name="reads the state before it is written",
        within="recurrent",
        old=(
            "        state += k[:, None] * v_new[None, :]\n"
            "        o = scale * tl.sum(q[:, None] * state, 0)\n"
        ),
        new=(
            "        o = scale * tl.sum(q[:, None] * state, 0)\n"
            "        state += k[:, None] * v_new[None, :]\n"
        ),
    ),
    _in_recurrent(
        name="erases before it decays",
        within="recurrent",
        old=(
            "        state = decay[:, None] * state\n"
            "        v_new = write - tl.sum(erase[:, None] * state, 0)\n"
        ),
        new=(
            "        v_new = write - tl.sum(erase[:, None] * state, 0)\n"
            "        state = decay[:, None] * state\n"
        ),
    ),
    _in_recurrent(
        name="carries the state on from one sequence to the next",
        within="recurrent",
        old="    for row in range(first, end):\n        shared",
        new="    for row in range(0, end):\n        shared",
    ),
    _in_recurrent(
        name="leaves out a sequence's last token",
        within="recurrent",
        old="    for row in range(first, end):\n        shared",
        new="    for row in range(first, end - 1):\n        shared",
        caught_by="memory",
    ),
    _in_recurrent(
        name="reads the first head's dt_bias in every head",
        within="recurrent",
        old="bias_ptr + head * K",
        new="bias_ptr + head * 0",
    ),
    _in_recurrent(
        name="adds the norm's eps outside of the root",
        within="unit",
        old="tl.sqrt_rn(tl.sum(x * x, 0) + EPSILON)",
        new="(tl.sqrt_rn(tl.sum(x * x, 0)) + EPSILON)",
    ),
    _in_recurrent(
        name="rounds normalised q and k",
        within="unit",
        old="EPSILON)",
        new=f"EPSILON)\n        x = x{_BF16}",
    ),
    _in_recurrent(
        name="normalises in bf16",
        within="unit",
        old="x / tl.sqrt_rn(tl.sum(x * x, 0) + EPSILON)",
        new=f"(x / tl.sqrt_rn(tl.sum(x * x, 0) + EPSILON){_BF16}){_BF16}",
    ),
    _in_gates(
        name="takes e for an absent A_log's factor",
        within="factor",
        old="a = 1.0",
        new="a = 2.7182817",
    ),
    _in_recurrent(
        name="answers with o in fp32 whatever the operands",
        within="forward",
        old="torch.empty_like(x.v)",
        new="torch.empty_like(x.v, dtype=torch.float32)",
    ),
    _in_recurrent(
        name="specialises on the token count",
        within="recurrent",
        old='do_not_specialize=["tokens", "sequences"]',
        new='do_not_specialize=["sequences"]',
        caught_by="compile_cache",
    ),
)
SCALAR_TOKENS = (
    _in_recurrent(
        name="leaves beta out of what is written",
        within="recurrent",
        old="erase, write = beta * k, beta * v",
        new="erase, write = beta * k, v",
    ),
    _in_recurrent(
        name="reads the first head's beta in every head",
        within="recurrent",
        old="tl.load(b_ptr + mine)",
        new="tl.load(b_ptr + row.to(tl.int64) * HEADS)",
    ),
    _in_recurrent(
        name="rounds o through bf16",
        within="recurrent",
        old="o.to(o_ptr.dtype.element_ty)",
        new="o.to(tl.bfloat16).to(o_ptr.dtype.element_ty)",
    ),
    _in_recurrent(
        name="transposes the initial state alone",
        within="recurrent",
        old="state_places(final_ptr, number, first_column, K, V, V_FIRST,",
        new="state_places(final_ptr, number, first_column, K, V, False,",
    ),
)
