"""Runs one thread of straight-line PTX on many inputs at once, with numpy.

For conversions: thread 0 of block 0 executes a handful of loads, conversions and stores while every
register holds an array, one element an input. Memory is what `Memory` says. The instructions are those
that Triton's conversions are made of (PTX ISA 9.0, "Instruction Set"); any other, and every branch,
raises `NotModelled`, so that unknown code is never taken for known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bitproof.harness.lowering.emulator.memory import Array, Memory, NotModelled, as_float, as_word
from bitproof.harness.lowering.readers.code import Code, Instruction
from bitproof.harness.targets import roundings

_BASE = 1 << 40
_UNWRITTEN = 0xA5A5A5A5A5A5A5A5
_WIDTHS = {"pred": 1, "f16x2": 32, "bf16x2": 32, "e4m3x2": 16, "e5m2x2": 16}
_ZERO_REGISTERS = ("%tid.", "%ctaid.", "%laneid", "%warpid")
_FP8 = {"e4m3": "fp8e4nv", "e5m2": "fp8e5"}


def run(code: Code, memory: Memory) -> None:
    """Execute `code`; parameter 0 is the address of what is read, parameter 1 of what is written."""
    thread = _Thread(memory=memory)
    for instruction in code.instructions:
        thread.step(instruction)


def _width(kind: str) -> int:
    return _WIDTHS.get(kind) or int(re.sub(r"\D", "", kind) or 0)


@dataclass(kw_only=True)
class _Thread:
    memory: Memory
    registers: dict[str, Array] = field(default_factory=dict)

    def step(self, instruction: Instruction) -> None:
        root, *kinds = instruction.opcode.split(".")
        if root == "ret" or (root == "bar"):
            return
        if any(not self._true(guard) for guard in instruction.guards):
            raise NotModelled(instruction.text)
        handler = _HANDLERS.get(root)
        if handler is None or "ftz" in kinds:
            raise NotModelled(instruction.text)
        handler(self, instruction, kinds)

    def _true(self, guard: str) -> bool:
        return bool((self.registers.get(guard, np.uint64(0)) == 1).all())

    def read(self, operand: str, width: int) -> Array:
        """A register, a literal or a pair in braces, cut to `width` bits."""
        if operand.startswith("{"):
            parts = [part.strip() for part in operand.strip("{} ").split(",")]
            each = width // len(parts)
            words = [self.read(part, each) << np.uint64(each * i) for i, part in enumerate(parts)]
            value = words[0]
            for word in words[1:]:
                value = value | word
            return value
        if operand.startswith(_ZERO_REGISTERS):
            return as_word(0)
        value = self.registers.get(operand, as_word(_UNWRITTEN))
        if not re.match(r"[%A-Za-z_]", operand):
            value = as_word(_literal(operand))
        return value & as_word((1 << width) - 1)

    def write(self, operand: str, value: Array, width: int) -> None:
        if operand.startswith("{"):
            parts = [part.strip() for part in operand.strip("{} ").split(",")]
            each = width // len(parts)
            for i, part in enumerate(parts):
                self.write(part, value >> np.uint64(each * i), each)
            return
        self.registers[operand] = value & as_word((1 << width) - 1)

    def binary(self, how: Callable[[Array, Array], Array], instruction: Instruction) -> None:
        kind = instruction.opcode.split(".")[-1]
        width = _width(kind)
        target, left, right = instruction.operands
        self.write(target, how(self.read(left, width), self.read(right, width)), width)

    def address(self, operand: str) -> Array:
        base, _, offset = operand.strip("[] ").partition("+")
        return self.read(base.strip(), 64) + as_word(int(offset or "0", 0))


def _literal(text: str) -> int:
    if re.match(r"0[fF]", text):
        return int(text[2:], 16)
    return int(text.rstrip("U"), 0) & ((1 << 64) - 1)


def _mov(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
    width = _width(kinds[-1])
    target, source = instruction.operands
    thread.write(target, thread.read(source, width), width)


def _ld(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
    target, source = instruction.operands
    width = _width(kinds[-1])
    if kinds[0] == "param":
        number = re.search(r"_param_(\d+)", source)
        thread.write(target, as_word(_BASE * (int(number[1]) + 1) if number else 0), width)
        return
    if "global" not in kinds:
        raise NotModelled(instruction.text)
    offset = thread.address(source) - as_word(_BASE)
    for i, part in enumerate(target.strip("{} ").split(",")):
        thread.write(
            part.strip(), thread.memory.load(offset + as_word(i * width // 8), width), width
        )


def _st(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
    target, source = instruction.operands
    if "global" not in kinds:
        raise NotModelled(instruction.text)
    width = _width(kinds[-1])
    offset = thread.address(target) - as_word(2 * _BASE)
    for i, part in enumerate(source.strip("{} ").split(",")):
        value = thread.read(part.strip(), width)
        thread.memory.store(offset + as_word(i * width // 8), value, width)


def _wide(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
    """mul.lo, mul.wide, mad.lo, mad.wide of integers, and products of floats."""
    kind = kinds[-1]
    if kind in ("f32", "bf16x2", "f16x2"):
        _float_binary(np.multiply)(thread, instruction, kinds)
        return
    width = _width(kind)
    out = 2 * width if kinds[0] == "wide" else width
    if kinds[0] not in ("wide", "lo") or kind.startswith("s"):
        raise NotModelled(instruction.text)
    target, left, right, *rest = instruction.operands
    value = thread.read(left, width) * thread.read(right, width)
    if rest:
        value = value + thread.read(rest[0], out)
    thread.write(target, value, out)


def _shift(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
    width = _width(kinds[-1])
    target, left, right = instruction.operands
    amount = thread.read(right, 32)
    if (amount >= width).any() or kinds[-1].startswith("s"):
        raise NotModelled(instruction.text)
    value = thread.read(left, width)
    left_shift = instruction.opcode.startswith("shl")
    thread.write(target, value << amount if left_shift else value >> amount, width)


def _prmt(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
    """Four bytes picked out of eight; a selector's bit 3 spreads the byte's sign instead."""
    target, left, right, selector = instruction.operands
    pool = thread.read(left, 32) | thread.read(right, 32) << as_word(32)
    chosen = thread.read(selector, 32)
    value = as_word(0)
    for i in range(4):
        pick = (chosen >> as_word(4 * i)) & as_word(7)
        byte = (pool >> (pick * as_word(8))) & as_word(0xFF)
        if ((chosen >> as_word(4 * i)) & as_word(8)).any():
            raise NotModelled(instruction.text)
        value = value | byte << as_word(8 * i)
    thread.write(target, value, 32)


def _lop3(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
    target, *sources, table = instruction.operands
    a, b, c = (thread.read(source, 32) for source in sources)
    rows = _literal(table)
    value = as_word(0)
    for row in range(8):
        if rows >> row & 1:
            term = a if row & 4 else ~a
            term = term & (b if row & 2 else ~b)
            value = value | (term & (c if row & 1 else ~c))
    thread.write(target, value, 32)


def _set_nan(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
    if kinds != ["nan", "f16x2", "f16x2"]:
        raise NotModelled(instruction.text)
    target, left, right = instruction.operands
    value = as_word(0)
    for half in range(2):
        lanes = [_half(thread.read(source, 32), half) for source in (left, right)]
        is_nan = np.isnan(as_float(lanes[0], "fp16")) | np.isnan(as_float(lanes[1], "fp16"))
        value = value | np.where(is_nan, as_word(0x3C00), as_word(0)) << as_word(16 * half)
    thread.write(target, value, 32)


def _half(value: Array, which: int) -> Array:
    return (value >> as_word(16 * which)) & as_word(0xFFFF)


_Lanes = tuple[str, int]
_FLOATS: dict[str, _Lanes] = {
    "f32": ("fp32", 1),
    "f16": ("fp16", 1),
    "bf16": ("bf16", 1),
    "f16x2": ("fp16", 2),
    "bf16x2": ("bf16", 2),
}


def _float_binary(how: Callable[[Array, Array], Array]) -> Callable[..., None]:
    """An operation on fp32, or on fp16 and bf16 lanes by rounding its fp32 result once more.

    Twice rounded is once rounded for sums and products of 8- and 11-bit significands in 24 bits
    (Figueroa, "When is double rounding innocuous?", 1995).
    """

    def run(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
        name, lanes = _FLOATS[kinds[-1]]
        width = _width(kinds[-1])
        target, left, right = instruction.operands
        each = width // lanes
        value = as_word(0)
        for lane in range(lanes):
            sides = [
                (thread.read(source, width) >> as_word(each * lane)) & as_word((1 << each) - 1)
                for source in (left, right)
            ]
            with np.errstate(all="ignore"):
                result = how(as_float(sides[0], name), as_float(sides[1], name))
            value = value | round_codes(result, name, "rn", False) << as_word(each * lane)
        thread.write(target, value, width)

    return run


def _min_max(integers: Callable[..., Array], floats: Callable[..., Array]) -> Callable[..., None]:
    def run(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
        if kinds[-1] in _FLOATS and "xorsign" not in kinds and "NaN" not in kinds:
            _float_binary(floats)(thread, instruction, kinds)
        elif kinds[-1].startswith("u"):
            thread.binary(integers, instruction)
        else:
            raise NotModelled(instruction.text)

    return run


def _additive(
    integers: Callable[[Array, Array], Array], floats: Callable[..., Array]
) -> Callable[..., None]:
    def run(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
        if kinds[-1] in _FLOATS:
            _float_binary(floats)(thread, instruction, kinds)
        elif len(kinds) == 1:
            thread.binary(integers, instruction)
        else:
            raise NotModelled(instruction.text)

    return run


def round_codes(values: Array, name: str, mode: str, saturating: bool) -> Array:
    """fp32 values as codes of the format `name`, in uint64, rounded as `cvt` does."""
    values = np.atleast_1d(np.asarray(values, dtype=np.float32))
    if name == "fp32":
        codes: Array = values.view(np.uint32)
    elif name in _FP8 and mode == "rn" and saturating:
        codes = roundings.fp8_from_f32(values, _FP8[name])
    elif name == "fp16" and not saturating:
        how = {"rn": roundings.f16_from_float, "rz": roundings.f16_from_f32_toward_zero}[mode]
        codes = how(values).view(np.uint16)
    elif name == "bf16" and not saturating:
        to_nearest = mode == "rn"
        how = roundings.bf16_from_f32 if to_nearest else roundings.bf16_from_f32_toward_zero
        codes = how(values)
    else:
        raise NotModelled(f"rounding to {name} by {mode}{', saturating' if saturating else ''}")
    return codes.astype(np.uint64)


def _cvt(thread: _Thread, instruction: Instruction, kinds: list[str]) -> None:
    mode = next((kind for kind in kinds if kind in ("rn", "rz")), "rn")
    saturating = "satfinite" in kinds
    if set(kinds[:-2]) - {"rn", "rz", "satfinite"}:
        raise NotModelled(instruction.text)
    to, source = kinds[-2:]
    target, *sources = instruction.operands
    if source[0] in "subd" and source[1:].isdigit():
        if to[0] not in "sub":
            raise NotModelled(instruction.text)
        value = thread.read(sources[0], _width(source))
        if source[0] == "s":
            value = _sign_extend(value, _width(source))
        thread.write(target, value, _width(to))
        return
    name = to.removesuffix("x2")
    from_name = {"f32": "fp32", "f16": "fp16"}.get(
        source.removesuffix("x2"), source.removesuffix("x2")
    )
    name = {"f32": "fp32", "f16": "fp16"}.get(name, name)
    words = _lanes(thread, sources, source)
    each = _width(to) // len(words)
    if to.endswith("x2") != (len(words) == 2):
        raise NotModelled(instruction.text)
    value = as_word(0)
    for lane, word in enumerate(words):
        code = round_codes(as_float(word, from_name), name, mode, saturating)
        value = value | code << as_word(each * lane)
    thread.write(target, value, _width(to))


def _lanes(thread: _Thread, sources: list[str], kind: str) -> list[Array]:
    """The numbers a conversion reads, lowest lane first: two registers have the upper one first."""
    width = _width(kind)
    if kind.endswith("x2"):
        word = thread.read(sources[0], width)
        each = width // 2
        return [word & as_word((1 << each) - 1), word >> as_word(each)]
    return [thread.read(source, width) for source in reversed(sources)]


def _sign_extend(value: Array, width: int) -> Array:
    sign = as_word(1 << (width - 1))
    return (value ^ sign) - sign


_HANDLERS: dict[str, Callable[[_Thread, Instruction, list[str]], None]] = {
    "mov": _mov,
    "ld": _ld,
    "st": _st,
    "mul": _wide,
    "mad": _wide,
    "shl": _shift,
    "shr": _shift,
    "prmt": _prmt,
    "lop3": _lop3,
    "set": _set_nan,
    "cvt": _cvt,
    "and": lambda thread, instruction, _: thread.binary(np.bitwise_and, instruction),
    "or": lambda thread, instruction, _: thread.binary(np.bitwise_or, instruction),
    "xor": lambda thread, instruction, _: thread.binary(np.bitwise_xor, instruction),
    "add": _additive(np.add, np.add),
    "sub": _additive(np.subtract, np.subtract),
    "min": _min_max(np.minimum, np.fmin),
    "max": _min_max(np.maximum, np.fmax),
}
