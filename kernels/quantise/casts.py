"""Conversions of fp32, bf16 and fp16 to e4m3, e5m2, bf16 and fp16.

`cast_*` are Triton's own `.to`; `round_e4m3` rounds on the e4m3 grid in fp32 arithmetic first. All are
elementwise over a vector, one program for `launch.block` elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import invariances as relations
from bitproof.harness.bounds import exact_bits
from bitproof.harness.case import Inputs, Launch, Scale
from bitproof.harness.spec import (
    Accepted,
    Bitwise,
    Elementwise,
    Fault,
    Invariance,
    KernelSpec,
    Lowering,
    Params,
    Tensors,
)
from bitproof.harness.strategies import floats, launches
from bitproof.harness.strategies.content import content, widened
from bitproof.harness.strategies.sizes import length
from bitproof.harness.strategies.values import CAST_KINDS, INPUT_TYPES, Dtype, Values, values
from bitproof.harness.targets.architectures import ALL
from bitproof.kernels.quantise import grid
from bitproof.kernels.quantise.grid import ANYWHERE, ON_GRID, to_e4m3
from bitproof.oracles import formats, quantize

BLOCKS = (1024, 128, 256)
SHOWN = 256  # elements that coverage looks at; all of what a case sets outright is among them

Launcher = Callable[[Tensors, Params], dict[str, Tensor]]


@triton.jit
def _cast(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < n
    x = tl.load(x_ptr + element, mask=inside)
    y = x.to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + element, y, mask=inside)


@triton.jit
def _round(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < n
    x = tl.load(x_ptr + element, mask=inside)
    y = to_e4m3(x.to(tl.float32))
    tl.store(y_ptr + element, y, mask=inside)


def cast(tensors: Tensors, params: Params, *, to: torch.dtype) -> dict[str, Tensor]:
    """x [n] fp32, bf16 or fp16 -> y [n] in the dtype `to`, by Triton's own conversion."""
    return _elementwise(_cast, tensors["x"], to, params["launch"])


