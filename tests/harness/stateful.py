"""A kernel in an object that is built once for a shape and keeps a workspace; mistakes with what it keeps."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bitproof import Contract, Fault, KernelSpec, exact_bits, matrix, of_object


@triton.jit
def _scale(x, work, y, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    total = tl.load(work + offsets, mask=mask, other=0.0)
    total += tl.load(x + offsets, mask=mask, other=0.0)
    tl.store(work + offsets, total, mask=mask)
    tl.store(y + offsets, total * 2, mask=mask)


class Scaled:
    """Twice x, by way of a workspace that is cleared before each call."""

    def __init__(self, tensors, params):
        """A workspace for the shape of x."""
        self.work = torch.zeros_like(tensors["x"])
        self.kept = {}

    def __call__(self, tensors, params):
        """Twice x."""
        x = tensors["x"]
        self.work.zero_()
        y = torch.empty_like(x)
        if x.numel():
            _scale[(triton.cdiv(x.numel(), 128),)](x, self.work, y, x.numel(), BLOCK=128)
        return {"y": y}


SPEC = KernelSpec(
    contract=Contract(
        name="scaled",
        inputs=matrix("x"),
        oracle=lambda tensors, params: {"y": tensors["x"] * 2},
        outputs={"y": exact_bits()},
    ),
    run=of_object(Scaled),
    faults=(
        Fault(
            name="a workspace that is not cleared",
            within="Scaled",
            old="        self.work.zero_()\n",
            new="",
            caught_by="agreement",
        ),
        Fault(
            name="the first answer of a storage",
            within="Scaled",
            old='return {"y": y}',
            new='return {"y": self.kept.setdefault((x.data_ptr(), x._version), y)}',
            caught_by="agreement",
        ),
        Fault(
            name="the first answer of a shape",
            within="Scaled",
            old='return {"y": y}',
            new='return {"y": self.kept.setdefault(x.shape, y)}',
            caught_by="agreement",
        ),
    ),
)
