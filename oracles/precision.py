"""Precision policies: which intermediates of a chunked kernel are stored in fp32, and what storing rounds.

A policy never changes a kernel's public types. Rounding is done on the bits of float64 tensors, so that it
is the same on every device and shares nothing with torch's casts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from bitproof.oracles.formats import BF16, FP16, FP32, Format

FORWARD: Final = (
    "qk",  # q and k after normalisation
    "scores",  # scale * q k^T with decay, "Aqk"
    "inverse",  # (I + L)^-1, "A" or "Akk"
    "write",  # w * v before it is multiplied by the inverse
    "erase",  # b * k with decay before it is multiplied by the inverse
    "u",  # the WY representation's values
    "w",  # the WY representation's keys
    "qg",  # q with decay since the chunk's start
    "kg",  # k with decay until the chunk's end
    "state",  # the state at a chunk's start, as products read it
    "v_new",  # what a token adds to the state, "n"
)
"""Intermediates of the forward pass, in the order in which they come to be."""

BACKWARD: Final = (
    "dstate",  # the gradient of the state at a chunk's end, as products read it
    "dv_new",  # the gradient of v_new
    "dw",  # the gradient of the WY representation's keys
    "dinverse",  # the gradient of the inverse, and inverse^T times it
)
"""Intermediates of the backward pass; it computes those of the forward pass as well."""

EXCHANGED: Final = (
    "summary state",  # what a rank's tokens make of a state of zero, as it is sent
    "summary transition",  # what they multiply a state by, and its gradient, as it is sent
    "merged state",  # the state that a rank begins with, folded from the summaries before
    "summary gradient",  # what they make of a gradient of zero, as it is sent
    "merged gradient",  # the gradient of the state that a rank ends with, folded from those after
)
"""What ranks exchange where a sequence is cut over several of them, and what each makes of it."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A policy: the intermediates in `fp32` are kept in fp32, all others in the operands' own type.

    What ranks exchange is in fp32 where `narrow` does not name it. ValueError for a name that is no
    intermediate, or none that is exchanged.
    """

    fp32: frozenset[str]
    narrow: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Name what is unknown."""
        unknown = sorted(self.fp32 - {*FORWARD, *BACKWARD})
        if unknown:
            known = ", ".join((*FORWARD, *BACKWARD))
            raise ValueError(f"no intermediate is called {unknown[0]!r}: there are {known}")
        unsent = sorted(self.narrow - {*EXCHANGED})
        if unsent:
            known = ", ".join(EXCHANGED)
            raise ValueError(f"ranks exchange no {unsent[0]!r}: there are {known}")

    @property
    def kept(self) -> frozenset[str]:
        """Everything that is kept in fp32, what ranks exchange included."""
        return self.fp32 | (frozenset(EXCHANGED) - self.narrow)


UPSTREAM: Final = Precision(fp32=frozenset())
"""Every intermediate in the operands' type, as flash-linear-attention stores them."""

TARGETED: Final = Precision(fp32=frozenset({"scores", "u", "v_new"}))
"""The smallest set that brings o of correlated bf16 operands below 0.8 % (`bitproof attribute` finds it)."""

ALL_FP32: Final = Precision(fp32=frozenset({*FORWARD, *BACKWARD}))
"""Every intermediate in fp32."""

NARROW: Final = Precision(fp32=frozenset(), narrow=frozenset(EXCHANGED))
"""As upstream, and what ranks exchange in the operands' type too: half the bytes."""

NAMED: Final[Mapping[str, Precision]] = MappingProxyType(
    {"upstream": UPSTREAM, "targeted": TARGETED, "fp32": ALL_FP32, "narrow": NARROW}
)


def find_policy(policy: str | Precision) -> Precision:
    """The policy of that name, or the one given; ValueError, naming those there are, for another name."""
    if isinstance(policy, Precision):
        return policy
    if policy not in NAMED:
        raise ValueError(f"no precision policy is called {policy!r}: there are {', '.join(NAMED)}")
    return NAMED[policy]


Store = Callable[[str, Tensor], Tensor]
"""(name of an intermediate, its exact values) -> what is read back of it."""


def exact(name: str, x: Tensor) -> Tensor:
    """A store that rounds nothing."""
    return x


def make_store(points: frozenset[str], dtype: torch.dtype, grid: Tensor | float = 1.0) -> Store:
    """A store that rounds the intermediates in `points` to `dtype` and leaves the others as they are.

    Another `grid` than 1 stretches the format's values by that factor: errors of the same size elsewhere.
    """
    fmt = FORMATS[dtype]

    def store(name: str, x: Tensor) -> Tensor:
        return nearest(x * grid, fmt) / grid if name in points else x

    return store


FORMATS: Final[Mapping[torch.dtype, Format]] = MappingProxyType(
    {torch.bfloat16: BF16, torch.float16: FP16, torch.float32: FP32}
)


def nearest(x: Tensor, fmt: Format) -> Tensor:
    """float64 `x` rounded to the nearest value of `fmt` (bf16, fp16 or fp32), ties to even, as float64.

    Subnormal results are kept; what is too large becomes infinite.
    """
    drop = 52 - fmt.mantissa_bits
    bits = x.view(torch.int64)
    normal = (bits >> drop).bitwise_and_(1).add_(bits).add_((1 << (drop - 1)) - 1)
    normal = normal.bitwise_and_(-(1 << drop)).view(torch.float64)
    # Adding and taking away 1.5 * 2^52 units rounds to a multiple of the unit.
    anchor = 1.5 * 2.0 ** (52 + fmt.minimum_exponent - fmt.mantissa_bits)
    small = (x + anchor).sub_(anchor).copysign_(x)
    size = x.abs()
    rounded = torch.where(size < 2.0**fmt.minimum_exponent, small, normal)
    # Halfway between the largest number and what would come next: a tie with an odd number.
    beyond = (2.0 - 2.0 ** -(fmt.mantissa_bits + 1)) * 2.0**fmt.bias
    return torch.where(size < beyond, rounded, x * float("inf"))


def tf32(x: Tensor) -> Tensor:
    """float64 `x` as a tensor core reads an fp32 operand: cut to 10 mantissa bits, toward zero.

    Measured on an H200; exact for bf16 values and for fp16's normal ones.
    """
    return nearest(x, FP32).view(torch.int64).bitwise_and_(-(1 << (52 - 10))).view(torch.float64)
