"""The gated delta rule by chunks of 64 tokens, forward and backward.

What is computed is `oracles.delta`'s recurrence; `kernels.delta_contract` says what callers pass. Nothing
waits for the device: how many chunks there are is found where they are computed. A `Precision` policy says
which intermediates are kept in fp32; public types do not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from harness.case import Launch
from harness.spec import Params, Tensors
from kernels.delta_contract import CHUNK, Operands, Options, named_gates, of_case
from kernels.delta_gradients import of_products, of_scores, of_units
from kernels.delta_states import pass_gradients, pass_states
from kernels.delta_within import decays, relate, represent, solve
from oracles.precision import Precision

_TRITON = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}

# (warps, stages) of each kernel for callers who leave the launch to it; measured on an H200, see
# docs/measurements.md.
_TUNED = {
    "decays": (4, 2),
    "relate": (4, 3),
    "solve": (4, 3),
    "represent": (4, 2),
    "pass_states": (4, 3),
    "pass_gradients": (8, 2),
    "of_products": (8, 2),
    "of_scores": (8, 2),
    "of_units": (4, 2),
}
# Programs that fill an H200's 132 multiprocessors, about: from there on the passes take wider columns.
_MANY = 64


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A forward pass's intermediates by chunk and value head, in the types that the policy gives them."""

    scores: Tensor
    wy: Tensor
    qg: Tensor
    kg: Tensor
    u: Tensor
    decay: Tensor
    inverse: Tensor
    states: Tensor | None
    v_new: Tensor | None


def forward(
    x: Operands, options: Options, launch: Launch | None, *, retain: bool = False
) -> tuple[Tensor, Tensor, Saved | None]:
    """(o [T, HV, V] as v, final state fp32, what `backward` can use again if `retain`).

    `launch` None takes what is fastest; its block is at most how many columns a program takes at a time.
    """
    saved = _within(x, options, launch, keep=retain)
    o = torch.empty_like(x.v)
    final = x.q.new_empty(x.state_shape, dtype=torch.float32)
    _pass_states(x, options, launch, saved, o, final)
    return o, final, saved if retain else None


def backward(
    x: Operands,
    options: Options,
    launch: Launch | None,
    do: Tensor,
    dfinal: Tensor,
    saved: Saved | None = None,
) -> dict[str, Tensor]:
    """Gradients by name: dq, dk, dv, dg, db and dw or dbeta in their operands' types, the rest in fp32.

    `do` is [T, HV, V] as v, `dfinal` fp32 like the final state. Without `saved` the forward pass's
    intermediates are computed again. d_initial_state is there even where there was no initial state, and
    with raw gates dA_log and ddt_bias even where there is no such parameter: those at zero. ValueError
    where `do` or `dfinal` do not fit.
    """
    x.require_gradients(do, dfinal)
    if saved is None:
        saved = _within(x, options, launch, keep=True)
        _pass_states(x, options, launch, saved, None, None)
    assert saved.states is not None
    assert saved.v_new is not None
    stored = _types(options.precision, x.v.dtype)
    dv_new = torch.empty_like(saved.v_new, dtype=stored("dv_new"))
    dstates = torch.empty_like(saved.states, dtype=stored("dstate"))
    dinitial = torch.empty_like(dfinal)
    padded_v = x.padded_values
    block_v = _columns(x, launch)
    scale = _scale(x, options)
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
        DSTATE=_TRITON[stored("dstate")],
        DV_NEW=_TRITON[stored("dv_new")],
        PADDED_V=padded_v,
        BLOCK_V=block_v,
        **x.meta,
        **_how("pass_gradients", launch),
    )
    return _operand_gradients(x, options, saved, do, dv_new, dstates, scale, launch) | {
        "d_initial_state": dinitial
    }


