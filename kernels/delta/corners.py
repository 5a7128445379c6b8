"""Far ends of the delta rule's contract, and calls outside it: what small drawn cases never reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from bitproof.harness.case import Inputs
from bitproof.harness.spec import Refusal
from bitproof.harness.strategies import floats
from bitproof.harness.strategies.gates import Gates
from bitproof.kernels.delta.cases import DeltaCase, Kind

Edits = dict[str, Callable[[Tensor], Tensor]]

_CHUNKS = (0, *(1,) * 5, 257)


def forward(
    kind: Kind, *, precision: str = "upstream", lengths: tuple[int, ...] = _CHUNKS
) -> tuple[DeltaCase, ...]:
    """More heads and value heads than are drawn, rates of any size, a promise of shallow decays, both ends of
    K and V, g and b or beta in types of their own, and sequences of `lengths`.

    By default these are many, one of many chunks.
    """
    usual = DeltaCase(kind=kind, precision=precision, initial=True)
    return (
        replace(usual, lengths=(20,), heads=7, promised=True),
        replace(
            usual,
            lengths=(3,),
            groups=3,
            gates=Gates(gate="bounded", rate="extreme", bound=floats.pattern(-0.5)),
        ),
        replace(usual, lengths=(2,), values=256, decay_dtype="bf16", gate_dtype="fp16"),
        replace(usual, lengths=(2,), keys=256),
        replace(usual, lengths=lengths),
        replace(usual, lengths=(2,), keys=1, values=1, dtype="fp32", gate_dtype="bf16"),
        replace(
            usual,
            lengths=(3,),
            gates=Gates(gate="plain"),
            decay_dtype="fp32",
            gate_dtype="fp32",
            scale=floats.pattern(0.0),
        ),
    )


def token_by_token(kind: Kind) -> tuple[DeltaCase, ...]:
    """The same for a kernel without chunks, which keeps everything in fp32, and 128 value heads."""
    lengths = (0, *(1,) * 17, 2)
    many = DeltaCase(kind=kind, precision="fp32", heads=32, groups=4, initial=True)
    return (*forward(kind, precision="fp32", lengths=lengths), many)


def backward(kind: Kind) -> tuple[DeltaCase, ...]:
    """The same for gradients, whose cases cost more: few sequences, and K of 256 for GDN2 alone."""
    usual, grouped, wide, deep, _, least, plain = forward(kind)
    chosen = (usual, grouped, wide, *((deep,) if kind == "gdn2" else ()), least, plain)
    return tuple(replace(case, gradient=True) for case in chosen)


def refusals(
    kind: Kind, *, gradient: bool = False, precision: str = "upstream"
) -> tuple[Refusal, ...]:
    """Tensors that do not fit one another, and options that no kernel computes."""
    case = DeltaCase(
        kind=kind,
        lengths=(2, 1),
        heads=2,
        gradient=gradient,
        precision=precision,
        initial=True,
        gates=Gates(gate="bounded"),
    )
    gate = "b" if kind == "gdn2" else "beta"
    wide: Edits = dict.fromkeys(("q", "k", "g", "b")[: 4 if kind == "gdn2" else 3], _wide)
    wide_values: Edits = dict.fromkeys(("v", "w")[: 2 if kind == "gdn2" else 1], _wide)
    tensors: dict[str, Edits] = {
        "3 value heads beside 2 of q and k": {"v": _three_heads},
        "no head of q and k": {"q": lambda q: q[:, :0], "k": lambda k: k[:, :0]},
        "q without an axis of heads": {"q": lambda q: q[:, 0]},
        "k of another width than q": {"k": lambda k: k[..., 1:].contiguous()},
        "K of 257": wide,
        "V of 257": wide_values,
        "q in fp64": {"q": lambda q: q.double()},
        "k in another type than q": {"k": lambda k: k.float()},
        "v in integers": {"v": lambda v: v.int()},
        "v that is not contiguous": {"v": lambda v: v.transpose(0, 1).contiguous().transpose(0, 1)},
        "g of too few tokens": {"g": lambda g: g[:-1]},
        f"{gate} of one head more": {gate: lambda x: x.repeat_interleave(2, 1)},
        "cu_seqlens in int64": {"cu_seqlens": lambda cu: cu.long()},
        "cu_seqlens of no sequence": {"cu_seqlens": lambda cu: cu[:1]},
        "initial states in bf16": {"initial_state": lambda state: state.bfloat16()},
        "initial states of one sequence too few": {"initial_state": lambda state: state[:1]},
        "A_log of one head": {"A_log": lambda a_log: a_log[:1]},
        "dt_bias in bf16": {"dt_bias": lambda bias: bias.bfloat16()},
    }
    if gradient:
        tensors |= {
            "do in fp64": {"do": lambda do: do.double()},
            "dht in bf16": {"dht": lambda dht: dht.bfloat16()},
        }
    params: dict[str, dict[str, Any]] = {
        "a lower bound of 0": {"lower_bound": 0.0},
        "a lower bound below -5": {"lower_bound": -5.5},
        "an unknown gate": {"gate": "sigmoid"},
    }
    return (
        *(
            Refusal(name=n, case=case, spoil=partial(_changed, edits))
            for n, edits in tensors.items()
        ),
        *(Refusal(name=n, case=case, spoil=partial(_told, edits)) for n, edits in params.items()),
        Refusal(name=f"tensors without {gate}", case=case, spoil=partial(_without, gate)),
        Refusal(name="a plain gate without A_log", case=case, spoil=_plain),
    )


def _changed(edits: Edits, inputs: Inputs) -> Inputs:
    return inputs.replace(**{name: edit(inputs.tensors[name]) for name, edit in edits.items()})


def _told(edits: dict[str, Any], inputs: Inputs) -> Inputs:
    return replace(inputs, params={**inputs.params, **edits}, case=None)


def _without(name: str, inputs: Inputs) -> Inputs:
    return replace(
        inputs, tensors={k: t for k, t in inputs.tensors.items() if k != name}, case=None
    )


def _plain(inputs: Inputs) -> Inputs:
    return _told({"gate": "plain"}, _without("A_log", inputs))


def _three_heads(x: Tensor) -> Tensor:
    return x[:, [0, 1, 0]]


def _wide(x: Tensor) -> Tensor:
    return x[..., [0] * 257]
