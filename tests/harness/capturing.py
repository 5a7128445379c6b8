"""A kernel of torch's own operations that a graph can hold, and faults that only a graph shows."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from bitproof.harness.spec import Fault, Params, Tensors
from tests.harness import plain, starting


def doubled(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [rows, columns] fp32 -> y = 2 x: the kernel."""
    x = tensors["x"]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    torch.mul(x, params["factor"], out=y)
    starting.nothing[(1,)]()
    return {"y": y}


_ALONE = {"caught_by": "graphs", "lanes": ("cuda",), "because": "the interpreter has no graphs"}

FAULTS = (
    Fault(
        name="asks the device for a value",
        within="doubled",
        old='params["factor"]',
        new='params["factor"] if x.isfinite().all() else 1.0',
        **_ALONE,
    ),
    Fault(
        name="waits for the device",
        within="doubled",
        old="out=y)",
        new="out=y); torch.cuda.synchronize()",
        **_ALONE,
    ),
    Fault(
        name="keeps what it computed beside its input",
        within="doubled",
        old='    return {"y": y}',
        new='    x.doubled = getattr(x, "doubled", y)\n    return {"y": x.doubled}',
        **_ALONE,
    ),
    Fault(
        name="reads fresh memory",
        within="doubled",
        old="out=y)",
        new="out=y); y += torch.empty_like(y)",
        caught_by="reproducibility",
    ),
)

SPEC = dataclasses.replace(
    plain.SPEC, name="doubled_rows", run=doubled, capturable=True, faults=FAULTS
)
