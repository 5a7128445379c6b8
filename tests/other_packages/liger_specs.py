"""Liger-Kernel's row normalisation, SwiGLU, rotary embedding and cross entropy, forward and backward.

    bitproof check --spec tests/other_packages/liger_specs.py

`docs/other-packages.md` tells what was found.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import torch
from liger_kernel.transformers import functional as liger

from bitproof import Contract, Index, KernelSpec, Real, Reference, Size, Tensor, matrix, run_like
from tests.other_packages import references

FLOATS = (torch.float32, torch.bfloat16)
OF_Y = partial(Reference, outputs=("y",), upstream={"y": "dy"})

NORM = OF_Y(function=references.rms_norm, gradients={"dx": "x", "dw": "w"})
RMS_NORM = KernelSpec(
    contract=Contract(
        name="liger_rms_norm",
        inputs={
            **matrix("x", dtypes=FLOATS),
            **matrix("dy", like="x"),
            "w": Tensor("columns", like="x"),
        },
        params={"eps": Real(1e-6, 1e-3)},
        reference=NORM,
    ),
    run=run_like(NORM, lambda x, w, eps: liger.liger_rms_norm(x, w, eps, in_place=False)),
)

GATED = OF_Y(function=references.swiglu, gradients={"da": "a", "db": "b"})
SWIGLU = KernelSpec(
    contract=Contract(
        name="liger_swiglu",
        inputs={**matrix("a", dtypes=FLOATS), **matrix("b", "dy", like="a")},
        reference=GATED,
    ),
    run=run_like(GATED, lambda a, b: liger.liger_swiglu(a, b)),
)

TURNED = Reference(
    function=references.rotate,
    outputs=("new_q", "new_k"),
    gradients={"dq": "q", "dk": "k"},
    upstream={"new_q": "dnew_q", "new_k": "dnew_k"},
)


def _exchange(function):
    """The same function of q and k whose axes of tokens and heads are exchanged, in the memory they have."""

    def turn(q, k, cos, sin):
        found = function(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
        return tuple(one.transpose(1, 2) for one in found)

    return turn


def _declare(*axes):
    """q and k by those axes, what arrives at them, and two tables."""
    grouped = ["groups" if axis == "heads" else axis for axis in axes]
    return {
        **dict.fromkeys(("q", "dnew_q"), Tensor("batch", *axes, "2 * half")),
        **dict.fromkeys(("k", "dnew_k"), Tensor("batch", *grouped, "2 * half")),
        **dict.fromkeys(("cos", "sin"), Tensor(1, "tokens", "2 * half", between=(-1, 1))),
    }


FEW = dict.fromkeys(("batch", "tokens", "heads", "groups"), Size(least=1, most=5))
# As models call it, and of dense [batch, heads, tokens, width].
ROPE = KernelSpec(
    contract=Contract(
        name="liger_rope", inputs=_declare("tokens", "heads"), sizes=FEW, reference=TURNED
    ),
    run=run_like(TURNED, _exchange(lambda q, k, cos, sin: liger.liger_rope(q, k, cos, sin))),
)
DENSE = dataclasses.replace(TURNED, function=_exchange(references.rotate))
ROPE_DENSE = KernelSpec(
    contract=Contract(
        name="liger_rope_dense", inputs=_declare("heads", "tokens"), sizes=FEW, reference=DENSE
    ),
    run=run_like(DENSE, lambda q, k, cos, sin: liger.liger_rope(q, k, cos, sin)),
)

LOST = OF_Y(function=references.cross_entropy, gradients={"dx": "x"})
CROSS_ENTROPY = KernelSpec(
    contract=Contract(
        name="liger_cross_entropy",
        inputs={
            **matrix("x", dtypes=FLOATS, inplace=True),
            "target": Index("rows", into="columns", padding=-100),
            "dy": Tensor("rows", like="x"),
        },
        sizes={"rows": Size(least=1)},
        reference=references.cross_entropy,
        outputs=("y", "dx"),
    ),
    run=run_like(LOST, lambda x, target: liger.liger_cross_entropy(x, target, reduction="none")),
)
