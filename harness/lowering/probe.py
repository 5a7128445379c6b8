"""Compiles one conversion of floats alone, runs its code on the inputs that decide, and judges it.

The kernel below is what surrounds a conversion as little as anything can. It is compiled like any other,
for the target that `silent` has installed, and its one thread's code is executed by `ptx_thread` or
`llir_thread`. Where those have no model of an instruction there is no verdict.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from harness.lowering import llir, llir_thread, ptx, ptx_thread
from harness.lowering.code import Code
from harness.lowering.conversions import Conversion, Verdict, inputs, judge
from harness.lowering.memory import Memory, NotModelled
from harness.lowering.reach import sentence
from oracles import formats

_ELEMENTS = 4  # of a thread, so that conversions of pairs and of four are seen as kernels have them
_OPCODES_SHOWN = 6


@triton.jit  # type: ignore[untyped-decorator]
def _convert(x_ptr, y_ptr, BLOCK: tl.constexpr, ROUNDING: tl.constexpr):  # type: ignore[no-untyped-def]
    element = tl.arange(0, BLOCK)
    y = tl.load(x_ptr + element).to(y_ptr.dtype.element_ty, fp_downcast_rounding=ROUNDING)
    tl.store(y_ptr + element, y)


@cache
def verdict(conversion: Conversion) -> Verdict | NotModelled:
    """What the installed target makes of `conversion`, or the instruction that is not modelled."""
    try:
        code = compiled(conversion)
        codes = inputs(conversion)
        source, target = formats.by_name(conversion.source), formats.by_name(conversion.target)
        padding = np.zeros(-len(codes) % _ELEMENTS, dtype=codes.dtype)
        elements = np.concatenate([codes, padding]).reshape(_ELEMENTS, -1)
        memory = Memory(source=elements, width=source.bits)
        execute = ptx_thread.run if _is_nvidia() else llir_thread.run
        with np.errstate(invalid="ignore"):
            execute(code, memory)
        got = memory.results(target.bits).reshape(-1)[: len(codes)]
    except NotModelled as missing:
        return missing
    return judge(conversion, codes, got, chain(code))


def compiled(conversion: Conversion) -> Code:
    """The code of the conversion alone; NotModelled where torch has no such type or Triton refuses it."""
    source, target = formats.by_name(conversion.source), formats.by_name(conversion.target)
    if source.torch_dtype is None or target.torch_dtype is None:
        raise NotModelled(f"tensors of {source.name} and {target.name}")
    block = _ELEMENTS * _target().warp_size
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


def chain(code: Code) -> str:
    """The opcodes that make the first stored value out of what was loaded, moves left out."""
    store = code.stores[0]
    values = [name for name in store.ins if name not in store.address]
    moves = ("mov", "ld", "bitcast", "extractelement", "insertelement", "shufflevector", "trunc")
    seen = []
    for index in sorted(code.slice(values, through_loads=False)):
        opcode = code.instructions[index].opcode
        if index not in code.loads and opcode.split(".")[0] not in moves and opcode not in seen:
            seen.append(opcode)
    if len(seen) > _OPCODES_SHOWN:
        seen = [*seen[:_OPCODES_SHOWN], f"and {len(seen) - _OPCODES_SHOWN} more"]
    return ", ".join(seen)


def _target() -> Any:
    return triton.runtime.driver.active.get_current_target()


def _is_nvidia() -> bool:
    return bool(_target().backend == "cuda")
