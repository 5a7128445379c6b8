"""The gated delta rule token by token, forward: what decoding and short prompts run.

One program carries BLOCK_V columns of the state of one sequence and value head through its tokens, in
fp32; nothing but the output is rounded. `kernels.delta.arguments` says what callers pass.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness.case import Launch
from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.delta.arguments import Operands, Options, of_case
from bitproof.kernels.delta.chunk_states import state_places
from bitproof.kernels.delta.gates import activated, factor
from bitproof.kernels.delta.tiles import EPSILON, find_sequence, natural_exp

BLOCK_V = 32


@triton.jit
def unit(ptr, place, inside, NORMALISE: tl.constexpr):
    """One row of q or k in fp32, normalised if asked for."""
    x = tl.load(ptr + place, mask=inside, other=0.0).to(tl.float32)
    if NORMALISE:
        x = x / tl.sqrt_rn(tl.sum(x * x, 0) + EPSILON)
    return x


@triton.jit(do_not_specialize=["tokens", "sequences"])
def recurrent(
    q_ptr,
    k_ptr,
    v_ptr,
    g_ptr,
    b_ptr,
    w_ptr,
    a_log_ptr,
    bias_ptr,
    cu_ptr,
    initial_ptr,
    o_ptr,
    final_ptr,
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
    V_FIRST: tl.constexpr,
    N: tl.constexpr,
    PADDED_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Sequence `program_id(2)`, value head `program_id(1)`, columns `program_id(0)` of the state.

    Writes o [T, HEADS, V] in its own type, zeros in slack rows, and the final state in fp32,
    [sequences, HEADS, K, V], its last two axes swapped if V_FIRST.
    """
    first_column, head, sequence = (
        tl.program_id(0) * BLOCK_V,
        tl.program_id(1),
        tl.program_id(2),
    )
    first, end, _ = find_sequence(cu_ptr, tokens, sequences, sequence, N)
    key, column = tl.arange(0, PADDED_K), first_column + tl.arange(0, BLOCK_V)
    inside, inside_v = key < K, column < V
    if sequence == sequences:
        for row in range(first, end):
            place = (row.to(tl.int64) * HEADS + head) * V + column
            tl.store(o_ptr + place, tl.zeros((BLOCK_V,), o_ptr.dtype.element_ty), mask=inside_v)
        return
    number = sequence * HEADS + head
    if initial_ptr is None:
        state = tl.zeros((PADDED_K, BLOCK_V), tl.float32)
    else:
        place, mask = state_places(
            initial_ptr, number, first_column, K, V, V_FIRST, PADDED_K, BLOCK_V
        )
        state = tl.load(place, mask=mask, other=0.0)
    a = factor(a_log_ptr, head)
    bias = tl.zeros((PADDED_K,), tl.float32)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + head * K + key, mask=inside, other=0.0)
    for row in range(first, end):
        shared = (row.to(tl.int64) * (HEADS // GROUPS) + head // GROUPS) * K + key
        mine = row.to(tl.int64) * HEADS + head
        q = unit(q_ptr, shared, inside, NORMALISE)
        k = unit(k_ptr, shared, inside, NORMALISE)
        x = tl.load(g_ptr + mine * K + key, mask=inside, other=0.0).to(tl.float32) + bias
        decay = natural_exp(activated(x, a, lower_bound, GATE))
        v = tl.load(v_ptr + mine * V + column, mask=inside_v, other=0.0).to(tl.float32)
        if SCALAR:
            beta = tl.load(b_ptr + mine).to(tl.float32)
            erase, write = beta * k, beta * v
        else:
            erase = tl.load(b_ptr + mine * K + key, mask=inside, other=0.0).to(tl.float32) * k
            w = tl.load(w_ptr + mine * V + column, mask=inside_v, other=0.0).to(tl.float32)
            write = w * v
        state = decay[:, None] * state
        v_new = write - tl.sum(erase[:, None] * state, 0)
        state += k[:, None] * v_new[None, :]
        o = scale * tl.sum(q[:, None] * state, 0)
        tl.store(o_ptr + mine * V + column, o.to(o_ptr.dtype.element_ty), mask=inside_v)
    place, mask = state_places(final_ptr, number, first_column, K, V, V_FIRST, PADDED_K, BLOCK_V)
    tl.store(place, state, mask=mask)


def forward(x: Operands, options: Options, launch: Launch | None) -> tuple[Tensor, Tensor]:
    """(o [T, HV, V] as v, final state fp32); `options.precision` has nothing to say here.

    `launch` None takes the usual one; its block has nothing to say.
    """
    launch = launch or Launch()
    o = torch.empty_like(x.v)
    final = x.q.new_empty(x.state_shape, dtype=torch.float32)
    block = min(BLOCK_V, x.padded_values)
    recurrent[(x.padded_values // block, x.value_heads, x.sequences + 1)](
        x.q,
        x.k,
        x.v,
        x.g,
        x.b,
        x.w,
        x.a_log,
        x.dt_bias,
        x.cu_seqlens,
        x.initial_state,
        o,
        final,
        len(x.q),
        x.sequences,
        options.scale_of(x.keys),
        options.lower_bound,
        GROUPS=x.groups,
        V=x.values,
        GATE=options.gate,
        NORMALISE=options.normalise,
        SCALAR=x.scalar,
        V_FIRST=x.state_v_first,
        BLOCK_V=block,
        **x.meta,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    return o, final


def launch(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`forward` on the tensors of a case: o and final_state."""
    x, options = of_case(tensors, params)
    o, final = forward(x, options, params["launch"])
    return {"o": o, "final_state": final}
