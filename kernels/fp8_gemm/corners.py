"""Far ends of the block-scaled products, and calls outside their contracts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bitproof.harness.case import Case, Inputs, Launch
from bitproof.harness.spec import Refusal
from bitproof.kernels.fp8_gemm.cases import LinearCase, VectorCase
from bitproof.kernels.fp8_gemm.cases_experts import AlignCase, ExpertsCase, Routing

Edit = Callable[[Tensor], Tensor]

# Sums of 4096 products of one sign: what an accumulator of few bits loses is largest.
_LONG = LinearCase(
    rows=3, columns=40, depth=4096, kind="one-sided", block_m=64, launch=Launch(block=64)
)
_PARTIAL = LinearCase(
    rows=17, columns=152, depth=1000, spread=2, block_m=32, parts=2, launch=Launch(block=128)
)
# Tiles as a tensor core is fed fastest, in one part and in two.
_WHOLE = LinearCase(rows=70, columns=152, depth=272, block_m=64, launch=Launch(block=128))
OF_LINEAR = (
    _LONG,
    _WHOLE,
    dataclasses.replace(_WHOLE, rows=140, out="bf16", block_m=128, parts=2),
    dataclasses.replace(_LONG, decoded=True),
    _PARTIAL,
    LinearCase(rows=2, columns=3, depth=0),
    # More tiles of rows than take each tile of columns in turn, these as narrow as they may be.
    LinearCase(rows=33 * 16 + 5, columns=40, depth=16, launch=Launch(block=16)),
)
OF_POWERS = (
    dataclasses.replace(_PARTIAL, powers=True),
    dataclasses.replace(_PARTIAL, powers=True, extremes=True, spread=0),
)
OF_VECTOR = (
    VectorCase(columns=152, depth=5 * 128 + 44, splits=4, spread=2),
    VectorCase(columns=40, depth=128, splits=16),
    # Of a few products, which the largest scale does not make infinite; tiles of one column and of all that
    # share a scale.
    VectorCase(columns=300, depth=3, extremes=True, launch=Launch(block=128)),
    VectorCase(columns=5, depth=300, splits=64, launch=Launch(block=1)),
)
OF_ALIGNMENT = (
    # More blocks than routes, experts no power of two, more experts than routes.
    AlignCase(routing=Routing(sizes=(0, 1, 0, 1, 1, 0, 0)), launch=Launch(block=4)),
    AlignCase(routing=Routing(sizes=(162, 0, 257, 46, 0, 83), top_k=4), launch=Launch(block=64)),
    AlignCase(routing=Routing(sizes=(5, 0, 3, 0, 0), elsewhere=4, top_k=3), launch=Launch(block=4)),
    AlignCase(routing=Routing(sizes=(1,) * 300, top_k=2), launch=Launch(block=1)),
    AlignCase(routing=Routing(sizes=(0,), elsewhere=3), launch=Launch(block=16)),
)
_BUSY = ExpertsCase(routing=Routing(sizes=(5, 0, 3), elsewhere=2, top_k=2), width=256, inner=256)
OF_EXPERTS = (
    _BUSY,
    ExpertsCase(routing=Routing(sizes=(0, 0), elsewhere=3), decoded=True),
    ExpertsCase(routing=Routing(sizes=(0, 0))),
    # A token that chooses one expert three times.
    ExpertsCase(routing=Routing(sizes=(3,), top_k=3), signed=True, decoded=True),
    ExpertsCase(routing=Routing(sizes=(1, 1, 1, 1, 1), top_k=5), decoded=True),
    ExpertsCase(
        routing=Routing(sizes=(1,) * 33, top_k=3),
        launch=Launch(block=128, num_warps=8, num_stages=3),
    ),
    # More routes than one program of the alignment counts, and padding among the tokens.
    ExpertsCase(routing=Routing(sizes=(70, 0, 61)), blank=True, decoded=True),
    ExpertsCase(routing=Routing(sizes=(2, 3)), midpoints=True),
)


def _refusals(case: Case, edits: dict[str, dict[str, Edit]]) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(name=name, case=case, spoil=partial(_changed, edit)) for name, edit in edits.items()
    )


def _changed(edits: dict[str, Edit], inputs: Inputs) -> Inputs:
    return inputs.replace(**{name: edit(inputs.tensors[name]) for name, edit in edits.items()})


def _told(case: Case, name: str, **edits: object) -> Refusal:
    def spoil(inputs: Inputs) -> Inputs:
        return dataclasses.replace(inputs, params={**inputs.params, **edits}, case=None)

    return Refusal(name=name, case=case, spoil=spoil)


def of_linear(case: LinearCase) -> tuple[Refusal, ...]:
    """Operands, scales and tiles that do not fit one another."""
    other: dict[bool, Edit] = {
        True: lambda scale: scale.float(),
        False: lambda scale: scale.to(torch.uint8),
    }
    return (
        *_refusals(
            case,
            {
                "a in bf16": {"a": lambda a: a.bfloat16()},
                "a of another K than b": {"a": lambda a: a[:, 1:].contiguous()},
                "b in e5m2": {"b": lambda b: b.view(torch.float8_e5m2)},
                "b of three axes": {"b": lambda b: b[None]},
                "b with elements of a row apart": {"b": lambda b: b.t().contiguous().t()},
                "scales of one token less": {"a_scale": lambda scale: scale[1:].contiguous()},
                "scales of one block less": {"b_scale": lambda scale: scale[:, 1:].contiguous()},
                "scales of the weights column by column": {
                    "b_scale": lambda scale: scale.t().contiguous().t()
                },
                "scales of two types": {"b_scale": other[case.powers]},
            },
        ),
        _told(case, "an output in int8", out="int8"),
        _told(case, "tiles in three parts", parts=3),
        _told(case, "tiles of 24 rows", block_m=24, parts=1),
    )


LINEAR_REFUSED = of_linear(_PARTIAL)
POWERS_REFUSED = of_linear(dataclasses.replace(_PARTIAL, powers=True))
VECTOR_REFUSED = (
    *_refusals(
        OF_VECTOR[0],
        {
            "two tokens": {"x": lambda x: torch.cat([x, x])},
            "x in fp32": {"x": lambda x: x.float()},
            "x of another K than b": {"x": lambda x: x[:, 1:].contiguous()},
            "b in bf16": {"b": lambda b: b.bfloat16()},
            "scales of one block less": {"b_scale": lambda scale: scale[:, 1:].contiguous()},
            "scales in fp16": {"b_scale": lambda scale: scale.half()},
        },
    ),
    _told(OF_VECTOR[0], "three splits", splits=3),
)
ALIGNMENT_REFUSED = (
    *_refusals(
        OF_ALIGNMENT[1],
        {
            "choices in int64": {"choices": lambda choices: choices.long()},
            "choices of one axis": {"choices": lambda choices: choices.reshape(-1)},
            "choices one column after another": {"choices": lambda choices: choices.t()},
        },
    ),
    _told(OF_ALIGNMENT[1], "no expert", experts=0),
    _told(OF_ALIGNMENT[1], "blocks of three", block=3),
)
EXPERTS_REFUSED = (
    *_refusals(
        _BUSY,
        {
            "hidden in fp16": {"hidden": lambda hidden: hidden.half()},
            "tokens of 250 elements": {
                "hidden": lambda hidden: hidden[:, :250].contiguous(),
                "w1": lambda w: w[..., :250].contiguous(),
                "w2": lambda w: w[:, :250].contiguous(),
            },
            "experts of 250 elements": {
                "w1": lambda w: w[:, :500].contiguous(),
                "w2": lambda w: w[..., :250].contiguous(),
            },
            "a gate without up": {"w1": lambda w: w[:, :256].contiguous()},
            "one expert less": {"w1": lambda w: w[1:].contiguous()},
            "w2 in bf16": {"w2": lambda w: w.bfloat16()},
            "w2 transposed": {"w2": lambda w: w.mT},
            "scales of one block less": {"w1_scale": lambda scale: scale[..., 1:].contiguous()},
            "scales in bf16": {"w2_scale": lambda scale: scale.bfloat16()},
            "choices in int64": {"choices": lambda choices: choices.long()},
            "choices of one token less": {"choices": lambda choices: choices[1:].contiguous()},
            "weights in bf16": {"weights": lambda weights: weights.bfloat16()},
        },
    ),
    _told(_BUSY, "tiles in two parts", block_m=32, parts=2),
)
