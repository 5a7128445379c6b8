"""The gated delta rule by chunks of 64 tokens, forward; `kernels.delta.chunk_bwd` goes back.

What is computed is the recurrence of `oracles.delta.recurrence`; `kernels.delta.arguments` says what callers
pass. Nothing waits for the device: how many chunks there are is found where they are computed. A `Precision`
policy says which intermediates are kept in fp32; public types do not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness.case import Launch
from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.delta.arguments import CHUNK, Operands, Options, of_case, require_assembler
from bitproof.kernels.delta.chunk_intra import decays, relate, represent, solve
from bitproof.kernels.delta.chunk_states import pass_states
from bitproof.oracles.precision import Precision

TRITON = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}

# (warps, stages, registers a thread at most) of each kernel for callers who leave the launch to it, measured
# on an H200; with 168 registers three programs share a multiprocessor. See docs/measurements.md.
_TUNED = {
    "decays": (4, 2, None),
    "relate": (4, 1, None),
    "solve": (4, 1, 168),
    "represent": (8, 2, None),
    "pass_states": (4, 3, None),
    "pass_gradients": (8, 2, None),
    "summarise": (4, 2, None),
    "summarise_gradients": (4, 3, None),
    "fold": (4, 1, None),
    "of_products": (8, 2, None),
    "of_scores": (8, 1, None),
    "of_units": (4, 2, None),
}
# Columns that one step of a kernel takes.
_COLUMNS = {"decays": 64, "relate": 32, "solve": 16, "represent": 128}
# Programs that fill an H200's 132 multiprocessors, about: from there on the passes take wider columns.
_MANY = 64
# Bytes of shared memory that loads in flight may take, of sm_90's 227 KiB; products need the rest.
_SHARED = 200 * 2**10


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A forward pass's intermediates: contiguous workspaces [chunks, HV, ...] by chunk and value head.

    scores, inverse  [.., 64, 64]; scores include the scale
    wy, qg, kg       [.., 64, padded K]
    u, v_new         [.., 64, padded V]
    decay            [.., 64, padded K] in fp32: cumulative log-decay, natural log
    states           [.., padded K, padded V] at chunk starts, K first whatever `state_v_first`

    There is room for `Operands.most_chunks`; what lies past the last chunk is not written. Types are the
    policy's, which calls wy w and states state: fp32 for what it names, v's for the rest. states and v_new
    are None where they were not kept.
    """

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
    """(o [T, HV, V] as v, final state fp32, what the backward pass can use again if `retain`).

    The final state is [N, HV, K, V], or [N, HV, V, K] with `state_v_first`. `launch` None takes what is
    fastest; its block has nothing to say. ValueError as `require_assembler` raises it.
    """
    saved = prepare(x, options, launch, keep=retain)
    o = torch.empty_like(x.v)
    final = x.q.new_empty(x.state_shape, dtype=torch.float32)
    fill_states(x, options, launch, saved, o, final)
    return o, final, saved if retain else None


def prepare(x: Operands, options: Options, launch: Launch | None, *, keep: bool) -> Saved:
    """Everything up to the pass over states; with room for states and v_new, unwritten, if `keep`.

    ValueError on a card whose assembler spoils these kernels, see `require_assembler`.
    """
    require_assembler(x.q.device, triton.__version__)
    stored = stored_types(options.precision, x.v.dtype)
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
    at_once = {name: min(columns, padded_k) for name, columns in _COLUMNS.items()}
    decays[(chunks, x.value_heads, padded_k // at_once["decays"])](
        x.g,
        x.a_log,
        x.dt_bias,
        x.cu_seqlens,
        saved.decay,
        len(x.q),
        x.sequences,
        options.lower_bound,
        GATE=options.gate,
        BLOCK_K=at_once["decays"],
        **meta,
        **how("decays", launch),
    )
    shared = {
        "GROUPS": x.groups,
        "NORMALISE": options.normalise,
        "QK": TRITON[stored("qk")],
    }
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
        options.scale_of(x.keys),
        BOUNDED=options.shallow,
        BLOCK_K=at_once["relate"],
        **shared,
        **meta,
        **how("relate", launch),
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
        BOUNDED=options.shallow,
        BLOCK_K=at_once["solve"],
        **shared,
        **meta,
        **how("solve", launch),
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
        WRITE=TRITON[stored("write")],
        ERASE=TRITON[stored("erase")],
        PADDED_V=padded_v,
        BLOCK_K=at_once["represent"],
        BLOCK_V=min(_COLUMNS["represent"], padded_v),
        **shared,
        **meta,
        **how("represent", launch),
    )
    return saved


def fill_states(
    x: Operands,
    options: Options,
    launch: Launch | None,
    saved: Saved,
    o: Tensor | None,
    final: Tensor | None,
) -> None:
    """The pass over states, into `o` and `final`, and into what `saved` keeps, where these are given.

    `o` is [T, HV, V] as v, zeros in slack rows; `final` is fp32 of `Operands.state_shape`.
    """
    stored = stored_types(options.precision, x.v.dtype)
    padded_v = x.padded_values
    block_v = state_columns(x)
    step = tile_bytes(saved.wy, saved.qg, saved.kg, saved.scores)
    step += CHUNK * block_v * saved.u.element_size()
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
        options.scale_of(x.keys),
        V=x.values,
        V_FIRST=x.state_v_first,
        STATE=TRITON[stored("state")],
        V_NEW=TRITON[stored("v_new")],
        PADDED_V=padded_v,
        BLOCK_V=block_v,
        **x.meta,
        **how("pass_states", launch, step),
    )


def how(kernel: str, launch: Launch | None, step: int = 0) -> dict[str, int]:
    """Warps, registers, and as many stages as shared memory holds of a step that loads `step` bytes."""
    tuned = (launch.num_warps, launch.num_stages, None) if launch else _TUNED[kernel]
    warps, stages, registers = tuned
    stages = max(1, min(stages, _SHARED // step)) if step else stages
    capped = {"maxnreg": registers} if registers else {}
    return {"num_warps": warps, "num_stages": stages, **capped}


def tile_bytes(*tiles: Tensor) -> int:
    """Of one chunk's and head's tile of each workspace."""
    return sum(tile.stride(1) * tile.element_size() for tile in tiles)


def state_columns(x: Operands) -> int:
    """Columns of a state that one program carries."""
    return min(64 if x.value_heads * x.most_sequences >= _MANY else 32, x.padded_values)


def stored_types(precision: Precision, dtype: torch.dtype) -> Any:
    """The type of each stored intermediate by its name."""

    def of(name: str) -> torch.dtype:
        return torch.float32 if name in precision.kept else dtype

    return of


def launch(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`forward` on the tensors of a case: o and final_state."""
    x, options = of_case(tensors, params)
    o, final, _ = forward(x, options, params["launch"])
    return {"o": o, "final_state": final}
