"""Cases of the block-scaled products: sizes next to whole blocks, several kinds of codes and scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.case import Launch, Scale
from bitproof.harness.strategies import launches
from bitproof.harness.strategies.encoding import encode
from bitproof.kernels.fp8_gemm.arguments import CODES, SCALED, blocks, by_columns

# even        magnitudes from a half to 1.875 of either sign: sums cancel, every term counts
# one-sided   the same without signs: sums grow, and with them what each addition loses
# any         every code but NaN: a few large products hide the others
Kind = Literal["even", "one-sided", "any"]
Out = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class LinearCase:
    """One product: a [rows, depth] times b [columns, depth] transposed.

    kind      of codes, see above
    powers    scales are e8m0 codes, else fp32; both within 2^±spread
    extremes  e8m0 codes 0 for a and 254 for b or, in every second block along K, the other way round
    across    scales of a lie column by column
    special   a NaN in one row of a
    decoded   multiplied in bf16
    block_m   rows of a tile, in `parts` products; `launch.block` is its columns
    seed      of every number
    """

    rows: int = 1
    columns: int = 1
    depth: int = 1
    kind: Kind = "even"
    powers: bool = False
    spread: int = 0
    extremes: bool = False
    across: bool = False
    special: bool = False
    decoded: bool = False
    out: Out = "fp32"
    block_m: int = 16
    parts: int = 1
    seed: int = 0
    launch: Launch = Launch(block=32)

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """a, a_scale, b, b_scale."""
        a = codes(self.kind, self.seed * 8, (self.rows, self.depth), device)
        if self.special and a.numel():
            a.view(-1)[generators.pick(self.seed, a.numel())] = 0x7F
        shapes = {
            "a_scale": (self.rows, blocks(self.depth)),
            "b_scale": (blocks(self.columns), blocks(self.depth)),
        }
        built = {
            "a": a.view(CODES),
            "b": codes(self.kind, self.seed * 8 + 1, (self.columns, self.depth), device).view(
                CODES
            ),
        }
        for salt, (name, shape) in enumerate(shapes.items(), start=2):
            if self.extremes:
                column = torch.arange(shape[1], device=device) % 2 == (name == "b_scale")
                built[name] = (column.to(torch.uint8) * 254).expand(shape).contiguous()
            else:
                built[name] = scales(
                    self.seed * 8 + salt, shape, -self.spread, self.spread, device, self.powers
                )
        if self.across:
            built["a_scale"] = by_columns(built["a_scale"])
        return built

    def params(self) -> dict[str, Any]:
        """decoded, out, block_m, parts."""
        return {
            "decoded": self.decoded,
            "out": self.out,
            "block_m": self.block_m,
            "parts": self.parts,
        }

    def features(self) -> list[str]:
        """Tails and blocks, what the numbers are like, how they are multiplied, the launch."""
        found = {
            "no rows": self.rows == 0,
            "one row": self.rows == 1,
            "row tail": self.rows % self.block_m != 0,
            "two or more tiles of rows": self.rows > self.block_m,
            "column tail": self.columns % SCALED != 0,
            "two or more scales by columns": self.columns > SCALED,
            "depth tail": self.depth % SCALED != 0,
            "two or more blocks along K": self.depth > SCALED,
            f"codes of kind {self.kind}": True,
            "large ratios of scales": self.spread > 0,
            "smallest and largest e8m0 scales": self.extremes,
            "scales column by column": self.across,
            "NaN": self.special,
            "decoded to bf16": self.decoded,
            f"out in {self.out}": True,
            "tiles in two parts": self.parts == 2,
        }
        return [name for name, holds in found.items() if holds] + launches.features(self.launch)


@dataclass(frozen=True, kw_only=True)
class VectorCase:
    """One token: x [1, depth] times b [columns, depth] transposed; fields as in `LinearCase`.

    half      x is fp16, else bf16
    splits    into how many parts K is cut
    extremes  e8m0 codes 0 and 254 in turn, for each 128 columns one
    """

    columns: int = 1
    depth: int = 1
    half: bool = False
    powers: bool = False
    spread: int = 0
    special: bool = False
    decoded: bool = False
    splits: int = 1
    extremes: bool = False
    out: Out = "fp32"
    seed: int = 0
    launch: Launch = Launch(block=16)

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """x, b, b_scale."""
        words = generators.hash_words(self.seed * 4, 0, self.depth, device)
        x = generators.gaussian(words)
        if self.special and self.depth:
            x[generators.pick(self.seed, self.depth)] = float("nan")
        shape = blocks(self.columns), blocks(self.depth)
        ends = (torch.arange(shape[0], device=device) % 2 * 254).to(torch.uint8)[:, None]
        return {
            "x": short(x, half=self.half).reshape(1, self.depth),
            "b": codes("even", self.seed * 4 + 1, (self.columns, self.depth), device).view(CODES),
            "b_scale": ends.expand(shape).contiguous()
            if self.extremes
            else scales(self.seed * 4 + 2, shape, -self.spread, self.spread, device, self.powers),
        }

    def params(self) -> dict[str, Any]:
        """decoded, out, splits."""
        return {"decoded": self.decoded, "out": self.out, "splits": self.splits}

    def features(self) -> list[str]:
        """Tails, blocks and splits, the launch."""
        along = blocks(self.depth)
        found = {
            "column tail": self.columns % SCALED != 0,
            "two or more scales by columns": self.columns > SCALED,
            "depth tail": self.depth % SCALED != 0,
            "splits without a block": along < self.splits,
            "blocks that splits do not divide": along % self.splits != 0,
            "three or more partial sums": min(along, self.splits) >= 3,
            "large ratios of scales": self.spread > 0,
            "power-of-two scales": self.powers or self.extremes,
            "smallest and largest e8m0 scales": self.extremes,
            "NaN": self.special,
            f"out in {self.out}": True,
        }
        return [name for name, holds in found.items() if holds] + launches.features(self.launch)


def codes(kind: Kind, seed: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """e4m3 codes in uint8."""
    count = 1
    for extent in shape:
        count *= extent
    words = generators.hash_words(seed, 0, count, device)
    magnitude = words % 0x7F if kind == "any" else 0x30 + words % 0x10
    sign = torch.zeros_like(words) if kind == "one-sided" else words >> 31 << 7
    return (magnitude | sign).to(torch.uint8).reshape(shape)


def scales(
    seed: int, shape: tuple[int, ...], low: int, high: int, device: torch.device, powers: bool
) -> Tensor:
    """Positive scales with exponents from `low` to `high`: fp32 with full mantissas, or e8m0 codes."""
    count = 1
    for extent in shape:
        count *= extent
    words = generators.hash_words(seed, 0, count, device)
    if powers:
        return (127 + low + words % (high - low + 1)).to(torch.uint8).reshape(shape)
    return generators.log_uniform(words & ~1, low, high).reshape(shape)


def short(values: Tensor, *, half: bool = False) -> Tensor:
    """fp32 values in bf16 or fp16, truncated."""
    words = values.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    return encode(words, "fp16" if half else "bf16")


@st.composite
def linear_cases(draw: Any, *, powers: bool = False, scale: Scale = Scale()) -> LinearCase:
    """A few tiles and K blocks, next to whole ones; larger on a card. Shrinks toward one element."""
    on_card = scale.on_card
    parts = draw(st.sampled_from((1, 2)))
    height = draw(st.sampled_from((64, 16) if on_card else (16, 32)))
    block_m = parts * height
    most = 4 if on_card else 1
    rows = draw(st.sampled_from((1, 0, 3, height, block_m + 1, most * block_m + height + 2)))
    columns = draw(st.sampled_from(_near_blocks(128 * most)))
    depth = draw(st.sampled_from((*_near_blocks(128 * (most + 1)), 16, 300)))
    spread = draw(st.sampled_from((0, 2, 20)))
    return LinearCase(
        rows=rows,
        columns=columns,
        depth=depth,
        kind=draw(st.sampled_from(("even", "one-sided", "any"))),
        powers=powers,
        spread=spread,
        across=draw(st.booleans()),
        special=draw(st.sampled_from((False, False, False, True))),
        decoded=draw(st.booleans()),
        out=draw(st.sampled_from(("fp32", "bf16", "fp16") if spread < 20 else ("fp32", "bf16"))),
        block_m=block_m,
        parts=parts,
        seed=draw(st.integers(0, 2**16)),
        launch=draw(launches.launches((64, 32) if on_card else (32, 128), strided=True)),
    )


def _near_blocks(most: int) -> tuple[int, ...]:
    """One, and sizes below, at and above whole blocks of 128 up to `most` and one more block."""
    return (1, *sorted({e for b in (128, most) for e in (b - 3, b, b + 16)}), most + 144)


@st.composite
def vector_cases(draw: Any, *, scale: Scale = Scale()) -> VectorCase:
    """A few columns, and K blocks that splits divide or not. Shrinks toward one element."""
    most = 4 if scale.on_card else 1
    # Three cases in four have a sum of several partial sums in forty columns, so that its order shows.
    steered = draw(st.integers(0, 3)) > 0
    columns = (40, 60) if steered else (*_near_blocks(128 * most), 0)
    depths = (700, 1000) if steered else (*_near_blocks(128 * (most + 2)), 300)
    return VectorCase(
        columns=draw(st.sampled_from(columns)),
        depth=draw(st.sampled_from(depths)),
        half=draw(st.booleans()),
        powers=draw(st.booleans()),
        spread=draw(st.sampled_from((0, 2))),
        special=draw(st.sampled_from((False, False, False, True))),
        decoded=draw(st.booleans()),
        splits=draw(st.sampled_from((4, 8) if steered else (4, 8, 1, 2))),
        out=draw(st.sampled_from(("fp32", "fp32", "bf16", "fp16"))),
        seed=draw(st.integers(0, 2**16)),
        launch=draw(launches.launches((16, 64), strided=True)),
    )