def rounded(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [n] fp32, bf16 or fp16 -> y [n] e4m3, rounded on the grid before the conversion."""
    return _elementwise(_round, tensors["x"], torch.float8_e4m3fn, params["launch"])


def _elementwise(kernel: Any, x: Tensor, to: torch.dtype, launch: Launch) -> dict[str, Tensor]:
    y = torch.empty(x.shape, dtype=to, device=x.device)
    if x.numel():
        grid = (triton.cdiv(x.numel(), launch.block),)
        kernel[grid](
            x,
            y,
            x.numel(),
            BLOCK=launch.block,
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
    return {"y": y}


@dataclass(frozen=True, kw_only=True)
class CastCase:
    """`count` values of type `dtype`."""

    count: int = 1
    dtype: Dtype = "fp32"
    values: Values = Values(kind="lattice")
    launch: Launch = Launch(block=BLOCKS[0])

    @property
    def seed(self) -> int:
        """What a check derives its choices from."""
        return self.values.seed

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """x [count]."""
        return {"x": self.values.build((self.count,), device, dtype=self.dtype)}

    def params(self) -> dict[str, Any]:
        """None."""
        return {}

    def features(self) -> list[str]:
        """What the values contain, the input's type, a tail, the launch."""
        covered = [self.dtype, self.values.kind, *launches.features(self.launch)]
        if self.count % self.launch.block:
            covered.append("tail")
        elif self.count:
            covered.append("whole blocks")
        if self.count > self.launch.block:
            covered.append("several programs")
        if self.count == 0:
            covered.append("empty")
        shown = self.values.build((min(self.count, SHOWN),), torch.device("cpu"), dtype=self.dtype)
        return covered + content(shown, self.values.target)

    def narrow(self, output: str | None, index: tuple[int, ...]) -> CastCase:
        """The one value at `index`, as its bits."""
        x = self.tensors(torch.device("cpu"))["x"][index]
        bits = (floats.hexadecimal(int(widened(x))),)
        explicit = Values(kind="explicit", bits=bits, target=self.values.target)
        return CastCase(count=1, dtype=self.dtype, values=explicit)


@st.composite
def cases(draw: Any, target: str, *, scale: Scale = Scale()) -> CastCase:
    """Vectors of values around what rounding to `target` decides, and of everything else."""
    launch = draw(launches.launches(BLOCKS))
    dtype = draw(st.sampled_from(INPUT_TYPES))
    if draw(st.integers(0, 2)):
        count = draw(length(2100, block=launch.block, scale=scale))
        return CastCase(
            count=count, dtype=dtype, values=draw(values(target, CAST_KINDS)), launch=launch
        )
    bits = tuple(draw(st.lists(floats.patterns(target), min_size=1, max_size=8)))
    explicit = Values(kind="explicit", bits=bits, target=target)
    return CastCase(count=len(bits), dtype=dtype, values=explicit, launch=launch)


def _explicit(target: str, bits: tuple[int, ...]) -> CastCase:
    patterns = tuple(floats.hexadecimal(word) for word in bits)
    values = Values(kind="explicit", bits=patterns, target=target)
    return CastCase(count=len(bits), values=values)


def _program(output: str, index: tuple[int, ...], inputs: Inputs) -> str:
    return f"program ({index[0] // inputs.launch.block},)"


def _relations(target: str) -> tuple[Invariance, ...]:
    return (
        relations.rows_permuted(["x"], ["y"]),
        relations.negated(["x"], ["y"]),
        relations.monotone("x", "y"),
        relations.fixed_points("x", "y", target),
    )


def _around(kernel: str) -> tuple[Fault, ...]:
    """What can go wrong around any elementwise conversion."""
    return (
        Fault(
            name="stores past the end",
            within=kernel,
            old="tl.store(y_ptr + element, y, mask=inside)",
            new="tl.store(y_ptr + element, y)",
            caught_by="memory",
        ),
        Fault(
            name="loses the last element",
            within=kernel,
            old="tl.store(y_ptr + element, y, mask=inside)",
            new="tl.store(y_ptr + element, y, mask=element < n - 1)",
            caught_by="memory",
        ),
        Fault(
            name="keeps what the output held where the value is zero",
            within=kernel,
            old="tl.store(y_ptr + element, y, mask=inside)",
            new="tl.store(y_ptr + element, y, mask=inside & (x != 0.0))",
            caught_by="reproducibility",
        ),
        Fault(
            name="takes every second element from its neighbour",
            within=kernel,
            old="tl.load(x_ptr + element, mask=inside)",
            new="tl.load(x_ptr + (element | 1) - 1, mask=inside)",
            caught_by="invariances",
        ),
    )


_STALE = "keeps what the output held where the value is zero"


def _conversion(name: str, new: str) -> Fault:
    """Another conversion in place of `cast_*`'s own."""
    old = "x.to(y_ptr.dtype.element_ty)"
    return Fault(name=name, within="_cast", old=old, new=new, caught_by="agreement")


_THROUGH_FP16 = _conversion(
    "rounds twice, first toward zero to fp16",
    'x.to(tl.float32).to(tl.float16, fp_downcast_rounding="rtz").to(y_ptr.dtype.element_ty)',
)
_TRUNCATES = _conversion(
    "truncates",
    'x.to(tl.float32).to(y_ptr.dtype.element_ty, fp_downcast_rounding="rtz")',
)
_THROUGH_BF16 = _conversion(
    "rounds twice, first to bf16", "x.to(tl.bfloat16).to(y_ptr.dtype.element_ty)"
)
_TIES_AWAY = _conversion(
    "rounds ties away from zero",
    "((x.to(tl.float32).to(tl.uint32, bitcast=True) + 0x8000) & 0xFFFF0000)"
    ".to(tl.float32, bitcast=True).to(y_ptr.dtype.element_ty)",
)
_UNSIGNED_ZERO = _conversion(
    "negative zero becomes positive", "(x + 0.0).to(y_ptr.dtype.element_ty)"
)


def _accepted(target: str) -> Lowering:
    """What Triton's own conversion does up to 3.8: right on sm_90, and shown to be wrong elsewhere."""
    if formats.by_name(target).bits != 8:
        return ANYWHERE
    through_fp16 = Accepted(
        hazard="rounding twice",
        because="up to triton 3.8 sm_89 goes by way of fp16, which `--lane cuda:sm_89` shows",
        targets=("sm_89",),
    )
    unknown = Accepted(
        hazard="not analysed",
        because="gfx950's own conversions have no model here, so that nothing is claimed of them",
        targets=("gfx950",),
    )
    if target == "e4m3":
        overflowing = Accepted(
            hazard="overflow policy",
            because="gfx942 turns fp16 between 464 and 480 into NaN; `round_e4m3` clamps first",
            targets=("gfx942",),
        )
        accepted = (through_fp16, overflowing, unknown)
        return Lowering(supports=grid.WITH_E4M3, accepted=accepted)
    in_software = tuple(
        Accepted(
            hazard=hazard,
            because="up to triton 3.8 targets without fp8 convert to e5m2 in software, wrongly",
            targets=("sm_80", "sm_86"),
        )
        for hazard in (
            "lost specials",
            "overflow policy",
            "rounding twice",
            "ties away",
            "wrong conversion",
        )
    )
    return Lowering(supports=ALL, accepted=(through_fp16, unknown, *in_software))


def _spec(
    name: str,
    target: str,
    run: Launcher,
    faults: tuple[Fault, ...],
    lowering: Lowering | None = None,
) -> KernelSpec:
    return KernelSpec(
        name=name,
        run=run,
        case=CastCase,
        cases=partial(cases, target),
        oracle=quantize.cast(target),
        bounds={"y": exact_bits()},
        faults=faults,
        reproducible=Bitwise(shown_by=_STALE),
        capturable=True,
        invariances=_relations(target),
        program=_program,
        lowering=lowering or _accepted(target),
        elementwise=Elementwise(
            input="x",
            output="y",
            format=target,
            overflow="saturate" if formats.by_name(target).bits == 8 else "inf",
            case=partial(_explicit, target),
        ),
    )


def _native(target: str, *faults: Fault) -> KernelSpec:
    dtype = formats.by_name(target).torch_dtype
    assert dtype is not None
    run = partial(cast, to=dtype)
    return _spec(f"cast_{target}", target, run, (*_around("_cast"), _UNSIGNED_ZERO, *faults))


SPECS = (
    _native("e4m3", _THROUGH_FP16),
    _native("e5m2", _THROUGH_FP16),
    _native("bf16", _TRUNCATES, _TIES_AWAY),
    _native("fp16", _TRUNCATES, _THROUGH_BF16),
    _spec("round_e4m3", "e4m3", rounded, (*_around("_round"), *grid.faults()), ON_GRID),
)
