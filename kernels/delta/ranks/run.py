"""The gated delta rule by chunks on one of several ranks, or on all of them in one process.

Each rank prepares its chunks, summarises its last part, and begins its first part at what it folds from the
summaries of the ranks before: one exchange forward, one mirrored back. Chunks begin anew at a rank's first
row. Where no sequence is cut, every rank computes what `kernels.delta.chunk_fwd` does of its rows.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bitproof.harness.case import Launch
from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.delta import chunk_bwd
from bitproof.kernels.delta.arguments import CHUNK, Operands, Options, of_case
from bitproof.kernels.delta.chunk_fwd import (
    TRITON,
    Saved,
    fill_states,
    how,
    prepare,
    stored_types,
    tile_bytes,
)
from bitproof.kernels.delta.packing import ROWS, SUMS
from bitproof.kernels.delta.ranks.exchange import Program, run, simulated
from bitproof.kernels.delta.ranks.partition import Share, partition
from bitproof.kernels.delta.ranks.summary import fold, summarise, summarise_gradients

# Columns of a summary that one program carries, fewer where keys are wide; and of a state that is merged.
_SUMMARY, _WIDE, _MERGED = 64, 128, 32
Exchanging = Generator[Tensor, Tensor, None]


@dataclass(frozen=True, kw_only=True)
class Forward:
    """One rank's rows of o, the final states of its parts (fp32), what its backward pass can use again."""

    o: Tensor
    final: Tensor
    saved: Saved | None


def forward(
    x: Operands, options: Options, launch: Launch | None, share: Share, *, retain: bool = False
) -> Program[Forward]:
    """The forward pass of the rank that holds `share`, on its own rows and parts `x` (see `cut`).

    `x.initial_state` is the rank's to write: the state of a part that another rank began is put there. Of
    the final states that is wanted which belongs to a part in `share.ended`.
    """
    saved = prepare(x, options, launch, keep=retain)
    yield from _merge_states(x, options, launch, share, saved)
    o = torch.empty_like(x.v)
    final = x.q.new_empty(x.state_shape, dtype=torch.float32)
    fill_states(x, options, launch, saved, o, final)
    return Forward(o=o, final=final, saved=saved if retain else None)


def backward(
    x: Operands,
    options: Options,
    launch: Launch | None,
    share: Share,
    do: Tensor,
    dfinal: Tensor,
    saved: Saved | None = None,
) -> Program[dict[str, Tensor]]:
    """The gradients of one rank, named and typed as `chunk_bwd.backward` gives them.

    `do` are the rank's rows; `dfinal` [parts, HV, K, V] in fp32 is the rank's to write, as `x.initial_state`
    is. Of d_initial_state that is wanted which belongs to a part in `share.begun`. dA_log and ddt_bias are
    this rank's terms: the caller adds those of all ranks.
    """
    if saved is None:
        saved = prepare(x, options, launch, keep=True)
        yield from _merge_states(x, options, launch, share, saved)
        fill_states(x, options, launch, saved, None, None)
    yield from _merge_gradients(x, options, launch, share, saved, do, dfinal)
    return chunk_bwd.backward(x, options, launch, do, dfinal, saved)


