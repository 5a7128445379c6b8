"""First specs of kernels: the inputs, the launcher, a reference. No tolerance, no planted fault."""

from __future__ import annotations

import torch

from bitproof import Contract, Index, KernelSpec, Real, Tensor, Varies, matrix, packed_sequences
from tests.first_specs import kernels, references

FLOATS = (torch.float32, torch.bfloat16)

ROW_NORM = KernelSpec(
    contract=Contract(
        name="row_norm",
        inputs={**matrix("x", dtypes=FLOATS), "w": Tensor("columns", like="x")},
        params={"eps": Real(1e-6, 1e-3)},
        reference=references.row_norm,
        outputs=("y",),
    ),
    run=lambda t, p: {"y": kernels.row_norm(t["x"], t["w"], p["eps"])},
)

MASKED_SOFTMAX = KernelSpec(
    contract=Contract(
        name="masked_softmax",
        inputs={**matrix("x", dtypes=FLOATS), **matrix("keep", dtypes=(torch.bool,))},
        reference=references.masked_softmax,
        outputs=("y",),
    ),
    run=lambda t, p: {"y": kernels.masked_softmax(t["x"], t["keep"])},
)

SWIGLU_INT8 = KernelSpec(
    contract=Contract(
        name="swiglu_int8",
        inputs={"x": Tensor("rows", "2 * n", dtypes=FLOATS)},
        reference=references.swiglu_int8,
        outputs=("q", "scale"),
    ),
    run=lambda t, p: dict(zip(("q", "scale"), kernels.swiglu_int8(t["x"]), strict=True)),
)

SCATTER_ADD = KernelSpec(
    contract=Contract(
        name="scatter_add",
        inputs={
            "x": Tensor("tokens", "n"),
            "index": Index("tokens", into="rows", padding=-1),
            "target": Tensor("rows", 1),
        },
        reference=references.scatter_add,
        outputs=("y",),
    ),
    run=lambda t, p: {"y": kernels.scatter_add(t["x"], t["index"], t["target"].shape[0])},
    reproducible=Varies(because="atomics add in any order"),
)

PACKED_MEAN = KernelSpec(
    contract=Contract(
        name="packed_mean",
        inputs=packed_sequences("x", dtypes=FLOATS),
        reference=references.packed_mean,
        outputs=("y",),
    ),
    run=lambda t, p: {"y": kernels.packed_mean(t["x"], t["cu_seqlens"])},
)
