"""Compiles one conversion of floats alone, for the target that `null_driver` has installed.

The kernel below is what surrounds a conversion as little as anything can, so that its code is the
conversion's own and can be put on trial.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from bitproof.harness.lowering.conversions import Conversion, Verdict
from bitproof.harness.lowering.emulator import trial
from bitproof.harness.lowering.emulator.memory import NotModelled
from bitproof.harness.lowering.readers import llir, ptx
from bitproof.harness.lowering.readers.code import Code
from bitproof.harness.targets.refusals import sentence
from bitproof.oracles import formats


@triton.jit  # type: ignore[untyped-decorator]
def _convert(x_ptr, y_ptr, BLOCK: tl.constexpr, ROUNDING: tl.constexpr):  # type: ignore[no-untyped-def]
    element = tl.arange(0, BLOCK)
    y = tl.load(x_ptr + element).to(y_ptr.dtype.element_ty, fp_downcast_rounding=ROUNDING)
    tl.store(y_ptr + element, y)


@cache
def verdict(conversion: Conversion) -> Verdict | NotModelled:
    """What the installed target makes of `conversion`, or the instruction that is not modelled."""
    try:
        return trial.verdict(conversion, compile_conversion(conversion), nvidia=_is_nvidia())
    except NotModelled as missing:
        return missing


def compile_conversion(conversion: Conversion) -> Code:
    """The code of the conversion alone; NotModelled where torch has no such type or Triton refuses it."""
    source, target = formats.by_name(conversion.source), formats.by_name(conversion.target)
    if source.torch_dtype is None or target.torch_dtype is None:
        raise NotModelled(f"tensors of {source.name} and {target.name}")
    block = trial.ELEMENTS * _target().warp_size
    # Triton takes a rounding for conversions to fewer bits only.
    asked = {"rne": "rtne", "rz": "rtz"}[conversion.rounding]
    rounding = asked if target.bits < source.bits else None
    try:
        made = _convert[(1,)](
            torch.empty(block, dtype=source.torch_dtype),
            torch.empty(block, dtype=target.torch_dtype),
            BLOCK=block,
            ROUNDING=rounding,
            num_warps=1,
        )
    except Exception as error:
        raise NotModelled(f"{conversion} alone: {sentence(error)}") from error
    return ptx.parse(made.asm["ptx"]) if _is_nvidia() else llir.parse(made.asm["llir"])


def _target() -> Any:
    return triton.runtime.driver.active.get_current_target()


def _is_nvidia() -> bool:
    return bool(_target().backend == "cuda")
