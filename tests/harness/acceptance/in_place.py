"""A model that doubles its input in place, and a candidate that does the same."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    """x times two, in the memory of x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


def get_inputs() -> list[torch.Tensor]:
    """One row."""
    return [torch.randn(50)]


@triton.jit
def _double(x, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(x + offsets, tl.load(x + offsets, mask=mask) * 2, mask=mask)


class ModelNew(nn.Module):
    """Right."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_contiguous():
            raise ValueError("x must be dense")
        if len(x):
            _double[(triton.cdiv(len(x), 32),)](x, len(x), BLOCK=32)
        return x
