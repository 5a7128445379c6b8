"""Cases of the dsReLU backward pass: how rows are split, and numbers that show each factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.case import Launch, Scale
from bitproof.harness.strategies import launches, ragged
from bitproof.harness.strategies.encoding import encode
from bitproof.kernels.dsrelu.arguments import SCALED

_LATTICE = 8  # one in so many of C is an exact zero


@dataclass(frozen=True, kw_only=True)
class DsreluCase:
    """One call: `tokens` rows of each group, then `slack` rows that belong to no group.

    experts   whose weights each group takes, -1 for rows of somebody else; indices modulo `weights` otherwise
    weights   how many experts there are
    columns   N; depth: K
    small     e4m3 operands with e8m0 scales within 2^±spread, else bf16
    quantised D in e4m3, by rows and by columns
    extremes  e8m0 codes 0 in A and 254 in B or, in every second block along K, the other way round: elements
              that keep their products ordinary, as small operands alone have
    spread    alpha and prob are signed, within 2^±spread, one in eight exactly zero
    buffers   what dprob and dbias hold before: zeros or numbers
    special   NaN in C, and a NaN in one row of A that belongs to a group
    block_m   rows of a tile; `launch.block` is its columns; block_k a step along K
    seed      of every number
    """

    tokens: tuple[int, ...] = (1,)
    slack: int = 0
    experts: tuple[int, ...] = (0,)
    weights: int = 1
    columns: int = 1
    depth: int = 16
    small: bool = False
    extremes: bool = False
    quantised: bool = False
    spread: int = 0
    buffers: bool = False
    special: bool = False
    block_m: int = 32
    block_k: int = 16
    subtiles: int = 1
    seed: int = 0
    launch: Launch = Launch(block=32)

    @property
    def rows(self) -> int:
        """M."""
        return sum(self.tokens) + self.slack

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """a, b, c, prob, alpha, offsets, experts, dprob, dbias, and a_scale, b_scale if small."""
        m, n, k = self.rows, self.columns, self.depth
        groups = len(self.tokens)
        experts = [e if e < 0 else e % self.weights for e in self.experts]
        starts = ragged.offsets(self.tokens)
        built = {
            "c": self._pre_activation(device).reshape(m, n),
            "prob": self._factors(1, m, device),
            "alpha": self._factors(2, self.weights, device),
            "offsets": torch.tensor(starts, dtype=torch.int32, device=device),
            "experts": torch.tensor(experts, dtype=torch.int32, device=device),
            "dprob": self._buffer(3, m, device),
            "dbias": self._buffer(4, groups * n, device).reshape(groups, n),
        }
        shapes = {"a": (m, k), "b": (self.weights, n, k)}
        for salt, (name, shape) in enumerate(shapes.items(), start=5):
            count = m * k if name == "a" else self.weights * n * k
            words = generators.hash_words(self._salt_seed(salt), 0, count, device)
            if not self.small:
                built[name] = _bf16(generators.normal(words)).reshape(shape)
                continue
            magnitude = words % 0x7F  # all but NaN
            if self.extremes:
                # Times 2^-127 a normal number of bf16 from 2 on; times 2^127 one of its range below 2.
                upper = self._steep(name, device).repeat_interleave(SCALED)[:k].repeat(count // k)
                magnitude = torch.where(upper, words % 0x40, 0x40 + words % 0x3F)
            code = (magnitude | (words >> 31) << 7).to(torch.uint8)
            built[name] = code.view(torch.float8_e4m3fn).reshape(shape)
            blocks = (*shape[:-1], -(-k // SCALED))
            count = count // k * blocks[-1]
            if self.extremes:
                steep = self._steep(name, device).to(torch.uint8) * 254
                built[f"{name}_scale"] = steep.repeat(count // blocks[-1]).reshape(blocks)
                continue
            exponent = generators.hash_words(self._salt_seed(salt + 2), 0, count, device)
            built[f"{name}_scale"] = self._scale(exponent).reshape(blocks)
        held = sum(self.tokens)
        if self.special and held:
            nan = torch.tensor(0x7F, dtype=torch.uint8) if self.small else torch.tensor(0x7FC0)
            row = generators.pick(self.seed, held)
            integers = torch.uint8 if self.small else torch.int16
            built["a"].view(integers)[row, generators.pick(self.seed + 1, k)] = nan.to(integers)
        return built

    def params(self) -> dict[str, Any]:
        """quantised, and the tile: block_m, block_k, subtiles."""
        return {
            "quantised": self.quantised,
            "block_m": self.block_m,
            "block_k": self.block_k,
            "subtiles": self.subtiles,
        }

    def features(self) -> list[str]:
        """The split, how many contributions an element has, what the numbers are like, the launch."""
        covered = ragged.features(self.tokens, self.block_m)
        tiles = -(-self.columns // self.launch.block)
        found = {
            "slack rows": self.slack > 0,
            "somebody else's group": -1 in self.experts,
            "shared weights": len({e for e in self.experts if e >= 0}) < len(self.experts),
            "column tail": self.columns % self.launch.block != 0,
            "depth tail": self.depth % self.block_k != 0,
            "quantised": self.quantised,
            "large ratios": self.spread > 0,
            "smallest and largest e8m0 scales": self.small and self.extremes,
            "four subtiles": self.subtiles == 4,
            "nonzero buffers": self.buffers,
            "NaN": self.special,
            "three or more contributions to dprob": tiles + self.buffers >= 3,
            "three or more contributions to dbias": any(
                -(-size // self.block_m) + self.buffers >= 3 for size in self.tokens
            ),
        }
        covered += [name for name, holds in found.items() if holds]
        return [*covered, *launches.features(self.launch)]

    def _salt_seed(self, salt: int) -> int:
        return self.seed * 16 + salt

    def _pre_activation(self, device: torch.device) -> Tensor:
        words = generators.hash_words(self._salt_seed(0), 0, self.rows * self.columns, device)
        c = _bf16(generators.normal(words))
        c = torch.where(words >> 12 & _LATTICE - 1 == 0, torch.zeros_like(c), c)
        nan = torch.full_like(c, float("nan"))
        return torch.where((words >> 15 & 7 == 0) & self.special, nan, c)

    def _factors(self, salt: int, count: int, device: torch.device) -> Tensor:
        words = generators.hash_words(self._salt_seed(salt), 0, count, device)
        signed = generators.log_uniform(words, -self.spread, self.spread)
        return torch.where(words % 11 == 0, torch.zeros_like(signed), signed)

    def _steep(self, name: str, device: torch.device) -> Tensor:
        """Which blocks of 32 along K have the largest scale rather than the smallest, in `a` or `b`."""
        return torch.arange(-(-self.depth // SCALED), device=device) % 2 == (name == "a")

    def _scale(self, words: Tensor) -> Tensor:
        return (127 - self.spread + words % (2 * self.spread + 1)).to(torch.uint8)

    def _buffer(self, salt: int, count: int, device: torch.device) -> Tensor:
        values = generators.normal(generators.hash_words(self._salt_seed(salt), 0, count, device))
        return values if self.buffers else torch.zeros_like(values)


def _bf16(values: Tensor) -> Tensor:
    words = values.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    return encode(words, "bf16")


@st.composite
def dsrelu_cases(draw: Any, *, small: bool = False, scale: Scale = Scale()) -> DsreluCase:
    """A few experts with a few tiles of rows and columns; many tiles where there is a card to fill.

    Three cases in four have three tiles along both axes, so that sums over tiles have an order. Shrinks
    toward one token, one column, one expert, ordinary numbers.
    """
    on_card = scale.on_card
    quantised = draw(st.booleans())
    least = 32 if quantised else 16
    block_m, block_n = (draw(st.sampled_from((least, 64 if on_card else 2 * least))) for _ in "mn")
    steered = draw(st.integers(0, 3)) > 0
    # The number of columns is compiled in: few of them, so that each is met often.
    columns = draw(st.sampled_from(_columns(block_n, steered=steered, on_card=on_card)))
    tokens = draw(ragged.sizes(groups=5, most=3 * block_m + 4, block=block_m))
    if steered:
        tiles = 40 if on_card else 2
        tokens = (*tokens, tiles * block_m + draw(st.integers(1, block_m)))
    weights = draw(st.integers(1, len(tokens)))
    experts = tuple(
        draw(st.sampled_from((i % weights, i % weights, weights - 1, -1)))
        if i < len(tokens) - steered
        else weights - 1
        for i in range(len(tokens))
    )
    block_k = 32 if small else draw(st.sampled_from((16, 32)))
    return DsreluCase(
        tokens=tokens,
        slack=draw(st.sampled_from((0, 0, 3, block_m + 1))),
        experts=experts,
        weights=weights,
        columns=columns,
        depth=draw(st.sampled_from((32, 16, 56, 40) if small else (16, 24, 64, 37))),
        small=small,
        quantised=quantised,
        spread=draw(st.sampled_from((0, 4, 20))),
        buffers=draw(st.booleans()) or steered,
        special=draw(st.sampled_from((False, False, True))),
        block_m=block_m,
        block_k=block_k,
        subtiles=draw(st.sampled_from((1, 2))) if block_n >= 2 * least else 1,
        seed=draw(st.integers(0, 2**16)),
        launch=draw(launches.launches((block_n,), strided=True)),
    )


def _columns(block: int, *, steered: bool, on_card: bool) -> tuple[int, ...]:
    if steered:
        return (4 * block, 4 * block + 8) if on_card else (2 * block + 1, 3 * block)
    return (1, block, block + 5, 2 * block)
