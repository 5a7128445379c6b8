"""Rows that each go to one of several matrices, as a reference and its candidates."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn


def reference(x: torch.Tensor, w: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
    """x [tokens, k] bf16, w [experts, k, n] bf16, expert [tokens]: each token by its expert's matrix."""
    return torch.bmm(x[:, None, :], w[expert])[:, 0]


def get_inputs() -> list[torch.Tensor]:
    """A few tokens for three experts."""
    x, w = torch.randn(6, 24), torch.randn(3, 24, 16) / 4
    return [x.bfloat16(), w.bfloat16(), torch.arange(6) % 3]


@triton.jit
def _rows(x, w, expert, y, K, N, HALF: tl.constexpr, SWAPPED: tl.constexpr):
    token = tl.program_id(0)
    chosen = tl.load(expert + token)
    if SWAPPED:
        chosen = tl.where(chosen == 1, 2, tl.where(chosen == 2, 1, chosen))
    columns = tl.arange(0, 16)
    mask = columns < N
    total = tl.zeros((16,), dtype=tl.bfloat16 if HALF else tl.float32)
    for k in range(K):
        value = tl.load(x + token * K + k).to(tl.float32)
        row = tl.load(w + (chosen * K + k) * N + columns, mask=mask, other=0.0).to(tl.float32)
        total = (total.to(tl.float32) + value * row).to(total.dtype)
    tl.store(y + token * N + columns, total, mask=mask)


def _launch(
    x: torch.Tensor, w: torch.Tensor, expert: torch.Tensor, half: bool, swapped: bool
) -> torch.Tensor:
    if w.shape[2] > 16:
        raise ValueError("w must have 16 columns at most")
    x, w, expert = (one.contiguous() for one in (x, w, expert))
    y = torch.empty((x.shape[0], w.shape[2]), dtype=x.dtype, device=x.device)
    _rows[(len(x),)](x, w, expert, y, x.shape[1], w.shape[2], HALF=half, SWAPPED=swapped)
    return y


def right(x: torch.Tensor, w: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
    """Sums in fp32."""
    return _launch(x, w, expert, False, False)


def half(x: torch.Tensor, w: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
    """Sums in bf16."""
    return _launch(x, w, expert, True, False)


def swapped(x: torch.Tensor, w: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
    """The rows of two experts exchanged."""
    return _launch(x, w, expert, False, True)


class Model(nn.Module):
    """The reference as a model."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        return reference(x, w, expert)


class ModelNew(nn.Module):
    """Right."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        return right(x, w, expert)


class Swapped(nn.Module):
    """The rows of two experts exchanged."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        return swapped(x, w, expert)


class HalfSums(nn.Module):
    """Sums in bf16."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        return half(x, w, expert)
