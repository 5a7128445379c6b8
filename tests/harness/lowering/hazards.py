"""For each hazard a kernel that shows it in some target's code, and one that does not.

The specs are complete enough to be read by a worker process; nothing here is ever launched for its
results. `PAIRS` says which belong together and for which target they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness.bounds import Bound, exact_bits, ulps
from bitproof.harness.case import Case, Launch
from bitproof.harness.spec import Bitwise, Elementwise, Fault, KernelSpec, Lowering

BLOCK = 256


@dataclass(frozen=True, kw_only=True)
class BlockCase:
    """Two blocks of fp32, bf16 or e5m2 zeros."""

    dtype: str = "float32"
    launch: Launch = Launch(block=BLOCK)

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """x and w [BLOCK], square matrices a and b."""
        dtype = getattr(torch, self.dtype)
        vectors = {name: torch.zeros(BLOCK, device=device).to(dtype) for name in ("x", "w")}
        return vectors | {name: torch.zeros((16, 16), device=device) for name in ("a", "b")}

    def params(self) -> dict[str, Any]:
        """None."""
        return {}

    def features(self) -> tuple[str, ...]:
        """None."""
        return ()


@triton.jit
def _divides(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) / tl.load(w + i))


@triton.jit
def _divides_ieee(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.math.div_rn(tl.load(x + i), tl.load(w + i)))


@triton.jit
def _takes_logarithms(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.log(tl.load(x + i)) + tl.load(w + i))


@triton.jit
def _multiplies_and_adds(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(y + i, a * tl.load(w + i) + a)


@triton.jit
def _asks_for_fma(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(y + i, tl.fma(a, tl.load(w + i), a))


@triton.jit
def _sums_atomically(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(w + i))
    tl.atomic_add(y, tl.sum(tl.load(x + i)))


@triton.jit
def _counts_atomically(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(w + i))
    tl.atomic_add(y.to(tl.pointer_type(tl.int32)), tl.sum((tl.load(x + i) > 0).to(tl.int32)))


@triton.jit
def _takes_floors(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.floor(tl.load(x + i)) + tl.load(w + i))


@triton.jit
def _adds(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) + tl.load(w + i))


@triton.jit
def _converts(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty))


@triton.jit
def _converts_by_way_of_fp16(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    half = tl.load(x + i).to(tl.float16, fp_downcast_rounding="rtz")
    tl.store(y + i, half.to(y.dtype.element_ty))


@triton.jit
def _has_assembly(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.inline_asm_elementwise("neg.f32 $0, $1;", "=r,r", [a], tl.float32, True, 1)
    tl.store(y + i, b)


@triton.jit
def _stores_what_it_never_wrote(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.inline_asm_elementwise(
        "{ .reg .b32 never; mov.b32 $0, never; }", "=r,r", [a], tl.float32, True, 1
    )
    tl.store(y + i, b)


@triton.jit
def _multiplies_matrices(a, b, y, PRECISION: tl.constexpr):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(y + i, tl.dot(tl.load(a + i), tl.load(b + i), input_precision=PRECISION))


@triton.autotune(configs=[triton.Config({}, num_warps=n) for n in (1, 2, 4)], key=[])
@triton.jit
def _adds_tuned(x, w, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) + tl.load(w + i))


@triton.jit
def _multiplies_tiles(x, w, y, HEIGHT: tl.constexpr):
    i = tl.arange(0, HEIGHT)[:, None] * 64 + tl.arange(0, 64)[None, :]
    j = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(y + i, tl.dot(tl.load(x + i), tl.load(w + j)))


@triton.jit
def _multiplies_large_matrices(x, w, y, SIDE: tl.constexpr):
    i = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    tl.store(y + i, tl.dot(tl.load(x + i), tl.load(w + i)))


@triton.jit
def _multiplies_in_a_loop(a, b, y, n, STAGES: tl.constexpr):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    total = tl.zeros((16, 16), tl.float32)
    for _ in tl.range(n, num_stages=STAGES):
        total = tl.dot(tl.load(a + i), tl.load(b + i), total, input_precision="ieee")
        a += 256
        b += 256
    tl.store(y + i, total)


def _fp8_tiles(
    tensors: Mapping[str, Tensor], params: Mapping[str, Any], *, heights: tuple[int, ...]
) -> dict[str, Tensor]:
    """y [64, 64] from a tile of each height, of e4m3 operands."""
    y = torch.empty((64, 64), device=tensors["a"].device)
    for height in heights:
        x, w = (torch.zeros((64, 64), dtype=_E4M3, device=y.device) for _ in range(2))
        _multiplies_tiles[(1,)](x, w, y, HEIGHT=height)
    return {"y": y}


def _vector(
    tensors: Mapping[str, Tensor], params: Mapping[str, Any], *, kernel: Any, to: torch.dtype
) -> dict[str, Tensor]:
    """y [BLOCK] of type `to`."""
    y = torch.empty(BLOCK, dtype=to, device=tensors["x"].device)
    kernel[(1,)](tensors["x"], tensors["w"], y, BLOCK=BLOCK)
    return {"y": y}


def _matrix(
    tensors: Mapping[str, Tensor], params: Mapping[str, Any], *, precision: str
) -> dict[str, Tensor]:
    """y [16, 16]."""
    y = torch.empty((16, 16), device=tensors["a"].device)
    _multiplies_matrices[(1,)](tensors["a"], tensors["b"], y, PRECISION=precision)
    return {"y": y}


def _without_stages(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
    """y [16, 16] by a loop without stages, of the launch and of its own."""
    y = torch.empty((16, 16), device=tensors["a"].device)
    for stages in (None, 0):
        _multiplies_in_a_loop[(1,)](tensors["a"], tensors["b"], y, 1, STAGES=stages, num_stages=0)
    return {"y": y}


def _through_workspace(
    tensors: Mapping[str, Tensor], params: Mapping[str, Any]
) -> dict[str, Tensor]:
    """y from one kernel, over memory of the launcher's own that another one sums into."""
    workspace = torch.empty(BLOCK, device=tensors["x"].device)
    _sums_atomically[(1,)](tensors["x"], tensors["w"], workspace, BLOCK=BLOCK)
    y = torch.empty_like(workspace)
    _adds[(1,)](workspace, tensors["w"], y, BLOCK=BLOCK)
    return {"y": y}


