"""What a declared input tensor holds, whatever its type: a kind of data, a power of two and a type.

The kinds are those under which kernels were seen to fail although they had passed on ordinary numbers: a row
whose mean dominates its spread, rows that all point one way, magnitudes that fall by binades along a row.
Everything is integer arithmetic on hashed counters and exact fp32 products, so that a case has the same bits
on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.errors import UsageError
from bitproof.harness.strategies.encoding import Dtype, encode
from bitproof.harness.strategies.values import Values
from bitproof.oracles import formats

Kind = Literal[
    "ordinary",
    "one-sided",
    "offset",
    "correlated",
    "graded",
    "sparse",
    "constant",
    "extreme",
    "special",
]
# Without the last two, which only a contract that asks for them meets.
KINDS: tuple[Kind, ...] = (
    *("ordinary", "one-sided", "offset", "correlated"),
    *("graded", "sparse", "constant"),
)
EVERY_KIND: tuple[Kind, ...] = (*KINDS, "extreme", "special")

# Binades below the largest, along a graded row; and to both sides of 1, of extreme values.
_GRADES: dict[Dtype, int] = {"fp32": 24, "bf16": 24, "fp16": 10}
_REACH: dict[Dtype, int] = {"fp32": 60, "bf16": 60, "fp16": 12}


@dataclass(frozen=True, kw_only=True)
class Fill:
    """How a tensor is filled.

    kind      ordinary    looks standard normal, with full mantissas
              one-sided   the same without signs
              offset      in each row a large mean of either sign and a small spread around it
              correlated  every row nearly the same: one row, and in each a thirty-second of another
              graded      ordinary, falling by 24 binades along each row (10 in fp16)
              sparse      ordinary, seven in eight of them zero
              constant    one ordinary number everywhere
              extreme     magnitudes over 120 binades around 1 (24 in fp16)
              special     ordinary, one in sixteen a signed zero, infinity, NaN or extreme
    exponent  every value is times 2^exponent
    dtype     the tensor's type as torch names it; integers take any value of their type, only their ends
              where extreme, and never a negative one where one-sided

    Raises UsageError for an exponent or a type that cannot be built.
    """

    kind: Kind = "ordinary"
    exponent: int = 0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        """Reject what `build` could not turn into numbers."""
        if not -100 <= self.exponent <= 100:
            raise UsageError(f"the exponent of a fill must be -100 to 100, got {self.exponent}")
        if not takes(dtype_of(self.dtype)):
            raise UsageError(f"no input of type {self.dtype!r} can be drawn")

    def build(
        self,
        shape: tuple[int, ...],
        device: torch.device,
        *,
        seed: int,
        between: tuple[float, float] | None = None,
    ) -> Tensor:
        """A tensor of `shape`; `between`, the least and the largest value, stands for kind and exponent."""
        dtype = dtype_of(self.dtype)
        count = torch.Size(shape).numel()
        words = generators.hash_words(seed, 0, count, device)
        if dtype == torch.bool:
            return _booleans(self.kind, words).reshape(shape)
        if not dtype.is_floating_point:
            return _integers(self.kind, words, dtype, between).reshape(shape)
        if between is not None:
            low, high = between
            part = (words >> 8).to(torch.float64) * 2.0**-24
            filled = (low + (high - low) * part).to(torch.float32)
            return _encoded(filled, dtype).reshape(shape)
        kind = _BUILT[self.kind] if shape and count else _plain
        return _encoded(kind(self, shape, seed, device), dtype).reshape(shape)


def dtype_of(name: str) -> torch.dtype:
    """The torch type of that name, such as "bfloat16"; UsageError where there is none."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"{name!r} is no type of torch")
    return dtype


def name_of(dtype: torch.dtype) -> str:
    """The name of a torch type, such as "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def takes(dtype: torch.dtype) -> bool:
    """Whether tensors of that type can be filled."""
    return dtype in _SHORT or dtype in _INTEGERS or dtype in _SMALL or dtype == torch.bool


_SHORT: dict[torch.dtype, Dtype] = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float64: "fp32",
}
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
_SMALL = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}


def _narrow(dtype: str) -> Dtype:
    """The type that bounds a value's range, of those that words are encoded in."""
    return _SHORT.get(dtype_of(dtype), "fp16")


def _scaled(fill: Fill, values: Tensor) -> Tensor:
    return values * 2.0**fill.exponent


