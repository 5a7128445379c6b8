"""A product of e4m3 matrices with a scale for every 128 numbers along k: a model in torch, and candidates."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = tl.constexpr(128)


class Model(nn.Module):
    """Decoded to fp32, scaled, multiplied."""

    def forward(
        self, x: torch.Tensor, w: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor
    ) -> torch.Tensor:
        """x [m, 256], w [16, 256] e4m3, x_scale [m, 2], w_scale [1, 2] fp32 -> [m, 16] bf16."""
        wide = x.float() * x_scale.repeat_interleave(128, 1)
        weights = w.float() * w_scale.repeat_interleave(128, 1)
        return (wide @ weights.T).bfloat16()


def get_inputs() -> list[torch.Tensor]:
    """Scales near 1."""
    x, w = (torch.randn(rows, 256).to(torch.float8_e4m3fn) for rows in (9, 16))
    return [x, w, torch.rand(9, 2) + 0.5, torch.rand(1, 2) + 0.5]


def get_init_inputs() -> list[object]:
    """Nothing."""
    return []


@triton.jit
def _multiply(x, w, x_scale, w_scale, y, rows, K, HALF: tl.constexpr, CROSSED: tl.constexpr):
    m, n, inner = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, 16), tl.arange(0, BLOCK)
    total = tl.zeros((16, 16), dtype=tl.float32)
    for block in range(K // BLOCK):
        k = block * BLOCK + inner
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m < rows)[:, None], other=0.0)
        b = tl.load(w + n[None, :] * K + k[:, None])
        other = K // BLOCK - 1 - block if CROSSED else block
        left = tl.load(x_scale + m * (K // BLOCK) + other, mask=m < rows, other=0.0)
        right = tl.load(w_scale + block)
        product = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
        total += product * left[:, None] * right
        if HALF:
            total = total.to(tl.bfloat16).to(tl.float32)
    tl.store(y + m[:, None] * 16 + n[None, :], total, mask=(m < rows)[:, None])


class _Blocked(nn.Module):
    half, crossed = False, False

    def forward(
        self, x: torch.Tensor, w: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor
    ) -> torch.Tensor:
        x, w, x_scale, w_scale = (one.contiguous() for one in (x, w, x_scale, w_scale))
        if w.shape != (16, 256):
            raise ValueError("w must be [16, 256]")
        y = torch.empty(len(x), 16, dtype=torch.bfloat16, device=x.device)
        if len(x):
            _multiply[(triton.cdiv(len(x), 16),)](
                x, w, x_scale, w_scale, y, len(x), 256, HALF=self.half, CROSSED=self.crossed
            )
        return y


class ModelNew(_Blocked):
    """Right: each block's product is scaled and added in fp32."""


class HalfSums(_Blocked):
    """Sums kept in bf16."""

    half = True


class Crossed(_Blocked):
    """The scales of another block."""

    crossed = True
