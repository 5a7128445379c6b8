"""Runs one thread of straight-line LLVM IR for AMD on many inputs at once, with numpy.

The counterpart of `ptx_thread`. What the manuals leave open, such as what gfx950's fp8 conversions make of
an overflow, is not modelled: it raises `NotModelled`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from bitproof.harness.lowering.emulator.llir_values import (
    BINARY,
    CALLS,
    CONVERSIONS,
    Value,
    arguments,
    bits,
    compare_floats,
    compare_integers,
    constant,
    index_of,
    lanewise,
    perm,
    shape,
    tokens,
    truncate,
    widen_fp8,
)
from bitproof.harness.lowering.emulator.memory import Memory, NotModelled, as_float, as_word
from bitproof.harness.lowering.emulator.ptx_thread import round_codes
from bitproof.harness.lowering.readers.code import Code, Instruction

_BASE = 1 << 40
_FLAGS = re.compile(
    r"nuw|nsw|exact|disjoint|samesign|nneg|nnan|ninf|nsz|arcp|contract|afn|reassoc|fast|noundef"
    r"|inreg|nonnull|zeroext|signext"
)


def run(code: Code, memory: Memory) -> None:
    """Execute `code`; parameter 0 is the address of what is read, parameter 1 of what is written."""
    thread = _Thread(memory=memory)
    for name, number in code.parameters.items():
        thread.values[name] = Value(lanes=(as_word(_BASE * (number + 1)),), kind="ptr")
    for instruction in code.instructions:
        thread.step(instruction)


@dataclass(kw_only=True)
class _Thread:
    memory: Memory
    values: dict[str, Value] = field(default_factory=dict)

    def step(self, instruction: Instruction) -> None:
        text = instruction.text
        out, _, right = text.partition(" = ")
        if not out.startswith("%"):
            out, right = "", text
        right = re.sub(r"^(tail |musttail |notail )", "", right)
        if right.startswith("ret"):
            return
        try:
            result = self.call(instruction.opcode, right) if right.startswith("call") else None
            if result is None and not right.startswith("call"):
                result = self.operation(right)
        except (KeyError, ValueError, IndexError) as error:
            raise NotModelled(text) from error
        if out:
            if result is None:
                raise NotModelled(text)
            self.values[out] = result

    def read_typed(self, text: str) -> Value:
        """An operand with its type: `i32 %5`, `<2 x i32> <i32 0, i32 1>`, `float 1.0`."""
        words = [word for word in tokens(text) if not _FLAGS.fullmatch(word)]
        words = [
            word for word in words if not re.match(r"(align|range|captures|addrspace)\b", word)
        ]
        kind, lanes = shape(words[0])
        return self.read_named(
            " ".join(words[1:][-2:] if "splat" in words else words[-1:]), kind, lanes
        )

    def read_named(self, text: str, kind: str, lanes: int) -> Value:
        """An operand without its type: a name, or a constant of that type."""
        if text.startswith("%"):
            return self.values[text]
        if text.startswith("<"):
            return Value(
                lanes=tuple(self.read_typed(part).only for part in arguments(text[1:-1])), kind=kind
            )
        if text.startswith("splat"):
            inner = self.read_typed(text[text.index("(") + 1 : text.rindex(")")]).only
            return Value(lanes=(inner,) * lanes, kind=kind)
        if text in ("poison", "undef"):
            word = truncate(as_word(0xA5A5A5A5A5A5A5A5), kind)
        elif text in ("zeroinitializer", "null", "false"):
            word = as_word(0)
        elif text == "true":
            word = as_word(1)
        else:
            word = truncate(as_word(constant(text, kind)), kind)
        return Value(lanes=(word,) * lanes, kind=kind)

    def operation(self, text: str) -> Value:
        """The value of an instruction that is no call."""
        opcode, _, rest = text.partition(" ")
        parts = arguments(rest)
        if opcode in CONVERSIONS:
            source, _, target = rest.rpartition(" to ")
            return CONVERSIONS[opcode](self.read_typed(source), *shape(target))
        if opcode in BINARY:
            left = self.read_typed(parts[0])
            right = self.read_named(parts[1], left.kind, len(left.lanes))
            return lanewise(BINARY[opcode], left, right)
        if opcode in ("icmp", "fcmp"):
            words = [word for word in tokens(parts[0]) if not _FLAGS.fullmatch(word)]
            left = self.read_typed(" ".join(words[1:]))
            right = self.read_named(parts[1], left.kind, len(left.lanes))
            compare = compare_integers if opcode == "icmp" else compare_floats
            return compare(words[0], left, right)
        if opcode == "fneg":
            operand = self.read_typed(rest)
            sign = as_word(1 << (operand.width - 1))
            return Value(lanes=tuple(lane ^ sign for lane in operand.lanes), kind=operand.kind)
        if opcode == "freeze":
            return self.read_typed(rest)
        return self.rearrange(opcode, [self.read_typed(part) for part in parts])

    def rearrange(self, opcode: str, parts: list[Value]) -> Value:
        """The value of an instruction that only chooses among lanes it is given."""
        first, second, *others = parts
        if opcode == "select":
            conditions = first.lanes * (len(second.lanes) // len(first.lanes))
            lanes = zip(conditions, second.lanes, others[0].lanes, strict=True)
            chosen = tuple(np.where(which == 1, yes, no) for which, yes, no in lanes)
            return Value(lanes=chosen, kind=second.kind)
        if opcode == "extractelement":
            return Value(lanes=(first.lanes[index_of(second)],), kind=first.kind)
        if opcode == "insertelement":
            changed = list(first.lanes)
            changed[index_of(others[0])] = second.only
            return Value(lanes=tuple(changed), kind=first.kind)
        if opcode == "shufflevector":
            pool = (*first.lanes, *second.lanes)
            nothing = self.read_named("poison", first.kind, 1).only
            picks = [int(pick[0]) for pick in others[0].lanes]
            picked = tuple(pool[pick] if pick < len(pool) else nothing for pick in picks)
            return Value(lanes=picked, kind=first.kind)
        raise NotModelled(opcode)

    def call(self, name: str, text: str) -> Value | None:
        """A call's value; None for those without one."""
        if name == "llvm.amdgcn.s.setreg":
            # The mode in which overflows of fp16 and fp8 clamp. It is set for conversions to fp8, and
            # of those only the ones that are done in integers are modelled.
            return None
        start = text.index(f"@{name}(") + len(name) + 2
        given = [self.read_typed(part) for part in arguments(text[start : text.rindex(")")])]
        if name in ("llvm.amdgcn.workitem.id.x", "llvm.amdgcn.workgroup.id.x"):
            return Value(lanes=(as_word(0),), kind="i32")
        if name.startswith(("llvm.amdgcn.readfirstlane", "llvm.amdgcn.make.buffer.rsrc")):
            return given[0]
        base = name.rsplit(".", 1)[0]
        if base == "llvm.amdgcn.raw.ptr.buffer.load":
            kind, lanes = shape(tokens(text.removeprefix("call "))[0])
            return self.load(given[0], given[1:3], kind, lanes)
        if base == "llvm.amdgcn.raw.ptr.buffer.store":
            self.store(given[0], given[1:4])
            return None
        if name == "llvm.amdgcn.perm":
            return perm(*given)
        if name == "llvm.amdgcn.cvt.pkrtz":
            halves = (round_codes(as_float(a.only, "fp32"), "fp16", "rz", False) for a in given)
            return Value(lanes=tuple(halves), kind="half")
        widening = re.fullmatch(r"llvm\.amdgcn\.cvt\.scalef32\.pk\.(f32|f16|bf16)\.(fp8|bf8)", name)
        if widening and np.all(as_float(given[1].only, "fp32") == 1.0):
            return widen_fp8(given[0], given[2], *widening.groups())
        if base in CALLS:
            return CALLS[base](*given)
        raise NotModelled(text)

    def store(self, value: Value, places: list[Value]) -> None:
        """To a buffer of the second parameter, at the sum of offsets."""
        start = sum((place.only for place in places), as_word(-2 * _BASE))
        for i, lane in enumerate(value.lanes):
            self.memory.store(start + as_word(i * value.width // 8), lane, value.width)

    def load(self, base: Value, offsets: list[Value], kind: str, lanes: int) -> Value:
        """From a buffer of the first parameter, at the sum of offsets."""
        width = bits(kind)
        start = base.only + sum((offset.only for offset in offsets), as_word(0)) - as_word(_BASE)
        words = (self.memory.load(start + as_word(i * width // 8), width) for i in range(lanes))
        return Value(lanes=tuple(words), kind=kind)
