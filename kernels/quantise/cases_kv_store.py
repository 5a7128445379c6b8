"""Cases of the KV store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.case import Launch, Scale
from bitproof.harness.strategies import floats, launches
from bitproof.harness.strategies.content import content, widen
from bitproof.harness.strategies.encoding import Dtype
from bitproof.harness.strategies.sizes import length
from bitproof.harness.strategies.values import INPUT_TYPES, Values, values
from bitproof.kernels.quantise.arguments import BLOCK, CACHES

_BLOCKS = (1024, 64, 256)


@dataclass(frozen=True, kw_only=True)
class StoreCase:
    """New keys and values of `tokens` tokens, and a cache of `slots` slots that holds something already.

    v's values are k's under the next seed. Slots are in order, or drawn if `shuffled`; about a quarter
    of the tokens are skipped if `skipping`.
    """

    kind: Literal["int8", "fp8"] = "int8"
    tokens: int = 1
    heads: int = 1
    dim: int = 1
    slots: int = 1
    shuffled: bool = False
    skipping: bool = False
    dtype: Dtype = "fp32"
    values: Values = Values(target="int8")
    launch: Launch = Launch(block=_BLOCKS[0])

    @property
    def seed(self) -> int:
        """What a check derives its choices from."""
        return self.values.seed

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """k, v, indices and the four caches."""
        shape = (self.slots, self.heads, self.dim)
        scales = (self.slots, self.heads, -(-self.dim // BLOCK))
        return {
            "k": self._new(self.values, device),
            "v": self._new(self._of_v(), device),
            "indices": self._indices(device),
            "k_cache": self._make_held(1, shape, device),
            "v_cache": self._make_held(2, shape, device),
            "k_scale": _halves(self.seed ^ 3, scales, device),
            "v_scale": _halves(self.seed ^ 4, scales, device),
        }

    def _of_v(self) -> Values:
        return replace(self.values, seed=(self.values.seed + 1) & 0xFFFFFFFF)

    def _new(self, chosen: Values, device: torch.device) -> Tensor:
        shape = (self.tokens, self.heads, self.dim)
        return chosen.build(shape, device, dtype=self.dtype, run=BLOCK)

    def _indices(self, device: torch.device) -> Tensor:
        if self.shuffled:
            slots = generators.permutation(self.seed, self.slots, device)[: self.tokens]
        else:
            slots = torch.arange(self.tokens, dtype=torch.int64, device=device)
        skipped = generators.hash_words(self.seed ^ 5, 0, self.tokens, device) & 3 == 0
        return torch.where(skipped, -1, slots) if self.skipping else slots

    def _make_held(self, salt: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
        words = generators.hash_words(self.seed ^ salt, 0, _size(shape), device)
        if self.kind == "int8":
            return (words % 255 - 127).to(torch.int8).reshape(shape)
        codes = words % 0x7F | words >> 31 << 7
        return codes.to(torch.uint8).view(torch.float8_e4m3fn).reshape(shape)

    def params(self) -> dict[str, Any]:
        """None."""
        return {}

    def features(self) -> list[str]:
        """Extents, slots, what the values contain, the input's type, the launch."""
        covered = [self.dtype, self.values.kind, *launches.features(self.launch)]
        if self.tokens * self.heads * self.dim == 0:
            return [*covered, "no tokens" if self.tokens == 0 else "no elements"]
        found = {
            "tail": self.dim % BLOCK != 0,
            "two or more blocks": self.dim > BLOCK,
            "two or more heads": self.heads > 1,
            "shuffled slots": self.shuffled and self.tokens > 1,
            "skipped tokens": bool((self._indices(torch.device("cpu")) < 0).any()),
        }
        covered += [name for name, holds in found.items() if holds]
        x = self._new(self.values, torch.device("cpu"))
        return covered + content(x, self.values.target)

    def narrow(self, output: str | None, index: tuple[int, ...]) -> StoreCase | None:
        """One token of one head, with the element and its block's largest; None for an untouched slot."""
        token = torch.nonzero(self._indices(torch.device("cpu")) == index[0])
        if output not in CACHES or token.numel() == 0:
            return None
        chosen = self.values if output.startswith("k") else self._of_v()
        row = widen(self._new(chosen, torch.device("cpu")))[int(token[0]), index[1]]
        scale = output.endswith("scale")
        first = index[2] * BLOCK if scale else index[2] // BLOCK * BLOCK
        block = row[first : first + BLOCK]
        own = [] if scale else [row[index[2]]]
        magnitude = block & 0x7FFFFFFF
        largest = block[magnitude.argmax()]
        words = [*own, *([largest] if largest not in own else [])]
        patterns = tuple(floats.hexadecimal(int(word)) for word in words)
        return StoreCase(
            kind=self.kind,
            dim=len(patterns),
            dtype=self.dtype,
            values=Values(kind="explicit", bits=patterns, target=self.values.target),
        )


def _halves(seed: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Positive, finite fp16."""
    words = generators.hash_words(seed, 0, _size(shape), device) % 0x7C00
    return words.to(torch.int16).view(torch.float16).reshape(shape)


def _size(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


@st.composite
def stores(draw: Any, kind: Literal["int8", "fp8"], *, scale: Scale = Scale()) -> StoreCase:
    """Up to six tokens of up to three heads and up to a hundred elements, into a few slots more."""
    tokens = draw(length(6, scale=scale))
    launch = draw(launches.launches(_BLOCKS, strided=True))
    return StoreCase(
        kind=kind,
        tokens=tokens,
        heads=draw(st.integers(1, 3)),
        dim=draw(st.one_of(st.sampled_from((32, 64, 96, 31, 33, 65)), length(100, scale=scale))),
        slots=max(tokens, 1) + draw(st.integers(0, 3)),
        shuffled=draw(st.booleans()),
        skipping=draw(st.booleans()),
        dtype=draw(st.sampled_from(INPUT_TYPES)),
        values=draw(values("int8" if kind == "int8" else "e4m3", usual=(-22, 12))),
        launch=launch,
    )
