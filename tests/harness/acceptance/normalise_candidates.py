"""Candidates for a row normalisation: a right one, and wrong ones of the kinds that a grader meets."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def _normalise(
    x, w, y, columns, row, BLOCK: tl.constexpr, MASKED: tl.constexpr, HALF: tl.constexpr
):
    at = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    if MASKED:
        values = tl.load(x + at * row + offsets, mask=mask, other=0.0)
    else:
        values = tl.load(x + at * row + offsets, mask=mask)
    if HALF:
        values = values.to(tl.bfloat16).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / columns + 1e-6)
    weight = tl.load(w + offsets, mask=mask, other=0.0)
    tl.store(y + at * columns + offsets, values * scale * weight, mask=mask)


@triton.jit
def _copy(x, y, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(y + offsets, tl.load(x + offsets, mask=mask, other=0.0), mask=mask)


class _Base(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def launch(
        self, x: torch.Tensor, *, block: int = 64, masked: bool = True, half: bool = False
    ) -> torch.Tensor:
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if x.stride(-1) != 1:
            raise ValueError("the last axis must be dense")
        if len(x):
            _normalise[(len(x),)](
                x, self.weight, y, x.shape[1], x.stride(0), BLOCK=block, MASKED=masked, HALF=half
            )
        return y


class ModelNew(_Base):
    """Right."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.launch(x)


class Zeros(_Base):
    """Zeros, which an absolute tolerance passes on small outputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.launch(x)
        return torch.zeros(x.shape, dtype=x.dtype, device=x.device)


class Cached(_Base):
    """The answer of the first call on a storage, whatever it holds now."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.kept: dict[Any, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = (x.data_ptr(), x._version, x.shape)
        if key not in self.kept:
            self.kept[key] = self.launch(x)
        return self.kept[key]


class Lazy(_Base):
    """Right for some calls, then the last answer again."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls < 12 or self.last.shape != x.shape:
            self.last = self.launch(x)
        return self.last


class Fallback(_Base):
    """torch alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Idle(_Base):
    """torch, beside a kernel whose result nobody uses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.launch(x)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class ByMagnitude(_Base):
    """bf16 operands from a magnitude on that ordinary inputs do not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.launch(x, half=bool(x.numel()) and bool(x.abs().max() > 20))


class OneShape(_Base):
    """A launch for the listed number of rows: further ones are right, fewer are not written."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
        if x.shape[0] < 16:
            return y
        return self.launch(x)


class Unwritten(_Base):
    """Reads lanes that nobody wrote: a mask without `other`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.launch(x, masked=False)


class Half(_Base):
    """Operands rounded to bf16, where the reference keeps fp32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.launch(x, half=True)


class Dense(_Base):
    """Assumes dense rows without a word."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if len(x):
            _normalise[(len(x),)](
                x, self.weight, y, x.shape[1], x.shape[1], BLOCK=64, MASKED=True, HALF=False
            )
        return y
