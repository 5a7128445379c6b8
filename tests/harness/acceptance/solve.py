"""The delta rule's triangular system as a reference and its candidates: functions in one file."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def reference(k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """(I + L)^-1 v with L the strictly lower part of beta k kᵀ: k [n, d], v [n, m], beta [n]."""
    rows = v[:1]
    for t in range(1, len(k)):
        row = v[t] - beta[t] * ((k[:t] @ k[t]) @ rows)
        rows = torch.cat((rows, row[None]))
    return rows


def get_inputs() -> list[torch.Tensor]:
    """Keys of about unit length."""
    return [torch.randn(7, 16) / 4, torch.randn(7, 12), torch.rand(7)]


@triton.jit
def _solve(k, v, beta, out, n, D: tl.constexpr, M, ORDER: tl.constexpr):
    rows, inner, columns = tl.arange(0, 16), tl.arange(0, 32), tl.arange(0, 16)
    keys = tl.load(
        k + rows[:, None] * D + inner[None, :],
        mask=(rows[:, None] < n) & (inner[None, :] < D),
        other=0.0,
    )
    gates = tl.load(beta + rows, mask=rows < n, other=0.0)
    at = rows[:, None] * M + columns[None, :]
    mask = (rows[:, None] < n) & (columns[None, :] < M)
    values = tl.load(v + at, mask=mask, other=0.0)
    products = tl.sum(keys[:, None, :] * keys[None, :, :], 2)
    lower = tl.where(rows[:, None] > rows[None, :], products * gates[:, None], 0.0)
    if ORDER == 0:
        solved = values
        for i in range(n):
            line = tl.sum(tl.where(rows[:, None] == i, lower, 0.0), 0)
            change = tl.sum(line[:, None] * solved, 0)
            solved = tl.where(rows[:, None] == i, solved - change[None, :], solved)
    else:
        solved = values
        for _ in range(ORDER):
            solved = values - tl.sum(lower[:, :, None] * solved[None, :, :], 1)
    tl.store(out + at, solved, mask=mask)


def _launch(k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, order: int) -> torch.Tensor:
    if len(k) > 16 or k.shape[1] > 32 or v.shape[1] > 16:
        raise ValueError("at most 16 rows, 32 channels of k and 16 of v")
    k, v, beta = (one.contiguous() for one in (k, v, beta))
    out = torch.empty_like(v)
    _solve[(1,)](k, v, beta, out, len(k), k.shape[1], v.shape[1], order)
    return out


def right(k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """Forward substitution."""
    return _launch(k, v, beta, 0)


def first_order(k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """v - L v: right to a percent where the gates are gentle."""
    return _launch(k, v, beta, 1)


def cut(k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """The series up to L^4."""
    return _launch(k, v, beta, 4)