def _gaussian(shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    return generators.gaussian(
        generators.hash_words(seed, 0, torch.Size(shape).numel(), device)
    ).reshape(shape)


def _plain(fill: Fill, shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    return _scaled(fill, _gaussian(shape, seed, device))


def _one_sided(fill: Fill, shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    return _plain(fill, shape, seed, device).abs()


def _correlated(fill: Fill, shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    common = _gaussian(shape[-1:], seed ^ 0xC033, device)
    return _scaled(fill, common + _gaussian(shape, seed, device) * 2.0**-5)


def _graded(fill: Fill, shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    column = torch.arange(shape[-1], dtype=torch.int64, device=device)
    steps = column * _GRADES[_narrow(fill.dtype)] // max(shape[-1], 1)
    return _plain(fill, shape, seed, device) * generators.words_to_fp32(127 - steps << 23)


def _sparse(fill: Fill, shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    chosen = (
        generators.hash_words(seed ^ 0x59A5, 0, torch.Size(shape).numel(), device).reshape(shape)
        & 7
    )
    return torch.where(chosen == 0, _plain(fill, shape, seed, device), 0.0)


def _constant(fill: Fill, shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    return _plain(fill, (1,), seed, device).expand(shape).contiguous()


def _extreme(fill: Fill, shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    words = generators.hash_words(seed, 0, torch.Size(shape).numel(), device)
    reach = _REACH[_narrow(fill.dtype)]
    low, high = (max(-126, min(127, end + fill.exponent)) for end in (-reach, reach))
    return generators.log_uniform(words, low, high).reshape(shape)


def _known(fill: Fill, shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    """A kind that quantisers' values have too."""
    kind: Literal["offset", "special"] = "offset" if fill.kind == "offset" else "special"
    values = Values(kind=kind, seed=seed, exponent=fill.exponent)
    # Built in the narrow type, whose digits decide how small a spread can show, then widened exactly.
    return values.build(shape, device, dtype=_narrow(fill.dtype)).to(torch.float32)


_BUILT: dict[Kind, Callable[[Fill, tuple[int, ...], int, torch.device], Tensor]] = {
    "ordinary": _plain,
    "one-sided": _one_sided,
    "offset": _known,
    "correlated": _correlated,
    "graded": _graded,
    "sparse": _sparse,
    "constant": _constant,
    "extreme": _extreme,
    "special": _known,
}


def _encoded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """fp32 values in `dtype`, truncated toward zero; float64 holds them as they are."""
    if dtype in _SMALL:
        return _in_small(values.reshape(-1), dtype)
    words = values.contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    short = encode(words, _SHORT[dtype])
    return short.to(torch.float64) if dtype == torch.float64 else short


def _in_small(values: Tensor, dtype: torch.dtype) -> Tensor:
    """fp32 values as the largest magnitude of an 8-bit float that does not exceed theirs; NaN stays NaN."""
    grid = _grid(_SMALL[dtype]).to(values.device)
    codes = torch.searchsorted(grid, values.abs().contiguous(), right=True) - 1
    codes = torch.where(torch.isnan(values), 0x7F, codes)
    negative = torch.signbit(values).to(torch.int64) << 7
    return (codes | negative).to(torch.uint8).view(dtype)


@cache
def _grid(fmt: str) -> Tensor:
    """The non-negative values of a format, ascending: their places are their codes."""
    values = formats.grid(formats.by_name(fmt))
    return torch.tensor(values[values >= 0], dtype=torch.float32, device="cpu")


def _integers(
    kind: Kind, words: Tensor, dtype: torch.dtype, between: tuple[float, float] | None
) -> Tensor:
    limits = torch.iinfo(dtype)
    # Wide types take 31 bits: sums of a few indices or counts then stay in range.
    low, high = (max(limits.min, -(1 << 31)), min(limits.max, (1 << 31) - 1))
    if between is not None:
        low, high = int(between[0]), int(between[1])
    elif kind == "one-sided":
        low = 0
    span = high - low + 1
    if kind == "extreme":
        return torch.where(words & 1 == 0, low, high).to(dtype)
    if kind == "constant":
        words = words[:1].expand_as(words)
    drawn = words % span + low
    if kind == "sparse":
        drawn = torch.where(words >> 29 == 0, drawn, max(low, min(0, high)))
    return drawn.to(dtype)


def _booleans(kind: Kind, words: Tensor) -> Tensor:
    """Half of them true; one in eight where sparse, all where one-sided or constant."""
    if kind in ("one-sided", "constant"):
        return torch.ones_like(words, dtype=torch.bool)
    return (words >> 16 & (7 if kind == "sparse" else 1)) == 0


__all__ = ["EVERY_KIND", "KINDS", "Fill", "Kind", "dtype_of", "name_of", "takes"]
