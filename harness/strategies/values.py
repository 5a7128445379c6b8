"""Many values at once: a small description that builds a whole input tensor, the same on every device.

A `Values` names a kind of number, a seed and a few knobs. `build` makes the bits from it with nothing but
integer operations and exactly rounded fp32 products. It truncates fp32 to a 16-bit type by shifting, never
by a library's conversion, so that the bits do not depend on the device.

The last axis is divided into blocks of `run` elements, a quantiser's groups. Kinds that aim at a quantiser
place one element in each block that fixes the block's largest magnitude, and with it the scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.errors import UsageError
from bitproof.harness.strategies import floats
from bitproof.harness.strategies.encoding import Dtype, encode

Kind = Literal[
    "normal",
    "gaussian",
    "offset",
    "uniform",
    "lattice",
    "anchored",
    "edges",
    "log",
    "subnormal",
    "special",
    "bits",
    "range",
    "constant",
    "explicit",
]

ONE = "0x3f800000"
_SIGN = 0x80000000
_MAGNITUDE = 0x7FFFFFFF

# How often an input has each type: fp32 can hold what the other two cannot.
INPUT_TYPES: tuple[Dtype, ...] = ("fp32", "fp32", "bf16", "fp16")


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One element set to explicit bits; `index` counts in row-major order, modulo the tensor's size."""

    index: int
    bits: str


