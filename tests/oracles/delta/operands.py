"""Small operands of the gated delta rule, of hashed numbers: in float64, or as a kernel is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitproof.harness import generators
from bitproof.oracles.delta.recurrence import Tokens
from bitproof.oracles.formats import Floats

CPU = torch.device("cpu")


def numbers(seed: int, *shape: int) -> Tensor:
    """float64 multiples of 2^-23 in [-1, 1)."""
    count = torch.Size(shape).numel()
    return generators.uniform(generators.hash_words(seed, 0, count, CPU)).double().reshape(shape)


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


Tensors = dict[str, Tensor]
PLAIN: dict[str, Any] = {
    "scale": None,
    "gate": "log",
    "lower_bound": -5.0,
    "normalise": False,
    "state_v_first": False,
    "precision": "upstream",
}
HEADS, GROUPS, KEYS, VALUES = 2, 2, 8, 4
LENGTHS = (5, 0, 12)


def call(
    *,
    lengths: tuple[int, ...] = LENGTHS,
    slack: int = 0,
    groups: int = GROUPS,
    gate: str = "log",
    scalar: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensors:
    """Everything that a call may have, in the widest form: multiples of 2^-12, exact in fp32."""
    t, hv, n = sum(lengths) + slack, HEADS * groups, len(lengths)
    shapes = {
        "q": (t, HEADS, KEYS),
        "k": (t, HEADS, KEYS),
        "v": (t, hv, VALUES),
        "g": (t, hv, KEYS),
        **({"beta": (t, hv)} if scalar else {"b": (t, hv, KEYS), "w": (t, hv, VALUES)}),
        "do": (t, hv, VALUES),
    }
    whole = {"initial_state": (n, hv, KEYS, VALUES), "dht": (n, hv, KEYS, VALUES)}
    if gate != "log":
        whole |= {"A_log": (hv,), "dt_bias": (hv, KEYS)}
    made = {
        name: _rounded(numbers(salt, *shape))
        for salt, (name, shape) in enumerate({**shapes, **whole}.items())
    }
    made["k"] /= 2
    if gate == "log":
        made["g"] = -1 - made["g"]
    for name in {"b", "w", "beta"} & set(made):
        made[name] = (1 + made[name]) / 2
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    rest = {
        name: value.to(dtype if name in shapes else torch.float32) for name, value in made.items()
    }
    return {**rest, "cu_seqlens": starts}


def _rounded(x: Tensor) -> Tensor:
    return (x * 2.0**12).round() * 2.0**-12


def same(found: Floats, expected: Floats) -> None:
    """Equal up to the order of float64 sums."""
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0.0) <= 1e-13 * np.abs(expected).max(initial=0.0)
