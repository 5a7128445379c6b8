"""Quantising new keys and values into their slots of a cache: int8 or fp8, an fp16 scale for 32 elements.

scale = fp16(amax / MAG), and that fp16 value divides. In fp16's subnormal range, whose steps are coarse,
the scale is taken one step up where it would not cover amax, so that it is never zero. One program
handles the same blocks of K and of V.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
import triton
import triton.language as tl
from hypothesis import strategies as st
from torch import Tensor

from harness import data, relations
from harness.bounds import exact_bits
from harness.case import Inputs, Launch
from harness.lanes.arena import bits
from harness.spec import Bitwise, Fault, Invariance, KernelSpec, Params, Tensors
from harness.strategies import floats, launches
from harness.strategies.sizes import length
from harness.strategies.values import INPUT_TYPES, Dtype, Values, content, values, widened
from kernels import grid
from kernels.grid import saturate, to_e4m3
from kernels.groups import largest_magnitude
from oracles import quantize

BLOCK = 32
BLOCKS = (1024, 64, 256)
CACHES = ("k_cache", "v_cache", "k_scale", "v_scale")
LARGEST_FP16 = tl.constexpr(65504.0)
SMALLEST_NORMAL_FP16 = tl.constexpr(2.0**-14)
SUBNORMAL_STEP_FP16 = tl.constexpr(2.0**-24)


@triton.jit
def _scale(amax, MAG: tl.constexpr):
    """The fp16 scale of each block, as fp32: positive, and covering amax where fp16 is subnormal."""
    exact = saturate(tl.math.div_rn(amax, MAG), LARGEST_FP16)
    scale = exact.to(tl.float16).to(tl.float32)
    short = (scale < SMALLEST_NORMAL_FP16) & (scale * MAG < amax)
    scale = tl.where(short, scale + SUBNORMAL_STEP_FP16, scale)
    return tl.where(amax == 0.0, 1.0, scale)


@triton.jit
def _round_half_away(x):
    """The integer nearest to `x` as fp32, ties away from zero."""
    magnitude = tl.abs(x)
    # floor(|x| + 0.5) would round the sum: 0.49999997 + 0.5 is 1.
    whole = tl.floor(magnitude)
    rounded = tl.where(magnitude - whole >= 0.5, whole + 1.0, whole)
    return tl.where(x < 0.0, -rounded, rounded)


@triton.jit
def _store_blocks(source, cache, scales, inside, live, MAG: tl.constexpr, INTEGER: tl.constexpr):
    """Quantises blocks [TILE, 32] at `source` to `cache` and their scales [TILE] to `scales`."""
    x = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    scale = _scale(largest_magnitude(x), MAG)
    q = tl.math.div_rn(x, scale[:, None])
    if INTEGER:
        # int8 has no NaN: the block's scale says it.
        nan = tl.max((x != x).to(tl.int32), axis=1) != 0
        scale = tl.where(nan, float("nan"), scale)
        code = tl.where(nan[:, None], 0.0, saturate(_round_half_away(q), MAG)).to(tl.int8)
    else:
        code = to_e4m3(q)
    tl.store(cache, code, mask=inside)
    tl.store(scales, scale.to(tl.float16), mask=live)


@triton.jit
def _store(
    k_ptr,
    v_ptr,
    indices_ptr,
    k_cache_ptr,
    v_cache_ptr,
    k_scale_ptr,
    v_scale_ptr,
    k_token,
    k_head,
    v_token,
    v_head,
    heads,
    dim,
    per_head,
    count,
    MAG: tl.constexpr,
    INTEGER: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    token = number // (per_head * heads)
    head = number // per_head % heads
    block = number % per_head
    slot = tl.load(indices_ptr + token, mask=number < count, other=-1)
    live = (number < count) & (slot >= 0)
    column = (block * BLOCK)[:, None] + tl.arange(0, BLOCK)[None, :]
    inside = live[:, None] & (column < dim)
    row = slot * heads + head
    cache = row[:, None] * dim + column
    scale = row * per_head + block
    k_source = k_ptr + (token * k_token + head * k_head)[:, None] + column
    v_source = v_ptr + (token * v_token + head * v_head)[:, None] + column
    _store_blocks(k_source, k_cache_ptr + cache, k_scale_ptr + scale, inside, live, MAG, INTEGER)
    _store_blocks(v_source, v_cache_ptr + cache, v_scale_ptr + scale, inside, live, MAG, INTEGER)


def kv_store(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """k, v [T, H, D] fp32, bf16 or fp16 into the slots `indices` [T] int64 of the caches, in place.

    k_cache, v_cache [S, H, D] int8 or e4m3 and k_scale, v_scale [S, H, ceil(D / 32)] fp16 are dense;
    the rows of k and v may be apart. Slots are distinct, -1 skips a token, others are not touched; T may
    be 0. Returns the four caches.
    """
    k, v, caches, launch = tensors["k"], tensors["v"], _caches(tensors), params["launch"]
    tokens, heads, dim = k.shape
    per_head = triton.cdiv(dim, BLOCK)
    count = tokens * heads * per_head
    if count:
        integer = caches["k_cache"].dtype == torch.int8
        tile = max(launch.block // BLOCK, 1)
        _store[(triton.cdiv(count, tile),)](
            k,
            v,
            tensors["indices"],
            *caches.values(),
            k.stride(0),
            k.stride(1),
            v.stride(0),
            v.stride(1),
            heads,
            dim,
            per_head,
            count,
            MAG=127.0 if integer else 448.0,
            INTEGER=integer,
            BLOCK=BLOCK,
            TILE=tile,
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
    return caches


def _caches(tensors: Tensors) -> dict[str, Tensor]:
    return {name: tensors[name] for name in CACHES}


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
    launch: Launch = Launch(block=BLOCKS[0])

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
            "k_cache": self._held(1, shape, device),
            "v_cache": self._held(2, shape, device),
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
            slots = data.permutation(self.seed, self.slots, device)[: self.tokens]
        else:
            slots = torch.arange(self.tokens, dtype=torch.int64, device=device)
        skipped = data.hashed(self.seed ^ 5, 0, self.tokens, device) & 3 == 0
        return torch.where(skipped, -1, slots) if self.skipping else slots

    def _held(self, salt: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
        words = data.hashed(self.seed ^ salt, 0, _size(shape), device)
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
        row = widened(self._new(chosen, torch.device("cpu")))[int(token[0]), index[1]]
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
    words = data.hashed(seed, 0, _size(shape), device) % 0x7C00
    return words.to(torch.int16).view(torch.float16).reshape(shape)


def _size(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


@st.composite
def cases(draw: Any, kind: Literal["int8", "fp8"]) -> StoreCase:
    """Up to six tokens of up to three heads and up to a hundred elements, into a few slots more."""
    tokens = draw(length(6))
    target = "int8" if kind == "int8" else "e4m3"
    return StoreCase(
        kind=kind,
        tokens=tokens,
        heads=draw(st.integers(1, 3)),
        dim=draw(st.one_of(st.sampled_from((32, 64, 96, 31, 33, 65)), length(100))),
        slots=max(tokens, 1) + draw(st.integers(0, 3)),
        shuffled=draw(st.booleans()),
        skipping=draw(st.booleans()),
        dtype=draw(st.sampled_from(INPUT_TYPES)),
        values=draw(values(target, usual=(-22, 12))),
        launch=draw(launches.launches(BLOCKS, strided=True)),
    )


def _others_skipped() -> Invariance:
    """A token stored alone leaves in its slot what it leaves there among others, and nothing elsewhere."""

    def chosen(inputs: Inputs) -> Tensor:
        indices = inputs.tensors["indices"]
        token = data.pick(inputs.seed, len(indices))
        alone = torch.full_like(indices, -1)
        alone[token] = indices[token]
        return alone

    def transform(inputs: Inputs) -> Inputs | None:
        if len(inputs.tensors["indices"]) < 2:
            return None
        return inputs.replace(indices=chosen(inputs))

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        slots = chosen(inputs)
        slots = slots[slots >= 0]
        expected = {}
        for name in CACHES:
            pattern = bits(inputs.tensors[name]).clone()
            pattern[slots] = bits(found[name])[slots]
            expected[name] = pattern.view(found[name].dtype)
        return expected

    return Invariance(name="the other tokens skipped", transform=transform, relate=relate)


def _exchanged() -> Invariance:
    """Keys given as values and values as keys exchange the caches."""

    def exchange(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        other = {"k": "v", "v": "k"}
        return {other[n[0]] + n[1:]: t for n, t in tensors.items() if n[0] in other}

    def transform(inputs: Inputs) -> Inputs | None:
        return inputs.replace(**exchange(inputs.tensors))

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return exchange(found)

    return Invariance(name="keys and values exchanged", transform=transform, relate=relate)


def _fault(name: str, within: str, old: str, new: str, caught_by: str = "agreement") -> Fault:
    return Fault(name=name, within=within, old=old, new=new, caught_by=caught_by)


_GAP = "reads on past the end of a head"

_FAULTS = (
    _fault(
        "lets the scale underflow",
        "_scale",
        "tl.where(short, scale + SUBNORMAL_STEP_FP16, scale)",
        "scale",
    ),
    _fault(
        "lets the scale overflow",
        "_scale",
        "saturate(tl.math.div_rn(amax, MAG), LARGEST_FP16)",
        "tl.math.div_rn(amax, MAG)",
    ),
    _fault("divides a zero block by zero", "_scale", "tl.where(amax == 0.0, 1.0, scale)", "scale"),
    _fault(
        "divides before the scale is fp16",
        "_scale",
        "exact.to(tl.float16).to(tl.float32)",
        "exact",
    ),
    _fault(
        "multiplies by the reciprocal",
        "_store_blocks",
        "tl.math.div_rn(x, scale[:, None])",
        "x * tl.math.div_rn(1.0, scale)[:, None]",
    ),
    Fault(
        name="divides approximately",
        within="_store_blocks",
        old="tl.math.div_rn(x, scale[:, None])",
        new="x / scale[:, None]",
        caught_by="agreement",
        lanes=("cuda",),
        because="the interpreter divides as IEEE says, compiled `/` is within 2 ulp",
    ),
    _fault(
        "gives V the scales of K",
        "_store",
        "v_scale_ptr + scale, inside, live",
        "k_scale_ptr + scale, inside, live",
    ),
    _fault("stores by token, not by slot", "_store", "slot * heads + head", "token * heads + head"),
    _fault(
        "stores skipped tokens in the first slot",
        "_store",
        "other=-1)\n    live = (number < count) & (slot >= 0)",
        "other=-1)\n    slot = tl.where(slot < 0, 0, slot)\n    live = number < count",
    ),
    _fault(
        "stores skipped tokens before the cache",
        "_store",
        "live = (number < count) & (slot >= 0)",
        "live = number < count",
        "memory",
    ),
    _fault(
        "does not mask the tail of a head",
        "_store",
        "live[:, None] & (column < dim)",
        "live[:, None] & (column >= 0)",
        "memory",
    ),
    _fault(
        _GAP,
        "_store_blocks",
        "tl.load(source, mask=inside, other=0.0)",
        "tl.load(source, mask=live[:, None], other=0.0)",
        "reproducibility",
    ),
    _fault(
        "loses the tokens after the first",
        "_store",
        "slot = tl.load(indices_ptr + token,",
        "slot = tl.load(indices_ptr + token * 0,",
        "invariances",
    ),
)
_INT8_FAULTS = (
    _fault(
        "rounds half to even",
        "_round_half_away",
        "magnitude - whole >= 0.5",
        "(magnitude - whole > 0.5) | ((magnitude - whole == 0.5) & (whole.to(tl.int32) % 2 == 1))",
    ),
    _fault(
        "truncates",
        "_round_half_away",
        "tl.where(magnitude - whole >= 0.5, whole + 1.0, whole)",
        "whole",
    ),
    _fault(
        "adds one half before the floor",
        "_round_half_away",
        "tl.where(magnitude - whole >= 0.5, whole + 1.0, whole)",
        "tl.floor(magnitude + 0.5)",
    ),
    _fault(
        "does not clamp",
        "_store_blocks",
        "saturate(_round_half_away(q), MAG)",
        "_round_half_away(q)",
    ),
    _fault("hides a NaN", "_store_blocks", 'tl.where(nan, float("nan"), scale)', "scale"),
)
_FP8_FAULTS = grid.faults(
    "rounds ties away from zero",
    "rounds twice, first toward zero to fp16",
    "negative zero becomes positive",
    "loses NaN where it saturates",
)


def _spec(kind: Literal["int8", "fp8"], faults: tuple[Fault, ...]) -> KernelSpec:
    return KernelSpec(
        name=f"kv_store_{kind}",
        run=kv_store,
        case=StoreCase,
        cases=partial(cases, kind),
        oracle=quantize.kv_store(kind),
        bounds={name: exact_bits() for name in CACHES},
        faults=(*_FAULTS, *faults),
        reproducible=Bitwise(shown_by=_GAP),
        invariances=(
            relations.rows_permuted(["k", "v", "indices"], [], unmoved=CACHES),
            _others_skipped(),
            _exchanged(),
        ),
        strided=frozenset({"k", "v"}),
        inplace=frozenset(CACHES),
    )


SPECS = (_spec("int8", _INT8_FAULTS), _spec("fp8", _FP8_FAULTS))