@dataclass(frozen=True, kw_only=True)
class Values:
    """How a tensor is filled.

    kind        normal      looks standard normal, times 2^exponent
                gaussian    the same with full mantissas, so that sums of it are rounded
                offset      in each row a large mean of either sign, from 2^exponent to twice that, plus
                            gaussians between 2^-2 of it and 2^-14, 2^-9 in fp16 and 2^-6 in bf16
                uniform     in [-1, 1), times 2^exponent
                lattice     values and midpoints of the format `target`, and their fp32 neighbours,
                            times `unit`
                anchored    midpoints of `target` and their neighbours, times a scale drawn for each
                            block within 2^(exponent ± 3); one element fixes that scale
                edges       in each block one element at, just below or just above 1 or the largest value
                            of `target`, times 2^(exponent ± 20); the others are at most half of it, over
                            sixteen binades
                log         uniform in the exponent, within 16 of `exponent`
                subnormal   fp32 subnormals and zeros
                special     normal, one in sixteen a signed zero, infinity, NaN payload or extreme
                bits        any bit pattern
                range       consecutive bit patterns of the input's type from `bits[0]`
                constant    `bits[0]` everywhere
                explicit    `bits`, repeated as often as needed
    seed        of the integer hash
    exponent    see above; -126 to 110
    target      the format that lattice, anchored and edges aim at
    unit        an fp32 bit pattern, see lattice
    bits        fp32 bit patterns, see range, constant and explicit
    blank       whether about half of the blocks become zeros, with the signs that their elements had
    patches     elements set to given bits at the end

    Raises UsageError for an exponent, bit patterns or a lack of them that cannot be built.
    """

    kind: Kind = "normal"
    seed: int = 0
    exponent: int = 0
    target: str = "e4m3"
    unit: str = ONE
    bits: tuple[str, ...] = ()
    blank: bool = False
    patches: tuple[Patch, ...] = ()

    def __post_init__(self) -> None:
        """Reject what `build` could not turn into numbers."""
        if not -126 <= self.exponent <= 110:
            raise UsageError(f"values: exponent must be from -126 to 110, got {self.exponent}")
        if self.kind in ("range", "constant", "explicit") and not self.bits:
            raise UsageError(f"values of kind {self.kind!r} need at least one pattern in `bits`")
        for pattern in (self.unit, *self.bits, *(patch.bits for patch in self.patches)):
            floats.word(pattern)

    def build(
        self,
        shape: tuple[int, ...],
        device: torch.device,
        *,
        dtype: Dtype = "fp32",
        run: int = 32,
    ) -> Tensor:
        """A tensor of `shape` in `dtype`, its last axis in blocks of `run` elements."""
        layout = _Layout.of(shape, run, dtype, device)
        words = _GENERATORS[self.kind](self, layout)
        if self.blank:
            keep = -(
                layout.per_block(
                    generators.hash_words(self.seed ^ 0xB1A2, 0, layout.blocks, device)
                )
                & 1
            )
            words = words & (keep | _SIGN)
        if self.patches and layout.size:
            index = [patch.index % layout.size for patch in self.patches]
            values = [floats.word(patch.bits) for patch in self.patches]
            words[torch.tensor(index, device=device)] = torch.tensor(values, device=device)
        return encode(words, dtype).reshape(shape)


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """The elements of a tensor in row-major order, seen as rows of `columns` in blocks of `run`."""

    rows: int
    columns: int
    run: int
    dtype: Dtype
    device: torch.device

    @classmethod
    def of(cls, shape: tuple[int, ...], run: int, dtype: Dtype, device: torch.device) -> _Layout:
        columns = shape[-1]
        rows = 1
        for extent in shape[:-1]:
            rows *= extent
        return cls(rows=rows, columns=columns, run=run, dtype=dtype, device=device)

    @property
    def size(self) -> int:
        return self.rows * self.columns

    @property
    def blocks_per_row(self) -> int:
        return -(-self.columns // self.run)

    @property
    def blocks(self) -> int:
        return self.rows * self.blocks_per_row

    def column(self) -> Tensor:
        """Each element's column."""
        return torch.arange(self.columns, device=self.device).expand(self.rows, -1).reshape(-1)

    def per_block(self, words: Tensor) -> Tensor:
        """One word per block, given to each of its elements."""
        rows = words.reshape(self.rows, self.blocks_per_row).repeat_interleave(self.run, dim=1)
        return rows[:, : self.columns].reshape(-1)

    def mask_chosen(self, words: Tensor) -> Tensor:
        """Which element of each block its word picks: a mask."""
        place = words % max(min(self.run, self.columns), 1)
        return self.column() % self.run == self.per_block(place)


def _words(values: Tensor) -> Tensor:
    """fp32 values as int64 words."""
    return values.view(torch.int32).to(torch.int64) & 0xFFFFFFFF


def _hash_elements(values: Values, layout: _Layout) -> Tensor:
    return generators.hash_words(values.seed, 0, layout.size, layout.device)


def _hash_blocks(values: Values, layout: _Layout) -> Tensor:
    return generators.hash_words(values.seed ^ 0x5EED, 0, layout.blocks, layout.device)


def _normal(values: Values, layout: _Layout) -> Tensor:
    return _words(generators.normal(_hash_elements(values, layout)) * 2.0**values.exponent)


def _gaussian(values: Values, layout: _Layout) -> Tensor:
    return _words(generators.gaussian(_hash_elements(values, layout)) * 2.0**values.exponent)


def _offset(values: Values, layout: _Layout) -> Tensor:
    """Each row has a mean and a spread of its own: which ratio shows a cancellation is the kernel's."""
    rows = generators.hash_words(values.seed ^ 0x0FF5, 0, layout.rows, layout.device)
    narrowest = {"fp32": 14, "bf16": 6, "fp16": 9}[layout.dtype]
    ratio = 2 + (rows >> 8 & 0xFF) % (narrowest - 1)
    mean = generators.words_to_fp32(
        rows & _SIGN | values.exponent + 127 << 23 | rows >> 9 & 0x7FFFFF
    )
    spread = generators.words_to_fp32((values.exponent + 127 - ratio).clamp(min=1) << 23)
    noise = generators.gaussian(_hash_elements(values, layout)).reshape(layout.rows, layout.columns)
    return _words((mean[:, None] + spread[:, None] * noise).reshape(-1))


def _uniform(values: Values, layout: _Layout) -> Tensor:
    return _words(generators.uniform(_hash_elements(values, layout)) * 2.0**values.exponent)


def _log(values: Values, layout: _Layout) -> Tensor:
    low, high = max(values.exponent - 16, -126), values.exponent + 16
    return _words(generators.log_uniform(_hash_elements(values, layout), low, high))


def _subnormal(values: Values, layout: _Layout) -> Tensor:
    return _hash_elements(values, layout) & 0x807FFFFF


def _bits(values: Values, layout: _Layout) -> Tensor:
    words = _hash_elements(values, layout)
    # Most fp32 patterns are beyond fp16's range: its own patterns are drawn instead.
    return words if layout.dtype != "fp16" else _table("fp16 patterns", layout.device)[words >> 16]


def _special(values: Values, layout: _Layout) -> Tensor:
    words = _hash_elements(values, layout)
    table = _table("special", layout.device)
    special = table[(words >> 16) % table.numel()]
    ordinary = _words(generators.normal(words) * 2.0**values.exponent)
    return torch.where(words & 15 == 0, special, ordinary)


def _lattice(values: Values, layout: _Layout) -> Tensor:
    words = _pick_signed(_table(values.target, layout.device), _hash_elements(values, layout))
    if values.unit == ONE:
        return words
    unit = torch.tensor([floats.word(values.unit)], dtype=torch.int64, device=layout.device)
    return _words(generators.words_to_fp32(words) * generators.words_to_fp32(unit))


def _pick_signed(table: Tensor, words: Tensor) -> Tensor:
    """Magnitudes of a table and signs, both chosen by hashed words."""
    return table[(words & _MAGNITUDE) % table.numel()] | words & _SIGN


def _build_anchored(values: Values, layout: _Layout) -> Tensor:
    words, blocks = _hash_elements(values, layout), _hash_blocks(values, layout)
    table = _table(f"{values.target} midpoints", layout.device)
    # A quarter of them among the smallest, which fall into subnormal steps or round to zero.
    small = _pick_signed(table[:24], words)
    middle = torch.where(words >> 29 & 3 == 0, small, _pick_signed(table, words))
    largest = floats.largest(values.target) | words & _SIGN
    middle = torch.where(layout.mask_chosen(blocks >> 8), largest, middle)
    # A scale that is a power of two, or that fp16 holds, keeps a midpoint one; with any other the
    # division rounds. With all but the first, a product with the reciprocal rounds otherwise.
    short = torch.where(blocks & 2 == 0, 0, 0x7FFFFF)
    fraction = blocks >> 2 & torch.where(blocks & 1 == 0, 0x7FE000, short)
    exponent = ((blocks >> 25) % 7 - 3 + values.exponent).clamp(-126, 117)
    scale = generators.words_to_fp32(fraction | (exponent + 127) << 23)
    return _words(generators.words_to_fp32(middle) * layout.per_block(scale))


def _edges(values: Values, layout: _Layout) -> Tensor:
    blocks = _hash_blocks(values, layout)
    top = torch.where(blocks & 3 == 0, floats.word(ONE), floats.largest(values.target))
    exponent = ((blocks >> 8) % 41 - 20 + values.exponent).clamp(-126, 117)
    # Twice as often just above the edge, where a scale has to change, as at it or just below.
    edge = top + (exponent << 23) + (blocks >> 6 & 3).clamp(max=2) - 1
    words = _hash_elements(values, layout)
    binade = (layout.per_block(exponent + 126) - (words & 15)).clamp(min=0)
    below = generators.uniform(words) * generators.words_to_fp32(binade << 23)
    sign = words & _SIGN
    return torch.where(
        layout.mask_chosen(blocks >> 8), layout.per_block(edge) | sign, _words(below)
    )


def _range(values: Values, layout: _Layout) -> Tensor:
    step = {"fp32": 1, "bf16": 1 << 16, "fp16": 1 << 13}[layout.dtype]
    count = torch.arange(layout.size, dtype=torch.int64, device=layout.device)
    return count * step + floats.word(values.bits[0]) & 0xFFFFFFFF


def _constant(values: Values, layout: _Layout) -> Tensor:
    word = floats.word(values.bits[0])
    return torch.full((layout.size,), word, dtype=torch.int64, device=layout.device)


def _explicit(values: Values, layout: _Layout) -> Tensor:
    words = [floats.word(pattern) for pattern in values.bits]
    repeats = -(-layout.size // len(words))
    return torch.tensor(words, dtype=torch.int64, device=layout.device).repeat(repeats)[
        : layout.size
    ]


_GENERATORS: dict[Kind, Callable[[Values, _Layout], Tensor]] = {
    "normal": _normal,
    "gaussian": _gaussian,
    "offset": _offset,
    "uniform": _uniform,
    "lattice": _lattice,
    "anchored": _build_anchored,
    "edges": _edges,
    "log": _log,
    "subnormal": _subnormal,
    "special": _special,
    "bits": _bits,
    "range": _range,
    "constant": _constant,
    "explicit": _explicit,
}


@cache
def _table(name: str, device: torch.device) -> Tensor:
    """Words to choose from, kept on the device that uses them."""
    target, _, part = name.partition(" ")
    if name == "special":
        words = np.array(list(floats.SPECIALS.values()), dtype=np.int64)
    elif name == "fp16 patterns":
        words = floats.words_of_fp16()
    elif part == "midpoints":
        words = floats.neighbourhood(floats.midpoints(target))
    else:
        words = floats.neighbourhood(floats.magnitudes(target))
    return torch.tensor(words, device=device)


# How often each kind is drawn; the first is what a failure shrinks toward.
_ANYTHING: tuple[Kind, ...] = (
    *("uniform", "log", "subnormal"),
    *("bits", "range", "constant") * 2,
    *("special",) * 3,
)
CAST_KINDS: tuple[Kind, ...] = (*("lattice",) * 6, "normal", *_ANYTHING)
QUANTISER_KINDS: tuple[Kind, ...] = (
    "normal",
    *("anchored",) * 6,
    *("edges",) * 6,
    *_ANYTHING,
)
POWER_KINDS: tuple[Kind, ...] = (
    "normal",
    *("edges",) * 11,
    *("anchored",) * 4,
    *_ANYTHING,
)
# For kernels that compute with numbers rather than round them to a format.
ARITHMETIC_KINDS: tuple[Kind, ...] = (
    *("gaussian",) * 4,
    *("offset",) * 4,
    *("uniform", "log", "constant", "subnormal"),
    *("special",) * 2,
)
# None of their numbers is eight times 2^exponent or more.
BOUNDED_KINDS: tuple[Kind, ...] = ("gaussian", "offset", "uniform")
_STARTED = ("range", "constant")
_SCALED = ("normal", "gaussian", "offset", "uniform", "log", "special", "anchored", "edges")


@cache
@st.composite
def values(
    draw: Any,
    target: str | None = None,
    kinds: tuple[Kind, ...] | None = None,
    *,
    usual: tuple[int, int] = (-30, 40),
    only: tuple[int, int] | None = None,
) -> Values:
    """A `Values` of one of `kinds`, aimed at the format `target` where a kernel rounds to one.

    `kinds` are QUANTISER_KINDS with a target and ARITHMETIC_KINDS without. Where `only` gives the range of
    exponents that a contract allows, they are BOUNDED_KINDS without a target, and no element is patched.
    `usual` is the range of exponents that decide how a quantiser forms its scale; one case in eight takes any
    exponent.

    Shrinks toward the first of `kinds`, seed 0, exponent 0 (or the allowed one next to it), nothing blank and
    no patch.
    """
    if kinds is None:
        arithmetic = ARITHMETIC_KINDS if only is None else BOUNDED_KINDS
        kinds = arithmetic if target is None else QUANTISER_KINDS
    if target is None:
        target = "bf16"
    # Every kind makes the same choices, the patterns last, so that shrinking one choice moves no other.
    kind = draw(st.sampled_from(kinds))
    seed = draw(st.integers(0, 0xFFFFFFFF))
    low, high = usual if draw(st.integers(0, 7)) < 7 else (-126, 110)
    low, high = (low, high) if only is None else only
    exponent = draw(st.integers(low, high))
    blank = draw(st.sampled_from((False, False, False, True)))
    patches = tuple(draw(_patches(target))) if only is None else ()
    return Values(
        kind=kind,
        seed=0 if kind in _STARTED else seed,
        exponent=exponent if kind in _SCALED else 0,
        target=target,
        bits=(draw(floats.patterns(target)),) if kind in _STARTED else (),
        blank=blank,
        patches=patches,
    )


@cache
def _patches(target: str) -> st.SearchStrategy[list[Patch]]:
    bits = st.one_of(floats.specials(), floats.patterns(target))
    return st.lists(st.builds(Patch, index=st.integers(0, 4095), bits=bits), max_size=2)