def _large(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
    """y [128, 128] from two operands of 64 KiB, and z by another kernel after that."""
    x = torch.zeros((128, 128), device=tensors["x"].device)
    w, y = torch.zeros_like(x), torch.empty_like(x)
    _multiplies_large_matrices[(1,)](x, w, y, SIDE=128)
    return {"y": y, "z": _vector(tensors, params, kernel=_adds, to=torch.float32)["y"]}


def _refused_first(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
    """y in e4m3, which not every target has, and z by another kernel after that."""
    y = _vector(tensors, params, kernel=_converts, to=torch.float8_e4m3fn)["y"]
    return {"y": y, "z": _vector(tensors, params, kernel=_divides, to=torch.float32)["y"]}


def _launches_nothing(
    tensors: Mapping[str, Tensor], params: Mapping[str, Any]
) -> dict[str, Tensor]:
    """y, as it was allocated."""
    return {"y": torch.empty(BLOCK, device=tensors["x"].device)}


def _needs_its_result(
    tensors: Mapping[str, Tensor], params: Mapping[str, Any]
) -> dict[str, Tensor]:
    """y, if the kernel that was launched counted right."""
    outputs = _vector(tensors, params, kernel=_adds, to=torch.float32)
    if outputs["y"].sum() >= 0:
        raise RuntimeError("the sum is not what it should be")
    return outputs


def _two_outputs(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
    """y divided by IEEE, z approximately."""
    y, z = (torch.empty(BLOCK, device=tensors["x"].device) for _ in range(2))
    _divides_ieee[(1,)](tensors["x"], tensors["w"], y, BLOCK=BLOCK)
    _divides[(1,)](tensors["x"], tensors["w"], z, BLOCK=BLOCK)
    return {"y": y, "z": z}


def _never(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Any]:
    raise AssertionError("nothing here is compared")


_NOTHING = Lowering()


def _spec(
    name: str,
    run: Callable[..., dict[str, Tensor]],
    *,
    dtype: str = "float32",
    bounds: Mapping[str, Bound] | None = None,
    elementwise: Elementwise | None = None,
    lowering: Lowering = _NOTHING,
) -> KernelSpec:
    case: type[Case] = BlockCase
    return KernelSpec(
        name=name,
        run=run,
        case=case,
        cases=lambda: st.just(BlockCase(dtype=dtype)),
        oracle=_never,
        bounds=bounds or {"y": exact_bits()},
        faults=(Fault(name="none", within="_never", old="a", new="b", caught_by="agreement"),),
        reproducible=Bitwise(control=run),
        elementwise=elementwise,
        lowering=lowering,
    )


def _of(name: str, kernel: Any, to: torch.dtype = torch.float32, **more: Any) -> KernelSpec:
    return _spec(name, partial(_vector, kernel=kernel, to=to), **more)


_E5M2 = torch.float8_e5m2
_E4M3 = torch.float8_e4m3fn
_SATURATES = Elementwise(input="x", output="y", format="e5m2", overflow="saturate")

SPECS = (
    _of("divides", _divides),
    _of("divides_ieee", _divides_ieee),
    _of("divides_within_ulps", _divides, bounds={"y": ulps(2, because="`/` is within 2 ulp")}),
    _of("takes_logarithms", _takes_logarithms),
    _of("multiplies_and_adds", _multiplies_and_adds),
    _of("asks_for_fma", _asks_for_fma),
    _of("sums_atomically", _sums_atomically),
    _of("counts_atomically", _counts_atomically),
    _spec("sums_into_a_workspace", _through_workspace),
    _of("takes_floors", _takes_floors),
    _of("adds", _adds),
    _of("e5m2_to_bf16", _converts, torch.bfloat16, dtype="float8_e5m2"),
    _of("e5m2_to_fp16", _converts, torch.float16, dtype="float8_e5m2"),
    _of("has_assembly", _has_assembly),
    _of("saturates_as_declared", _converts, _E5M2, elementwise=_SATURATES),
    _of(
        "saturates_undeclared",
        _converts,
        _E5M2,
        elementwise=replace(_SATURATES, overflow="inf"),
    ),
    _spec("multiplies_in_tf32", partial(_matrix, precision="tf32")),
    _spec("multiplies_in_fp32", partial(_matrix, precision="ieee")),
    _spec(
        "multiplies_in_declared_tf32",
        partial(_matrix, precision="tf32"),
        lowering=Lowering(products=("tf32",)),
    ),
    _spec("multiplies_fp8_in_two_tiles", partial(_fp8_tiles, heights=(16, 64))),
    _spec("multiplies_fp8_in_one_tile", partial(_fp8_tiles, heights=(64,))),
    _of("fp32_to_e4m3_by_way_of_fp16", _converts_by_way_of_fp16, _E4M3),
    _of("fp32_to_e4m3", _converts, _E4M3),
    _of("fp32_to_e5m2", _converts, _E5M2),
    _of("bf16_to_e5m2", _converts, _E5M2, dtype="bfloat16"),
    _of("e5m2_to_e4m3", _converts, _E4M3, dtype="float8_e5m2"),
    _of("stores_what_it_never_wrote", _stores_what_it_never_wrote),
    _of("adds_tuned", _adds_tuned),
    _spec("refused_first", _refused_first, bounds={"y": exact_bits(), "z": exact_bits()}),
    _spec(
        "needs_shared_memory",
        _large,
        bounds={"y": exact_bits(), "z": exact_bits()},
        lowering=Lowering(products=("tf32",)),
    ),
    _spec("multiplies_without_stages", _without_stages),
    _spec("launches_nothing", _launches_nothing),
    _spec("needs_its_result", _needs_its_result),
    _spec(
        "one_output_of_two_approximate",
        _two_outputs,
        bounds={"y": exact_bits(), "z": ulps(2, because="`/` is within 2 ulp")},
    ),
)

# (hazard, target, kernel that shows it, kernel that does not). The conversions that round ties away and
# wrongly are those of Triton up to 3.8: see `test_versions`. Undefined registers are ptxas's: see
# `test_sass`.
PAIRS = (
    ("approximation", "sm_90", "divides", "divides_ieee"),
    ("approximation", "sm_90", "takes_logarithms", "adds"),
    ("approximation", "sm_90", "divides", "divides_within_ulps"),
    ("approximation", "gfx942", "takes_logarithms", "divides"),
    ("changed sums", "sm_90", "multiplies_fp8_in_two_tiles", "multiplies_fp8_in_one_tile"),
    ("contraction", "sm_90", "multiplies_and_adds", "asks_for_fma"),
    ("contraction", "gfx942", "multiplies_and_adds", "asks_for_fma"),
    ("float atomics", "sm_90", "sums_atomically", "counts_atomically"),
    ("float atomics", "sm_90", "sums_into_a_workspace", "adds"),
    ("float atomics", "gfx942", "sums_atomically", "counts_atomically"),
    ("flushed subnormals", "sm_90", "takes_floors", "adds"),
    ("lost specials", "sm_90", "e5m2_to_bf16", "e5m2_to_fp16"),
    ("lost specials", "gfx942", "e5m2_to_bf16", "e5m2_to_fp16"),
    ("not analysed", "sm_90", "has_assembly", "adds"),
    ("not analysed", "gfx950", "fp32_to_e4m3", "adds"),
    ("overflow policy", "sm_90", "saturates_undeclared", "saturates_as_declared"),
    ("reduced products", "sm_90", "multiplies_in_tf32", "multiplies_in_fp32"),
    ("reduced products", "sm_90", "multiplies_in_tf32", "multiplies_in_declared_tf32"),
    ("reduced products", "gfx942", "multiplies_in_tf32", "multiplies_in_fp32"),
    ("reduced products", "sm_90", "multiplies_fp8_in_one_tile", "multiplies_in_fp32"),
    ("rounding twice", "sm_90", "fp32_to_e4m3_by_way_of_fp16", "fp32_to_e4m3"),
    ("uninitialised store", "sm_90", "stores_what_it_never_wrote", "adds"),
)
