"""More candidates for the row normalisation: wrong ones that five shapes do not show, and odd right ones."""

from __future__ import annotations

import random
import time
from typing import Any

import torch
import triton
import triton.language as tl

from tests.harness.acceptance.normalise_candidates import _Base, _normalise


@triton.jit
def _sum_squares(x, total, columns, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    offsets = part * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.atomic_add(total + row, tl.sum(values * values))


@triton.jit
def _scale(x, w, total, y, columns, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask, other=0.0)
    weight = tl.load(w + offsets, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.load(total + row) / columns + 1e-6)
    tl.store(y + row * columns + offsets, values * scale * weight, mask=mask)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128)], key=["columns"])
@triton.jit
def _tuned(x, w, y, columns, row, BLOCK: tl.constexpr):
    at, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + at * row + offsets, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(values * values) / columns + 1e-6)
    weight = tl.load(w + offsets, mask=mask, other=0.0)
    tl.store(y + at * columns + offsets, values * scale * weight, mask=mask)


class ByPointer(_Base):
    """The answer that a storage had first, by its address alone."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.kept: dict[Any, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kept.setdefault((x.data_ptr(), tuple(x.shape)), self.launch(x))


class Tired(_Base):
    """Zeros after a few dozen calls."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.launch(x) * (self.calls < 35)


class OneBuffer(_Base):
    """One output for all calls of a shape: an answer changes with the next call."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.buffers: dict[Any, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.buffers.setdefault(tuple(x.shape), torch.empty_like(x))
        y.copy_(self.launch(x))
        return y


class Overwrites(_Base):
    """The input, overwritten and returned."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(self.launch(x))


class Empty(_Base):
    """A row of zeros where there are no rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.launch(x) if len(x) else torch.zeros(1, x.shape[1], dtype=x.dtype)


class Sixteen(_Base):
    """Only the rows that were listed: others are zeros."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
        rows = min(len(x), 16)
        if x.stride(-1) != 1:
            raise ValueError("the last axis must be dense")
        if rows:
            _normalise[(rows,)](
                x, self.weight, y, x.shape[1], x.stride(0), BLOCK=64, MASKED=True, HALF=False
            )
        return y


class Overflows(_Base):
    """Squares in fp16, infinite from 256 on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.launch(x)
        return torch.where((x.abs() > 256).any(-1, keepdim=True), torch.zeros_like(y), y)


class Atomics(_Base):
    """Partial sums are added in the order in which programs come."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        total = torch.zeros(len(x), device=x.device)
        y = torch.empty_like(x)
        if len(x):
            _sum_squares[(len(x), triton.cdiv(x.shape[1], 8))](x, total, x.shape[1], BLOCK=8)
            _scale[(len(x),)](x, self.weight, total, y, x.shape[1], BLOCK=64)
        return y


class Timed(_Base):
    """Right for a second."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.began = time.monotonic()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.launch(x) * (time.monotonic() - self.began < 1.0)


class Sometimes(_Base):
    """One call in five is wrong."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.launch(x) * (random.random() > 0.2)


class Nothing(_Base):
    """A forward pass that returns nothing."""

    def forward(self, x: torch.Tensor) -> None:
        self.launch(x)


class Double(_Base):
    """Numbers of another type than the reference's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.launch(x).double()


class Disguised(_Base):
    """A tensor of a class of its own, which computes nothing before it is looked at."""

    class Later(torch.Tensor):
        """Answers with what it was not."""

        def detach(self) -> torch.Tensor:
            """Another tensor than the one that was returned."""
            return torch.ones(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.launch(x).as_subclass(self.Later)


class OnlyListed(_Base):
    """It takes the listed shape, and refuses any other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape != (16, 40):
            raise ValueError("x must be [16, 40]")
        return self.launch(x)


class Autotuned(_Base):
    """Right: a kernel that is tuned."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        if len(x):
            _tuned[(len(x),)](x, self.weight, y, x.shape[1], x.stride(0))
        return y


class Twice(_Base):
    """Right: two launches, the first of which fills what the second reads."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        total = torch.zeros(len(x), device=x.device)
        y = torch.empty_like(x)
        if len(x):
            _sum_squares[(len(x), 1)](x, total, x.shape[1], BLOCK=64)
            _scale[(len(x),)](x, self.weight, total, y, x.shape[1], BLOCK=64)
        return y


class OnACopy(_Base):
    """Right: it works in place, on memory of its own."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        y = x.clone(memory_format=torch.contiguous_format)
        if len(y):
            _normalise[(len(y),)](
                y, self.weight, y, y.shape[1], y.shape[1], BLOCK=64, MASKED=True, HALF=False
            )
        return (y,)