def _within(x: Operands, options: Options, launch: Launch | None, *, keep: bool) -> Saved:
    stored = _types(options.precision, x.v.dtype)
    meta, padded_v = x.meta, x.padded_values
    chunks, padded_k = x.most_chunks, meta["PADDED_K"]

    def room(name: str, *shape: int) -> Tensor:
        kind = torch.float32 if name == "decay" else stored(name)
        return x.q.new_empty((chunks, x.value_heads, *shape), dtype=kind)

    saved = Saved(
        scores=room("scores", CHUNK, CHUNK),
        wy=room("w", CHUNK, padded_k),
        qg=room("qg", CHUNK, padded_k),
        kg=room("kg", CHUNK, padded_k),
        u=room("u", CHUNK, padded_v),
        decay=room("decay", CHUNK, padded_k),
        inverse=room("inverse", CHUNK, CHUNK),
        states=room("state", padded_k, padded_v) if keep else None,
        v_new=room("v_new", CHUNK, padded_v) if keep else None,
    )
    block_k = _block(launch, 32, padded_k)
    wide_k, wide_v = _block(launch, 64, padded_k), _block(launch, 64, padded_v)
    decays[(chunks, x.value_heads, padded_k // wide_k)](
        x.g,
        x.a_log,
        x.dt_bias,
        x.cu_seqlens,
        saved.decay,
        len(x.q),
        x.sequences,
        options.lower_bound,
        GATE=options.gate,
        BLOCK_K=wide_k,
        **meta,
        **_how("decays", launch),
    )
    shared = {
        "GROUPS": x.value_heads // x.heads,
        "NORMALISE": options.normalise,
        "QK": _TRITON[stored("qk")],
    }
    bounded = options.gate == "bounded" or options.bounded
    relate[(chunks, x.value_heads)](
        x.q,
        x.k,
        x.cu_seqlens,
        saved.decay,
        saved.scores,
        saved.qg,
        saved.kg,
        len(x.q),
        x.sequences,
        _scale(x, options),
        BOUNDED=bounded,
        BLOCK_K=block_k,
        **shared,
        **meta,
        **_how("relate", launch),
    )
    solve[(chunks, x.value_heads)](
        x.k,
        x.b,
        x.cu_seqlens,
        saved.decay,
        saved.inverse,
        len(x.q),
        x.sequences,
        SCALAR=x.scalar,
        BOUNDED=bounded,
        BLOCK_K=block_k,
        **shared,
        **meta,
        **_how("solve", launch),
    )
    represent[(chunks, x.value_heads)](
        x.k,
        x.v,
        x.b,
        x.w,
        x.cu_seqlens,
        saved.decay,
        saved.inverse,
        saved.u,
        saved.wy,
        len(x.q),
        x.sequences,
        V=x.values,
        SCALAR=x.scalar,
        WRITE=_TRITON[stored("write")],
        ERASE=_TRITON[stored("erase")],
        PADDED_V=padded_v,
        BLOCK_K=wide_k,
        BLOCK_V=wide_v,
        **shared,
        **meta,
        **_how("represent", launch),
    )
    return saved


def _pass_states(
    x: Operands,
    options: Options,
    launch: Launch | None,
    saved: Saved,
    o: Tensor | None,
    final: Tensor | None,
) -> None:
    stored = _types(options.precision, x.v.dtype)
    padded_v = x.padded_values
    block_v = _columns(x, launch)
    pass_states[(padded_v // block_v, x.value_heads, x.sequences + 1)](
        saved.u,
        saved.wy,
        saved.qg,
        saved.kg,
        saved.scores,
        saved.decay,
        x.cu_seqlens,
        x.initial_state,
        o,
        final,
        saved.states,
        saved.v_new,
        len(x.q),
        x.sequences,
        _scale(x, options),
        V=x.values,
        V_FIRST=x.state_v_first,
        STATE=_TRITON[stored("state")],
        V_NEW=_TRITON[stored("v_new")],
        PADDED_V=padded_v,
        BLOCK_V=block_v,
        **x.meta,
        **_how("pass_states", launch),
    )


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
    stored = _types(options.precision, x.v.dtype)
    meta, padded_v = x.meta, x.padded_values
    chunks, padded_k = x.most_chunks, meta["PADDED_K"]
    block_k = _block(launch, 32, padded_k)
    blocks = padded_k // block_k
    tokens, heads = len(x.q), x.value_heads
    shared = {
        "GROUPS": heads // x.heads,
        "NORMALISE": options.normalise,
        "SCALAR": x.scalar,
        "QK": _TRITON[stored("qk")],
        "PARTS": blocks + 1,
    }

    def room(*shape: int) -> Tensor:
        return x.q.new_empty(shape, dtype=torch.float32)

    by_keys = [room(chunks, heads, CHUNK, padded_k) for _ in range(3)]
    dscores, dlower = (room(chunks, heads, CHUNK, CHUNK) for _ in range(2))
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
        dscores,
        dlower,
        dlast,
        dv,
        dw,
        tokens,
        x.sequences,
        scale,
        V=x.values,
        WRITE=_TRITON[stored("write")],
        ERASE=_TRITON[stored("erase")],
        DW=_TRITON[stored("dw")],
        DINVERSE=_TRITON[stored("dinverse")],
        PADDED_V=padded_v,
        BLOCK_V=_block(launch, 32, padded_v),
        **shared,
        **meta,
        **_how("of_products", launch),
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
        dscores,
        dlower,
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
        BOUNDED=options.gate == "bounded" or options.bounded,
        BLOCK_K=block_k,
        **shared,
        **meta,
        **_how("of_scores", launch),
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
            **_how("of_units", launch),
        )
    if dbeta is not None:
        db = dw = dbeta.sum(-1).to(x.b.dtype)
    found |= named_gates(x, db, dw)
    if da_log is not None and dbias is not None:
        found["dA_log"] = da_log.sum((0, 2))
        found["ddt_bias"] = dbias.sum(0)[:, : x.keys].contiguous()
    return found


def _how(kernel: str, launch: Launch | None) -> dict[str, int]:
    warps, stages = (launch.num_warps, launch.num_stages) if launch else _TUNED[kernel]
    return {"num_warps": warps, "num_stages": stages}


def _block(launch: Launch | None, width: int, padded: int) -> int:
    """So many columns at a time, `launch.block` at most."""
    return min(width, padded, launch.block if launch else width)


def _columns(x: Operands, launch: Launch | None) -> int:
    """Columns of a state that one program carries."""
    return _block(launch, 64 if x.value_heads * x.sequences >= _MANY else 32, x.padded_values)


def _scale(x: Operands, options: Options) -> float:
    return x.keys**-0.5 if options.scale is None else options.scale


def _types(precision: Precision, dtype: torch.dtype) -> Any:
    def of(name: str) -> torch.dtype:
        return torch.float32 if name in precision.fp32 else dtype

    return of


def launch(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`forward` on the tensors of a case: o and final_state."""
    x, options = of_case(tensors, params)
    o, final, _ = forward(x, options, params["launch"])
    return {"o": o, "final_state": final}


def launch_vjp(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`backward` on the tensors of a case, after a forward pass that retains its intermediates or not."""
    x, options = of_case(tensors, params)
    how = params["launch"]
    saved = forward(x, options, how, retain=True)[2] if params["retain"] else None
    return backward(x, options, how, tensors["do"], tensors["dht"], saved)
