"""Operands whose mean dominates: their products nearly cancel, so that stored roundings show.

An element is factor * n + shift, where n looks standard normal. n, the product and the sum are each rounded
to the tensor's type, to nearest even, as in a program that draws in that type. All of it is integer
arithmetic on multiples of 2^-16, so that a case has the same bits on every device.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.strategies.encoding import Dtype, encode

Kind = Literal["normal", "leaning", "correlated"]

KINDS: tuple[Kind, ...] = ("normal", "leaning", "correlated")

# (factor, shift). The last of each is the GDN2 report's (flash-linear-attention RFC 1550): normalised, its
# keys have a pairwise cosine of 0.96, and a query and a key one of about -0.7.
QUERIES: dict[Kind, tuple[int, int]] = {"normal": (1, 0), "leaning": (1, 1), "correlated": (1, 1)}
KEYS: dict[Kind, tuple[int, int]] = {"normal": (1, 0), "leaning": (2, -3), "correlated": (10, -50)}

_PLACES = 16  # an integer m stands for m * 2^-16
_DIGITS: dict[Dtype, int] = {"fp32": 24, "bf16": 8, "fp16": 11}


def affine(
    form: tuple[int, int],
    seed: int,
    shape: tuple[int, ...],
    device: torch.device,
    dtype: Dtype,
    *,
    unit: bool = False,
) -> Tensor:
    """factor * n + shift in `shape` [..., K] and `dtype`; `form` is (factor, shift).

    With `unit`, a power of two scales the rows so that the root mean square of their norms is between 1/2
    and 1.
    """
    factor, shift = form
    digits = _DIGITS[dtype]
    count = torch.Size(shape).numel()
    normal = generators.normal(generators.hash_words(seed, 0, count, device)) * 2.0**_PLACES
    n = round_digits(normal.to(torch.int64), digits)
    x = round_digits(round_digits(factor * n, digits) + (shift << _PLACES), digits)
    places = _PLACES + (_halvings(factor**2 + shift**2, shape[-1]) if unit else 0)
    words = (x.to(torch.float32) * 2.0**-places).view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    return encode(words, dtype).reshape(shape)


def round_digits(x: Tensor, digits: int) -> Tensor:
    """int64 `x`, below 2^53 in magnitude, rounded to `digits` binary digits, ties to even."""
    magnitude = x.abs()
    # An integer below 2^53 is exact in float64, whose exponent field then tells its length.
    length = (magnitude.to(torch.float64).view(torch.int64) >> 52) - 1022
    drop = (length - digits).clamp(min=0)
    half = (1 << drop) >> 1
    odd = magnitude >> drop & 1
    kept = magnitude + (half - 1 + odd).clamp(min=0) >> drop << drop
    return torch.where(x < 0, -kept, kept)


def _halvings(square: int, width: int) -> int:
    """The smallest e for which 4^e is at least `square` * `width`."""
    e = 0
    while 4**e < square * width:
        e += 1
    return e
