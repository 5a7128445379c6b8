"""Cases of a mixture of experts: who is chosen how often and in which order, and tokens worth mixing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.case import Launch, Scale
from bitproof.harness.strategies import launches, ragged
from bitproof.kernels.fp8_gemm.arguments import CODES, SCALED
from bitproof.kernels.fp8_gemm.cases import codes, scales, short


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Which experts tokens choose.

    sizes      how many routes each expert has: there are as many experts as sizes
    elsewhere  routes to experts that live elsewhere, -1; a few more fill up the last token
    top_k      choices of a token, the same expert twice included
    sorted     choices are in the order of experts, else in a hashed one
    """

    sizes: tuple[int, ...] = (1,)
    elsewhere: int = 0
    top_k: int = 1
    sorted: bool = False

    @property
    def tokens(self) -> int:
        """How many tokens choose."""
        return -(-(sum(self.sizes) + self.elsewhere) // self.top_k)

    def choices(self, seed: int, device: torch.device) -> Tensor:
        """[tokens, top_k] int32."""
        count = self.tokens * self.top_k
        owned = [expert for expert, size in enumerate(self.sizes) for _ in range(size)]
        flat = torch.tensor(owned + [-1] * (count - len(owned)), dtype=torch.int32, device=device)
        if not self.sorted:
            flat = flat[generators.permutation(seed, count, device)]
        return flat.reshape(self.tokens, self.top_k)

    def features(self, block: int) -> list[str]:
        """How routes are split."""
        routes = self.tokens * self.top_k
        found = {
            "experts elsewhere": routes > sum(self.sizes),
            "one expert": len(self.sizes) == 1,
            "one choice": self.top_k == 1,
            "more experts than routes": len(self.sizes) > routes,
            "choices in order": self.sorted,
        }
        covered = ragged.features(self.sizes, block)
        return covered + [name for name, holds in found.items() if holds]


@dataclass(frozen=True, kw_only=True)
class AlignCase:
    """One alignment in blocks of `launch.block` rows."""

    routing: Routing = Routing()
    seed: int = 0
    launch: Launch = Launch(block=16)

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """choices."""
        return {"choices": self.routing.choices(self.seed, device)}

    def params(self) -> dict[str, Any]:
        """experts, block."""
        return {"experts": len(self.routing.sizes), "block": self.launch.block}

    def features(self) -> list[str]:
        """How routes are split, and into how many programs."""
        covered = self.routing.features(self.launch.block)
        many = self.routing.tokens * self.routing.top_k > 128
        return [*covered, *(["two or more programs"] if many else [])]


@dataclass(frozen=True, kw_only=True)
class ExpertsCase:
    """One prefill of tokens of `width` elements through experts of `inner`, both multiples of 128.

    signed     route weights have either sign, one in eight exactly zero; else they are positive
    special    a NaN in one token
    blank      one token is all zeros, as padding is
    midpoints  each 128 elements of a token are 448, which meets weights of zero, and midpoints between e4m3's
               smallest codes: how these are rounded then shows
    decoded    multiplied in bf16
    block_m    rows of a block; `launch.block` is a tile's columns
    """

    routing: Routing = Routing()
    width: int = 128
    inner: int = 128
    signed: bool = False
    special: bool = False
    blank: bool = False
    midpoints: bool = False
    decoded: bool = False
    block_m: int = 16
    seed: int = 0
    launch: Launch = Launch(block=128)

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """hidden, w1, w1_scale, w2, w2_scale, choices, weights."""
        tokens, experts = self.routing.tokens, len(self.routing.sizes)
        width, inner, seed = self.width, self.inner, self.seed * 8
        words = generators.hash_words(seed, 0, tokens * width, device)
        values = generators.gaussian(words)
        if self.midpoints:
            values = (words % 16 - 7.5).float() * 2.0**-9
            values[::SCALED] = 448.0
        if self.blank and len(values):
            values.view(tokens, width)[generators.pick(self.seed + 1, tokens)] = 0.0
        if self.special and len(values):
            values[generators.pick(self.seed, len(values))] = float("nan")
        shape = experts, 2 * inner, width
        other = experts, width, inner
        built = {
            "hidden": short(values).reshape(tokens, width),
            "w1": codes("even", seed + 1, shape, device).view(CODES),
            "w2": codes("even", seed + 2, other, device).view(CODES),
        }
        if self.midpoints:
            built["w1"].view(torch.uint8)[..., ::SCALED] = 0
        # A gate is of the order of one.
        for salt, (name, (_, n, k)) in enumerate((("w1", shape), ("w2", other)), start=3):
            blocks = experts, n // SCALED, k // SCALED
            built[f"{name}_scale"] = scales(seed + salt, blocks, -6, -3, device, False)
        words = generators.hash_words(seed + 5, 0, tokens * self.routing.top_k, device)
        weights = generators.log_uniform(words if self.signed else words & ~1, -3, 0)
        if self.signed:
            weights = torch.where(words % 11 == 0, torch.zeros_like(weights), weights)
        return {
            **built,
            "choices": self.routing.choices(self.seed, device),
            "weights": weights.reshape(tokens, self.routing.top_k),
        }

    def params(self) -> dict[str, Any]:
        """decoded, block_m, parts."""
        return {"decoded": self.decoded, "block_m": self.block_m, "parts": 1}

    def features(self) -> list[str]:
        """How routes are split, what the numbers are like, the launch."""
        found = {
            "two or more blocks along H": self.width > SCALED,
            "two or more blocks along I": self.inner > SCALED,
            "weights of either sign": self.signed,
            "NaN": self.special,
            "a token of zeros": self.blank,
            "midpoints of the smallest codes": self.midpoints,
            "decoded to bf16": self.decoded,
        }
        covered = self.routing.features(self.block_m)
        covered += [name for name, holds in found.items() if holds]
        return covered + launches.features(self.launch)


@st.composite
def _routings(draw: Any, *, groups: int, most: int, block: int) -> Routing:
    return Routing(
        sizes=draw(ragged.sizes(groups=groups, most=most, block=block)),
        elsewhere=draw(st.sampled_from((0, 0, 1, 5))),
        top_k=draw(st.sampled_from((2, 1, 3, 4))),
        sorted=draw(st.booleans()),
    )


@st.composite
def align_cases(draw: Any, *, scale: Scale = Scale()) -> AlignCase:
    """A few experts with a few blocks of routes; several programs' worth now and then."""
    block = draw(st.sampled_from((16, 1, 4, 64)))
    most = 300 if scale.on_card else 3 * block + 4
    return AlignCase(
        routing=draw(_routings(groups=9, most=most, block=block)),
        seed=draw(st.integers(0, 2**16)),
        launch=Launch(block=block, misalign=draw(st.sampled_from((0, 0, 1, 3)))),
    )


@st.composite
def experts_cases(draw: Any, *, scale: Scale = Scale()) -> ExpertsCase:
    """A few experts with a few routes; whole tiles of a tensor core on a card."""
    on_card = scale.on_card
    block = draw(st.sampled_from((64, 16) if on_card else (16, 32)))
    sizes = (128, 256, 512) if on_card else (128, 128, 256)
    return ExpertsCase(
        routing=draw(_routings(groups=5, most=3 * block if on_card else block + 2, block=block)),
        width=draw(st.sampled_from(sizes)),
        inner=draw(st.sampled_from(sizes)),
        signed=draw(st.booleans()),
        special=draw(st.sampled_from((False, False, False, True))),
        blank=draw(st.booleans()),
        midpoints=draw(st.sampled_from((False, False, False, True))),
        decoded=draw(st.booleans()),
        block_m=block,
        seed=draw(st.integers(0, 2**16)),
        launch=draw(launches.launches((128, 64), strided=True)),
    )
