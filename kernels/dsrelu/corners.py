"""Far ends of the dsReLU contract, and calls outside it: what small drawn cases never reach."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bitproof.harness.case import Inputs, Launch
from bitproof.harness.spec import Refusal
from bitproof.kernels.dsrelu.cases import DsreluCase

# Three hundred rows: ten row tiles in one group, and more rows than one program of the sums takes.
_TALL = DsreluCase(
    tokens=(3, 300),
    experts=(2, 0),
    weights=3,
    columns=40,
    spread=2,
    buffers=True,
    launch=Launch(block=32),
)
_MANY_GROUPS = DsreluCase(
    tokens=(1,) * 17,
    experts=tuple(range(16, -1, -1)),
    weights=17,
    columns=20,
    spread=2,
    buffers=True,
    block_m=16,
    launch=Launch(block=16),
)
_WIDE = DsreluCase(
    tokens=(2,), columns=10 * 16 + 3, spread=2, buffers=True, block_m=16, launch=Launch(block=16)
)
# 4 subtiles of 16 columns, the last of which is partial.
_SUBTILES = DsreluCase(
    tokens=(33,), columns=64 + 53, spread=2, buffers=True, subtiles=4, launch=Launch(block=64)
)
# The tiling that callers get who ask for none, and one product.
_DEFAULT = DsreluCase(
    tokens=(130, 0, 3),
    experts=(0, -1, 1),
    weights=2,
    columns=130,
    depth=70,
    buffers=True,
    block_m=128,
    block_k=64,
    subtiles=2,
    launch=Launch(block=128, num_stages=3),
)
_LEAST = DsreluCase(tokens=(3,), columns=1, depth=1)
OF_BF16 = (_TALL, _MANY_GROUPS, _WIDE, _SUBTILES, _DEFAULT, _LEAST)

_SCALES = DsreluCase(
    tokens=(5, 2),
    experts=(1, 0),
    weights=2,
    columns=35,
    depth=80,
    small=True,
    extremes=True,
    block_k=32,
)
OF_FP8 = (
    _SCALES,
    dataclasses.replace(_SCALES, tokens=(300,), experts=(0,), quantised=True, block_k=32),
    # 4 subtiles of 32 columns, in which D is quantised.
    dataclasses.replace(
        _SCALES,
        tokens=(33,),
        experts=(1,),
        extremes=False,
        quantised=True,
        columns=128 + 101,
        spread=4,
        subtiles=4,
        launch=Launch(block=128),
    ),
    dataclasses.replace(_DEFAULT, small=True, quantised=True),
    dataclasses.replace(_LEAST, small=True, block_k=32),
    dataclasses.replace(_WIDE, small=True, depth=32, block_k=32),
)


def refusals(case: DsreluCase, *, small: bool = False) -> tuple[Refusal, ...]:
    """Operands and tiles that do not fit one another."""
    tensors: dict[str, dict[str, Callable[[Tensor], Tensor]]] = {
        "a in fp16": {"a": lambda a: a.to(torch.float16)},
        "b of another K than a": {"b": lambda b: b[..., 1:].contiguous()},
        "b that is not contiguous": {"b": lambda b: b.mT.contiguous().mT},
        "no expert": {"experts": lambda experts: experts[:0]},
        "c in fp32": {"c": lambda c: c.float()},
        "c of one column less": {"c": lambda c: c[:, 1:]},
        "prob of one row less": {"prob": lambda prob: prob[1:]},
        "alpha in bf16": {"alpha": lambda alpha: alpha.bfloat16()},
        "offsets in int64": {"offsets": lambda offsets: offsets.long()},
        "offsets of one group less": {"offsets": lambda offsets: offsets[1:]},
        "dprob in bf16": {"dprob": lambda dprob: dprob.bfloat16()},
        "dbias of one column less": {"dbias": lambda dbias: dbias[:, 1:].contiguous()},
    }
    if small:
        tensors |= {
            "scales of one block less": {"a_scale": lambda scale: scale[:, 1:].contiguous()},
            "scales in int8": {"b_scale": lambda scale: scale.view(torch.int8)},
        }
    narrow = partial(_told, {"quantised": True, "block_m": 16})
    return (
        *(
            Refusal(name=n, case=case, spoil=partial(_changed, edits))
            for n, edits in tensors.items()
        ),
        Refusal(name="tiles of 16 rows to quantise D in", case=case, spoil=narrow),
    )


def _changed(edits: dict[str, Callable[[Tensor], Tensor]], inputs: Inputs) -> Inputs:
    return inputs.replace(**{name: edit(inputs.tensors[name]) for name, edit in edits.items()})


def _told(edits: dict[str, object], inputs: Inputs) -> Inputs:
    return dataclasses.replace(inputs, params={**inputs.params, **edits}, case=None)


REFUSED = refusals(_SUBTILES)
REFUSED_BY_FP8 = refusals(_SCALES, small=True)
