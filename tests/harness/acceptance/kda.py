"""Kimi delta attention of one head, as public benchmarks pose it, and candidates that go by chunks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn

CHUNK = tl.constexpr(16)


class Model(nn.Module):
    """Token by token, in fp32."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor
    ) -> torch.Tensor:
        """q, k, g [tokens, 16], v [tokens, 16] bf16, g fp32 log-decays, beta [tokens] in (0, 1)."""
        q, k = (nn.functional.normalize(x.float(), dim=-1, eps=1e-6) for x in (q, k))
        state = torch.zeros(k.shape[1], v.shape[1], device=v.device)
        rows = []
        for t in range(len(k)):
            state = state * g[t].exp()[:, None]
            change = beta[t] * (v[t].float() - k[t] @ state)
            state = state + k[t][:, None] * change[None]
            rows.append(q[t] @ state / 4)
        return torch.stack(rows).to(v.dtype)


def get_inputs() -> list[torch.Tensor]:
    """Two chunks and a piece."""
    q, k, v = (torch.randn(37, 16).bfloat16() for _ in range(3))
    return [q, k, v, -torch.rand(37, 16), torch.rand(37)]


def get_init_inputs() -> list[object]:
    """Nothing."""
    return []


@triton.jit
def _chunks(q, k, v, g, beta, out, tokens, TERMS: tl.constexpr, BY_SIZE: tl.constexpr):
    rows, columns = tl.arange(0, CHUNK), tl.arange(0, 16)
    state = tl.zeros((16, 16), dtype=tl.float32)
    for first in range(0, tokens, CHUNK):
        inside = (first + rows < tokens)[:, None]
        at = (first + rows)[:, None] * 16 + columns[None, :]
        queries = tl.load(q + at, mask=inside, other=0.0).to(tl.float32)
        keys = tl.load(k + at, mask=inside, other=0.0).to(tl.float32)
        values = tl.load(v + at, mask=inside, other=0.0).to(tl.float32)
        gates = tl.load(g + at, mask=inside, other=0.0)
        strength = tl.load(beta + first + rows, mask=first + rows < tokens, other=0.0)
        largest = tl.max(tl.abs(values))
        queries /= tl.maximum(tl.sqrt(tl.sum(queries * queries, 1)), 1e-6)[:, None]
        keys /= tl.maximum(tl.sqrt(tl.sum(keys * keys, 1)), 1e-6)[:, None]
        decay = tl.cumsum(gates, 0)
        shrunk = keys * tl.exp(decay)
        grown = keys * tl.exp(-decay)
        products = tl.dot(shrunk, tl.trans(grown), input_precision="ieee")
        lower = tl.where(rows[:, None] > rows[None, :], products, 0.0) * strength[:, None]
        wanted = values - tl.dot(shrunk, state, input_precision="ieee")
        target = wanted * strength[:, None]
        solved = target
        if TERMS == 0:
            for i in range(1, CHUNK):
                line = tl.sum(tl.where(rows[:, None] == i, lower, 0.0), 0)
                change = tl.sum(line[:, None] * solved, 0)
                solved = tl.where(rows[:, None] == i, solved - change[None, :], solved)
        else:
            for _ in range(TERMS):
                solved = target - tl.dot(lower, solved, input_precision="ieee")
        if BY_SIZE:
            solved = tl.where(largest > 64.0, solved.to(tl.bfloat16).to(tl.float32), solved)
        turned = queries * tl.exp(decay)
        scores = tl.dot(turned, tl.trans(grown), input_precision="ieee")
        scores = tl.where(rows[:, None] >= rows[None, :], scores, 0.0)
        y = tl.dot(turned, state, input_precision="ieee") + tl.dot(
            scores, solved, input_precision="ieee"
        )
        tl.store(out + at, y / 4, mask=inside)
        last = tl.sum(gates, 0)
        rest = keys * tl.exp(last[None, :] - decay)
        state = state * tl.exp(last)[:, None] + tl.dot(
            tl.trans(rest), solved, input_precision="ieee"
        )


class _Chunked(nn.Module):
    terms, by_size = 0, False

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor
    ) -> torch.Tensor:
        q, k, v, g, beta = (one.contiguous() for one in (q, k, v, g, beta))
        if k.shape[1] != 16 or v.shape[1] != 16:
            raise ValueError("heads must be 16 wide")
        out = torch.empty_like(v)
        _chunks[(1,)](q, k, v, g, beta, out, len(k), TERMS=self.terms, BY_SIZE=self.by_size)
        return out


class ModelNew(_Chunked):
    """Right: forward substitution."""


class FirstOrder(_Chunked):
    """The inverse as 1 - L."""

    terms = 1


class Cut(_Chunked):
    """The inverse as a series up to L^7, of 16 rows."""

    terms = 7


class BySize(_Chunked):
    """bf16 from a magnitude of the values on."""

    by_size = True
