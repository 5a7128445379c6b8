"""Puts a conversion's code on trial: runs it on the inputs that decide and judges what comes out."""

from __future__ import annotations

import numpy as np

from bitproof.harness.lowering.conversions import Conversion, Verdict, inputs, judge
from bitproof.harness.lowering.emulator import llir_thread, ptx_thread
from bitproof.harness.lowering.emulator.memory import Array, Memory
from bitproof.harness.lowering.readers.code import Code
from bitproof.oracles import formats

ELEMENTS = (
    4  # of the thread, so that conversions of pairs and of four are seen as kernels have them
)
_OPCODES_SHOWN = 6
_MOVES = ("mov", "ld", "bitcast", "extractelement", "insertelement", "shufflevector", "trunc")


def verdict(conversion: Conversion, code: Code, *, nvidia: bool) -> Verdict:
    """What `code`, PTX or LLVM IR, makes of `conversion`; NotModelled where that cannot be said."""
    codes = inputs(conversion)
    return judge(conversion, codes, outcome(conversion, code, codes, nvidia=nvidia), chain(code))


def outcome(conversion: Conversion, code: Code, codes: Array, *, nvidia: bool) -> Array:
    """The codes that `code` makes of `codes` [n]: [n], in uint64.

    `code` is a thread that loads ELEMENTS elements through parameter 0 and stores them, converted,
    through parameter 1. NotModelled for an instruction that cannot be run.
    """
    source, target = formats.by_name(conversion.source), formats.by_name(conversion.target)
    padding = np.zeros(-len(codes) % ELEMENTS, dtype=codes.dtype)
    elements = np.concatenate([codes, padding]).reshape(ELEMENTS, -1)
    memory = Memory(source=elements, width=source.bits)
    execute = ptx_thread.run if nvidia else llir_thread.run
    with np.errstate(invalid="ignore"):
        execute(code, memory)
    return np.asarray(memory.results(target.bits).reshape(-1)[: len(codes)])


def chain(code: Code) -> str:
    """The opcodes that make the first stored value out of what was loaded, moves left out."""
    store = code.stores[0]
    values = [name for name in store.ins if name not in store.address]
    seen: list[str] = []
    for index in sorted(code.slice(values, through_loads=False)):
        opcode = code.instructions[index].opcode
        if index not in code.loads and opcode.split(".")[0] not in _MOVES and opcode not in seen:
            seen.append(opcode)
    if len(seen) > _OPCODES_SHOWN:
        seen = [*seen[:_OPCODES_SHOWN], f"and {len(seen) - _OPCODES_SHOWN} more"]
    return ", ".join(seen)