def _merge_states(
    x: Operands, options: Options, launch: Launch | None, share: Share, saved: Saved
) -> Exchanging:
    """Send the last part's summary; begin the first part at the fold of those before."""
    if share.ranks == 1:
        return
    stored = stored_types(options.precision, x.v.dtype)
    sent, block = _allocate_summary(x, options, "summary state")
    last = max(len(share.sequences) - 1, 0)
    step = tile_bytes(saved.wy, saved.kg) + CHUNK * block * saved.u.element_size()
    summarise[((x.padded_values + x.meta["PADDED_K"]) // block, x.value_heads)](
        saved.u,
        saved.wy,
        saved.kg,
        saved.decay,
        x.cu_seqlens,
        x.initial_state,
        sent,
        len(x.q),
        x.sequences,
        last,
        int(share.post > 0),
        int(last >= share.begun.start),
        V=x.values,
        V_FIRST=x.state_v_first,
        STATE=TRITON[stored("state")],
        V_NEW=TRITON[stored("v_new")],
        SENT_STATE=TRITON[stored("summary state")],
        SENT_TRANSITION=TRITON[stored("summary transition")],
        PADDED_V=x.padded_values,
        BLOCK=block,
        **x.meta,
        **how("summarise", launch, step),
    )
    received = yield sent
    assert x.initial_state is not None
    merged = stored("merged state")
    _fold(x, launch, received, x.initial_state, 0, share.rank - share.pre, 1, share.pre, merged)


def _merge_gradients(
    x: Operands,
    options: Options,
    launch: Launch | None,
    share: Share,
    saved: Saved,
    do: Tensor,
    dfinal: Tensor,
) -> Exchanging:
    """Send the first part's mirrored summary; end the last part at the fold of those after."""
    if share.ranks == 1:
        return
    stored = stored_types(options.precision, x.v.dtype)
    sent, block = _allocate_summary(x, options, "summary gradient")
    step = tile_bytes(saved.wy, saved.qg, saved.kg, saved.scores)
    step += CHUNK * block * do.element_size()
    summarise_gradients[((x.padded_values + x.meta["PADDED_K"]) // block, x.value_heads)](
        saved.wy,
        saved.qg,
        saved.kg,
        saved.scores,
        saved.decay,
        do,
        x.cu_seqlens,
        dfinal,
        sent,
        len(x.q),
        x.sequences,
        0,
        int(share.pre > 0),
        int(share.ended.stop > 0),
        options.scale_of(x.keys),
        V=x.values,
        V_FIRST=x.state_v_first,
        DSTATE=TRITON[stored("dstate")],
        DV_NEW=TRITON[stored("dv_new")],
        SENT_STATE=TRITON[stored("summary gradient")],
        SENT_TRANSITION=TRITON[stored("summary transition")],
        PADDED_V=x.padded_values,
        BLOCK=block,
        **x.meta,
        **how("summarise_gradients", launch, step),
    )
    received = yield sent
    last = max(len(share.sequences) - 1, 0)
    merged = stored("merged gradient")
    _fold(x, launch, received, dfinal, last, share.rank + share.post, -1, share.post, merged)


def _allocate_summary(x: Operands, options: Options, state: str) -> tuple[Tensor, int]:
    """(room for a summary [HV, K, V + K], columns a program); in the wider type of what it holds."""
    stored = stored_types(options.precision, x.v.dtype)
    kinds = {stored(state), stored("summary transition")}
    (kind,) = kinds if len(kinds) == 1 else (torch.float32,)
    keys = x.meta["PADDED_K"]
    block = min(_SUMMARY if keys <= _WIDE else _MERGED, x.padded_values, keys)
    return x.q.new_empty((x.value_heads, x.keys, x.values + x.keys), dtype=kind), block


def _fold(
    x: Operands,
    launch: Launch | None,
    summaries: Tensor,
    states: Tensor,
    part: int,
    farthest: int,
    step: int,
    count: int,
    merged: torch.dtype,
) -> None:
    """Merge `count` ranks' summaries, `farthest` first, into state `part` of `states`."""
    block = min(_MERGED, x.padded_values)
    fold[(x.padded_values // block, x.value_heads)](
        summaries,
        states,
        part,
        farthest,
        step,
        count,
        HEADS=x.value_heads,
        K=x.keys,
        V=x.values,
        V_FIRST=x.state_v_first,
        MERGED=TRITON[merged],
        PADDED_K=x.meta["PADDED_K"],
        BLOCK_V=block,
        **how("fold", launch),
    )


def cut(x: Operands, share: Share) -> Operands:
    """The rows and parts of a whole call that one rank holds, in memory of its own.

    Initial states are zero where the call has none and where a part's sequence began on another rank. The
    table of offsets has room for all sequences, so that all ranks run the same compiled variants.
    """
    rows = slice(share.first, share.end)
    b = x.b[rows].clone()
    return replace(
        x,
        q=x.q[rows].clone(),
        k=x.k[rows].clone(),
        v=x.v[rows].clone(),
        g=x.g[rows].clone(),
        b=b,
        w=b if x.scalar else x.w[rows].clone(),
        cu_seqlens=torch.tensor(share.offsets, dtype=torch.int32, device=x.q.device),
        initial_state=cut_states(x, share, x.initial_state, share.begun),
        room=x.sequences,
    )


def cut_states(x: Operands, share: Share, states: Tensor | None, parts: slice) -> Tensor:
    """fp32 states of a rank's parts: those of `parts` from `states` of all sequences, zeros else."""
    shape = (len(share.offsets) - 1, *x.state_shape[1:])
    found = x.q.new_zeros(shape, dtype=torch.float32)
    for place, sequence in list(enumerate(share.sequences))[parts]:
        if states is not None:
            found[place] = states[sequence]
    return found


def join_states(
    x: Operands, shares: Sequence[Share], found: Sequence[Tensor], *, ended: bool
) -> Tensor:
    """States of all sequences from those of ranks' parts: of the last parts if `ended`, or of the first."""
    joined = x.q.new_empty(x.state_shape, dtype=torch.float32)
    for share, states in zip(shares, found, strict=True):
        parts = share.ended if ended else share.begun
        for place, sequence in list(enumerate(share.sequences))[parts]:
            joined[sequence] = states[place]
    return joined


def join_gradients(
    x: Operands, shares: Sequence[Share], found: Sequence[Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """The gradients of a whole call from those of its ranks; sums over tokens added in ranks' order."""
    joined = {name: torch.cat([one[name] for one in found]) for name in ROWS if name in found[0]}
    joined |= {
        name: torch.stack([one[name] for one in found]).sum(0) for name in SUMS if name in found[0]
    }
    states = [one["d_initial_state"] for one in found]
    return joined | {"d_initial_state": join_states(x, shares, states, ended=False)}


def launch(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """o and final_state of a case, whose params["ranks"] ranks all run in this process.

    params["order"], where it is there, is the order in which they work and reach the exchange.
    """
    x, options = of_case(tensors, params)
    shares = partition(x.cu_seqlens.tolist(), len(x.q), params["ranks"])
    programs = [forward(cut(x, share), options, params["launch"], share) for share in shares]
    found = run(programs, simulated, params.get("order"))
    final = join_states(x, shares, [one.final for one in found], ended=True)
    return {"o": torch.cat([one.o for one in found]), "final_state": final}


def launch_vjp(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """The gradients of a case, as `launch`; with params["retain"] after a forward pass of all ranks."""
    if not {"do", "dht"} <= set(tensors):
        raise ValueError("a backward pass needs do and dht, the gradients of o and of final states")
    x, options = of_case(tensors, params)
    x.require_gradients(tensors["do"], tensors["dht"])
    shares = partition(x.cu_seqlens.tolist(), len(x.q), params["ranks"])
    held = [cut(x, share) for share in shares]
    order = params.get("order")
    kept: list[Saved | None] = [None] * len(shares)
    if params["retain"]:
        programs = [
            forward(own, options, params["launch"], share, retain=True)
            for own, share in zip(held, shares, strict=True)
        ]
        kept = [one.saved for one in run(programs, simulated, order)]
    found = run(
        [
            backward(
                own,
                options,
                params["launch"],
                share,
                tensors["do"][share.first : share.end].clone(),
                cut_states(x, share, tensors["dht"], share.ended),
                saved,
            )
            for own, share, saved in zip(held, shares, kept, strict=True)
        ],
        simulated,
        order,
    )
    return join_gradients(x, shares, found)
