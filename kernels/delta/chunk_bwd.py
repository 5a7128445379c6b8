"""The backward pass of the gated delta rule by chunks, deterministic: no atomics, sums in a fixed order.

What is computed is `oracles.delta.recurrence.adjoint`; `kernels.delta.arguments` says what callers pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bitproof.harness.case import Launch
from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.delta.arguments import CHUNK, Operands, Options, name_gates, of_case
from bitproof.kernels.delta.chunk_fwd import (
    TRITON,
    Saved,
    fill_states,
    forward,
    how,
    prepare,
    state_columns,
    stored_types,
    tile_bytes,
)
from bitproof.kernels.delta.chunk_intra_bwd import of_products, of_scores, of_units
from bitproof.kernels.delta.chunk_states import pass_gradients


def backward(
    x: Operands,
    options: Options,
    launch: Launch | None,
    do: Tensor,
    dfinal: Tensor,
    saved: Saved | None = None,
) -> dict[str, Tensor]:
    """Gradients by name: dq, dk, dv, dg, db and dw or dbeta in their operands' types, the rest in fp32.

    `do` is [T, HV, V] as v, `dfinal` fp32 like the final state. `saved` must be what `forward` retained of
    the same operands and options, which is not checked; without it the forward pass's intermediates are
    computed again. d_initial_state is there even where there was no initial state, and with raw gates dA_log
    and ddt_bias even where there is no such parameter: those at zero.

    ValueError where `do` or `dfinal` do not fit and, without `saved`, as `require_assembler` raises it;
    AssertionError where `saved` has no states or v_new.
    """
    x.require_gradients(do, dfinal)
    if saved is None:
        saved = prepare(x, options, launch, keep=True)
        fill_states(x, options, launch, saved, None, None)
    assert saved.states is not None
    assert saved.v_new is not None
    stored = stored_types(options.precision, x.v.dtype)
    dv_new = torch.empty_like(saved.v_new, dtype=stored("dv_new"))
    dstates = torch.empty_like(saved.states, dtype=stored("dstate"))
    dinitial = torch.empty_like(dfinal)
    padded_v = x.padded_values
    block_v = state_columns(x)
    scale = options.scale_of(x.keys)
    step = tile_bytes(saved.wy, saved.qg, saved.kg, saved.scores)
    step += CHUNK * block_v * do.element_size()
    pass_gradients[(padded_v // block_v, x.value_heads, x.sequences)](
        saved.wy,
        saved.qg,
        saved.kg,
        saved.scores,
        saved.decay,
        do,
        dfinal,
        x.cu_seqlens,
        dv_new,
        dstates,
        dinitial,
        len(x.q),
        x.sequences,
        scale,
        V=x.values,
        V_FIRST=x.state_v_first,
        DSTATE=TRITON[stored("dstate")],
        DV_NEW=TRITON[stored("dv_new")],
        PADDED_V=padded_v,
        BLOCK_V=block_v,
        **x.meta,
        **how("pass_gradients", launch, step),
    )
    return _operand_gradients(x, options, saved, do, dv_new, dstates, scale, launch) | {
        "d_initial_state": dinitial
    }


def _operand_gradients(
    x: Operands,
    options: Options,
    saved: Saved,
    do: Tensor,
    dv_new: Tensor,
    dstates: Tensor,
    scale: float,
    launch: Launch | None,
) -> dict[str, Tensor]:
    """All gradients but the initial state's, by name, from those of o, of v_new and of states at chunk ends.

    `dv_new` is [chunks, HV, 64, padded V], `dstates` [chunks, HV, padded K, padded V], in the policy's types.
    """
    stored = stored_types(options.precision, x.v.dtype)
    meta, padded_v = x.meta, x.padded_values
    chunks, padded_k = x.most_chunks, meta["PADDED_K"]
    block_k = min(32, padded_k)
    blocks = padded_k // block_k
    tokens, heads = len(x.q), x.value_heads
    shared = {
        "GROUPS": x.groups,
        "NORMALISE": options.normalise,
        "SCALAR": x.scalar,
        "QK": TRITON[stored("qk")],
        "PARTS": blocks + 1,
    }

    def room(*shape: int) -> Tensor:
        return x.q.new_empty(shape, dtype=torch.float32)

    by_keys = [room(chunks, heads, CHUNK, padded_k) for _ in range(3)]
    dpairs = room(chunks, heads, 2 * CHUNK, CHUNK)
    dlast = room(chunks, heads, padded_k)
    dv = torch.empty_like(x.v)
    dbeta = room(tokens, heads, blocks + 1) if x.scalar else None
    db, dw = (torch.empty_like(gate) if dbeta is None else dbeta for gate in (x.b, x.w))
    of_products[(chunks, heads)](
        x.k,
        x.v,
        x.b,
        x.w,
        x.cu_seqlens,
        saved.decay,
        saved.inverse,
        saved.states,
        saved.v_new,
        do,
        dv_new,
        dstates,
        *by_keys,
        dpairs,
        dlast,
        dv,
        dw,
        tokens,
        x.sequences,
        scale,
        V=x.values,
        WRITE=TRITON[stored("write")],
        ERASE=TRITON[stored("erase")],
        DW=TRITON[stored("dw")],
        DINVERSE=TRITON[stored("dinverse")],
        PADDED_V=padded_v,
        BLOCK_V=min(32, padded_v),
        **shared,
        **meta,
        **how("of_products", launch),
    )
    dq_rows, dk_rows = (room(tokens, heads, x.keys) for _ in range(2))
    dg = torch.empty_like(x.g)
    da_log = None if options.gate == "log" else room(chunks, heads, blocks)
    dbias = None if options.gate == "log" else room(chunks, heads, padded_k)
    of_scores[(chunks, heads, blocks)](
        x.q,
        x.k,
        x.g,
        x.b,
        x.a_log,
        x.dt_bias,
        x.cu_seqlens,
        saved.decay,
        *by_keys,
        dpairs,
        dlast,
        dq_rows,
        dk_rows,
        dg,
        db,
        da_log,
        dbias,
        tokens,
        x.sequences,
        options.lower_bound,
        GATE=options.gate,
        BOUNDED=options.shallow,
        BLOCK_K=block_k,
        **shared,
        **meta,
        **how("of_scores", launch),
    )
    found = {"dv": dv, "dg": dg}
    for name, operand, rows in (("dq", x.q, dq_rows), ("dk", x.k, dk_rows)):
        found[name] = torch.empty_like(operand)
        of_units[(-(-tokens // CHUNK), x.heads)](
            operand,
            rows,
            x.cu_seqlens,
            found[name],
            tokens,
            x.sequences,
            x.heads,
            GROUPS=shared["GROUPS"],
            K=x.keys,
            NORMALISE=options.normalise,
            PADDED_K=padded_k,
            **how("of_units", launch),
        )
    if dbeta is not None:
        db = dw = dbeta.sum(-1).to(x.b.dtype)
    found |= name_gates(x, db, dw)
    if da_log is not None and dbias is not None:
        found["dA_log"] = da_log.sum((0, 2))
        found["ddt_bias"] = dbias.sum(0)[:, : x.keys].contiguous()
    return found


def launch(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`backward` on the tensors of a case, after a forward pass that retains its intermediates or not."""
    if not {"do", "dht"} <= set(tensors):
        raise ValueError("a backward pass needs do and dht, the gradients of o and of final states")
    x, options = of_case(tensors, params)
    configured = params["launch"]
    saved = forward(x, options, configured, retain=True)[2] if params["retain"] else None
    return backward(x, options, configured, tensors["do"], tensors["dht"], saved)
