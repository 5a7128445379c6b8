"""Small float64 operands of the gated delta rule, of hashed numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from harness import data
from oracles.delta import Tokens

CPU = torch.device("cpu")


def numbers(seed: int, *shape: int) -> Tensor:
    """float64 multiples of 2^-23 in [-1, 1)."""
    count = torch.Size(shape).numel()
    return data.uniform(data.hashed(seed, 0, count, CPU)).double().reshape(shape)


def tokens(seed: int, count: int, heads: int = 2, keys: int = 8, values: int = 4) -> Tokens:
    """q and k near unit length, log-decays down to -2, gates b up to 2 and w up to 1."""
    k = numbers(8 * seed + 1, count, heads, keys)
    return Tokens(
        q=numbers(8 * seed, count, heads, keys),
        k=k / k.norm(dim=-1, keepdim=True),
        v=numbers(8 * seed + 2, count, heads, values),
        g=-1 - numbers(8 * seed + 3, count, heads, keys),
        b=1 + numbers(8 * seed + 4, count, heads, keys),
        w=0.5 + numbers(8 * seed + 5, count, heads, values) / 2,
    )


def states(seed: int, count: int, x: Tokens) -> Tensor:
    """[count, H, K, V]."""
    return numbers(8 * seed + 6, count, *x.q.shape[1:], x.v.shape[-1])


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the largest number of `b`; 0 of what has no elements."""
    if not b.numel():
        return 0.0
    return float((a - b).abs().max() / b.abs().max())
