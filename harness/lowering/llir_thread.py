"""Runs one thread of straight-line LLVM IR for AMD on many inputs at once, with numpy.

The counterpart of `ptx_thread`; semantics from the LLVM Language Reference Manual and, for
`llvm.amdgcn.*`, from the instruction set manuals of CDNA 3 and 4. What those leave open, such as what
gfx950's fp8 conversions make of an overflow, is not modelled: it raises `NotModelled`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from harness.lowering.code import Code, Instruction
from harness.lowering.memory import Array, Memory, NotModelled, as_float, as_word
from harness.lowering.ptx_thread import rounded

_BASE = 1 << 40
_FLOATS = {"half": "fp16", "bfloat": "bf16", "float": "fp32"}
_FLAGS = re.compile(
    r"nuw|nsw|exact|disjoint|samesign|nneg|nnan|ninf|nsz|arcp|contract|afn|reassoc|fast|noundef"
    r"|inreg|nonnull|zeroext|signext"
)
_OVERFLOW_CLAMPS = "llvm.amdgcn.s.setreg"


@dataclass(frozen=True, kw_only=True)
class Value:
    """Lanes of `width` bits each; a scalar has one. `kind` is the element type as LLVM writes it."""

    lanes: tuple[Array, ...]
    kind: str

    @property
    def width(self) -> int:
        """Bits of a lane."""
        return _bits(self.kind)

    @property
    def only(self) -> Array:
        """The lane of a scalar."""
        return self.lanes[0]

    def whole(self) -> Array:
        """All lanes as one word, the first lowest; NotModelled beyond 64 bits."""
        if self.width * len(self.lanes) > 64:
            raise NotModelled(f"a vector of {len(self.lanes)} {self.kind} as one word")
        value = as_word(0)
        for i, lane in enumerate(self.lanes):
            value = value | lane << as_word(i * self.width)
        return value


def run(code: Code, memory: Memory) -> None:
    """Execute `code`; parameter 0 is the address of what is read, parameter 1 of what is written."""
    thread = _Thread(memory=memory)
    for name, number in code.parameters.items():
        thread.values[name] = Value(lanes=(as_word(_BASE * (number + 1)),), kind="ptr")
    for instruction in code.instructions:
        thread.step(instruction)


def _bits(kind: str) -> int:
    if kind.startswith("ptr"):
        return 64
    return {"half": 16, "bfloat": 16, "float": 32, "double": 64}.get(kind) or int(kind[1:])


def _shape(text: str) -> tuple[str, int]:
    """(element type, lanes) of a type as written."""
    found = re.fullmatch(r"<(\d+) x (.+)>", text)
    return (found[2], int(found[1])) if found else (text, 1)


def _masked(word: Array, kind: str) -> Array:
    return word & as_word((1 << _bits(kind)) - 1)


def _signed(word: Array, width: int) -> Array:
    return (word.astype(np.int64) << np.int64(64 - width)) >> np.int64(64 - width)


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

    def typed(self, text: str) -> Value:
        """An operand with its type: `i32 %5`, `<2 x i32> <i32 0, i32 1>`, `float 1.0`."""
        words = [word for word in _tokens(text) if not _FLAGS.fullmatch(word)]
        words = [
            word for word in words if not re.match(r"(align|range|captures|addrspace)\b", word)
        ]
        kind, lanes = _shape(words[0])
        return self.named(" ".join(words[1:][-2:] if "splat" in words else words[-1:]), kind, lanes)

    def named(self, text: str, kind: str, lanes: int) -> Value:
        if text.startswith("%"):
            return self.values[text]
        if text.startswith("<"):
            return Value(
                lanes=tuple(self.typed(part).only for part in _arguments(text[1:-1])), kind=kind
            )
        if text.startswith("splat"):
            inner = self.typed(text[text.index("(") + 1 : text.rindex(")")]).only
            return Value(lanes=(inner,) * lanes, kind=kind)
        if text in ("poison", "undef"):
            word = _masked(as_word(0xA5A5A5A5A5A5A5A5), kind)
        elif text in ("zeroinitializer", "null", "false"):
            word = as_word(0)
        elif text == "true":
            word = as_word(1)
        else:
            word = _masked(as_word(_constant(text, kind)), kind)
        return Value(lanes=(word,) * lanes, kind=kind)

    def operation(self, text: str) -> Value:
        opcode, _, rest = text.partition(" ")
        arguments = _arguments(rest)
        if opcode in _CONVERSIONS:
            source, _, target = rest.rpartition(" to ")
            return _CONVERSIONS[opcode](self.typed(source), *_shape(target))
        if opcode in _BINARY:
            left = self.typed(arguments[0])
            right = self.named(arguments[1], left.kind, len(left.lanes))
            return _lanewise(_BINARY[opcode], left, right)
        if opcode in ("icmp", "fcmp"):
            words = [word for word in _tokens(arguments[0]) if not _FLAGS.fullmatch(word)]
            left = self.typed(" ".join(words[1:]))
            right = self.named(arguments[1], left.kind, len(left.lanes))
            compare = _compare_integers if opcode == "icmp" else _compare_floats
            return compare(words[0], left, right)
        if opcode == "select":
            which, yes, no = (self.typed(argument) for argument in arguments)
            conditions = which.lanes * (len(yes.lanes) // len(which.lanes))
            lanes = zip(conditions, yes.lanes, no.lanes, strict=True)
            return Value(lanes=tuple(np.where(c == 1, a, b) for c, a, b in lanes), kind=yes.kind)
        if opcode == "extractelement":
            vector, index = (self.typed(argument) for argument in arguments)
            return Value(lanes=(vector.lanes[_index(index)],), kind=vector.kind)
        if opcode == "insertelement":
            vector, element, index = (self.typed(argument) for argument in arguments)
            changed = list(vector.lanes)
            changed[_index(index)] = element.only
            return Value(lanes=tuple(changed), kind=vector.kind)
        if opcode == "shufflevector":
            left, right, picks = (self.typed(argument) for argument in arguments)
            pool = (*left.lanes, *right.lanes)
            nothing = self.named("poison", left.kind, 1).only
            chosen = [int(pick[0]) for pick in picks.lanes]
            lanes_ = tuple(pool[i] if i < len(pool) else nothing for i in chosen)
            return Value(lanes=lanes_, kind=left.kind)
        if opcode == "fneg":
            operand = self.typed(rest)
            sign = as_word(1 << (operand.width - 1))
            return Value(lanes=tuple(lane ^ sign for lane in operand.lanes), kind=operand.kind)
        if opcode == "freeze":
            return self.typed(rest)
        raise NotModelled(text)

    def call(self, name: str, text: str) -> Value | None:
        """A call's value; None for those without one."""
        if name == _OVERFLOW_CLAMPS:
            # Mode bit 23 alone, which concerns overflows of fp16 and fp8; those are left to the
            # conversions that are not modelled.
            return None
        start = text.index(f"@{name}(") + len(name) + 2
        arguments = [
            self.typed(argument) for argument in _arguments(text[start : text.rindex(")")])
        ]
        if name in ("llvm.amdgcn.workitem.id.x", "llvm.amdgcn.workgroup.id.x"):
            return Value(lanes=(as_word(0),), kind="i32")
        if name.startswith(("llvm.amdgcn.readfirstlane", "llvm.amdgcn.make.buffer.rsrc")):
            return arguments[0]
        base = name.rsplit(".", 1)[0]
        if base == "llvm.amdgcn.raw.ptr.buffer.load":
            kind, lanes = _shape(" ".join(_tokens(text[len("call ") :])[:1]))
            return self.load(arguments[0], arguments[1:3], kind, lanes)
        if base == "llvm.amdgcn.raw.ptr.buffer.store":
            value = arguments[0]
            offset = arguments[1].only + arguments[2].only + arguments[3].only
            for i, lane in enumerate(value.lanes):
                where = offset + as_word(i * value.width // 8 - 2 * _BASE)
                self.memory.store(where, lane, value.width)
            return None
        if name == "llvm.amdgcn.perm":
            return _perm(*arguments)
        if name == "llvm.amdgcn.cvt.pkrtz":
            lanes_ = (rounded(as_float(a.only, "fp32"), "fp16", "rz", False) for a in arguments)
            return Value(lanes=tuple(lanes_), kind="half")
        widening = re.fullmatch(r"llvm\.amdgcn\.cvt\.scalef32\.pk\.(f32|f16|bf16)\.(fp8|bf8)", name)
        if widening and np.all(as_float(arguments[1].only, "fp32") == 1.0):
            return _widened(arguments[0], arguments[2], *widening.groups())
        if base in _CALLS:
            return _CALLS[base](*arguments)
        raise NotModelled(text)

    def load(self, base: Value, offsets: list[Value], kind: str, lanes: int) -> Value:
        width = _bits(kind)
        start = base.only + sum((offset.only for offset in offsets), as_word(0)) - as_word(_BASE)
        words = (self.memory.load(start + as_word(i * width // 8), width) for i in range(lanes))
        return Value(lanes=tuple(words), kind=kind)


def _index(value: Value) -> int:
    return int(value.only[0])


def _constant(text: str, kind: str) -> int:
    found = re.fullmatch(r"f?0x[HRK]?([0-9A-Fa-f]+)", text)
    if kind not in _FLOATS:
        return int(text, 0)
    if found is None:
        number = np.float32(re.sub(r"q?nan.*", "nan", text))
        return int(rounded(np.array([number]), _FLOATS[kind], "rn", False)[0])
    digits = int(found[1], 16)
    if kind == "float" and not text.startswith("f"):  # written as the double of the same value
        return int(
            np.array([digits], dtype=np.uint64)
            .view(np.float64)
            .astype(np.float32)
            .view(np.uint32)[0]
        )
    return digits


def _tokens(text: str) -> list[str]:
    """Words, a vector type or constant and anything in parentheses being part of one."""
    found, depth, current = [], 0, ""
    for character in text + " ":
        depth += (character in "<(") - (character in ">)")
        if character == " " and depth == 0:
            if current:
                found.append(current)
            current = ""
        else:
            current += character
    return found


def _arguments(text: str) -> list[str]:
    found, depth, current = [], 0, ""
    for character in text:
        depth += (character in "<([") - (character in ">)]")
        if character == "," and depth == 0:
            found.append(current.strip())
            current = ""
        else:
            current += character
    return [*found, current.strip()] if current.strip() else found


def _lanewise(how: Callable[[Array, Array, int, str], Array], left: Value, right: Value) -> Value:
    lanes = zip(left.lanes, right.lanes, strict=True)
    return Value(
        lanes=tuple(_masked(how(a, b, left.width, left.kind), left.kind) for a, b in lanes),
        kind=left.kind,
    )


def _shifted(left: bool) -> Callable[[Array, Array, int, str], Array]:
    def shift(a: Array, b: Array, width: int, kind: str) -> Array:
        if (b >= as_word(width)).any():
            raise NotModelled(f"a shift of {kind} by its width or more")
        return a << b if left else a >> b

    return shift


def _float(how: Callable[[Array, Array], Array]) -> Callable[[Array, Array, int, str], Array]:
    def run(a: Array, b: Array, width: int, kind: str) -> Array:
        name = _FLOATS[kind]
        with np.errstate(all="ignore"):
            return rounded(how(as_float(a, name), as_float(b, name)), name, "rn", False)

    return run


_BINARY: dict[str, Callable[[Array, Array, int, str], Array]] = {
    "and": lambda a, b, *_: a & b,
    "or": lambda a, b, *_: a | b,
    "xor": lambda a, b, *_: a ^ b,
    "add": lambda a, b, *_: a + b,
    "sub": lambda a, b, *_: a - b,
    "mul": lambda a, b, *_: a * b,
    "shl": _shifted(True),
    "lshr": _shifted(False),
    "fadd": _float(np.add),
    "fsub": _float(np.subtract),
    "fmul": _float(np.multiply),
}


def _compare_integers(how: str, left: Value, right: Value) -> Value:
    compare = {
        "eq": np.equal,
        "ne": np.not_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "lt": np.less,
        "le": np.less_equal,
    }[how[-2:]]
    pairs = list(zip(left.lanes, right.lanes, strict=True))
    if how.startswith("s"):
        pairs = [(_signed(a, left.width), _signed(b, left.width)) for a, b in pairs]
    return Value(lanes=tuple(compare(a, b).astype(np.uint64) for a, b in pairs), kind="i1")


def _compare_floats(how: str, left: Value, right: Value) -> Value:
    name = _FLOATS[left.kind]
    comparisons: dict[str, Callable[[Array, Array], Array]] = {
        "eq": np.equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "lt": np.less,
        "le": np.less_equal,
        "ne": np.not_equal,
        "no": lambda a, b: np.zeros(np.broadcast(a, b).shape, dtype=np.bool_),
        "rd": lambda a, b: np.ones(np.broadcast(a, b).shape, dtype=np.bool_),
    }
    compare = comparisons[how[-2:]]
    lanes = []
    for a, b in zip(left.lanes, right.lanes, strict=True):
        x, y = as_float(a, name), as_float(b, name)
        unordered = np.isnan(x) | np.isnan(y)
        held = np.where(unordered, how.startswith("u"), compare(x, y))
        lanes.append(held.astype(np.uint64))
    return Value(lanes=tuple(lanes), kind="i1")


def _bitcast(value: Value, kind: str, lanes: int) -> Value:
    width = _bits(kind)
    if width == value.width:
        return Value(lanes=value.lanes, kind=kind)
    words: list[Array] = []
    if width < value.width:
        for lane in value.lanes:
            words += [
                _masked(lane >> as_word(i * width), kind) for i in range(value.width // width)
            ]
    else:
        each = width // value.width
        for i in range(0, len(value.lanes), each):
            words.append(Value(lanes=value.lanes[i : i + each], kind=value.kind).whole())
    assert len(words) == lanes
    return Value(lanes=tuple(words), kind=kind)


def _resized(signed: bool) -> Callable[[Value, str, int], Value]:
    def resize(value: Value, kind: str, lanes: int) -> Value:
        words = [
            _signed(lane, value.width).astype(np.uint64) if signed else lane for lane in value.lanes
        ]
        return Value(lanes=tuple(_masked(word, kind) for word in words), kind=kind)

    return resize


def _refloated(value: Value, kind: str, lanes: int) -> Value:
    words = (
        rounded(as_float(lane, _FLOATS[value.kind]), _FLOATS[kind], "rn", False)
        for lane in value.lanes
    )
    return Value(lanes=tuple(words), kind=kind)


_CONVERSIONS: dict[str, Callable[[Value, str, int], Value]] = {
    "bitcast": _bitcast,
    "trunc": _resized(False),
    "zext": _resized(False),
    "sext": _resized(True),
    "fptrunc": _refloated,
    "fpext": _refloated,
}


def _fabs(value: Value) -> Value:
    mask = as_word((1 << (value.width - 1)) - 1)
    return Value(lanes=tuple(lane & mask for lane in value.lanes), kind=value.kind)


def _pairs(how: Callable[[Array, Array], Array]) -> Callable[[Value, Value], Value]:
    return lambda left, right: _lanewise(lambda a, b, *_: how(a, b), left, right)


_CALLS: dict[str, Callable[..., Value]] = {
    "llvm.fabs": _fabs,
    "llvm.umax": _pairs(np.maximum),
    "llvm.umin": _pairs(np.minimum),
    "llvm.usub.sat": _pairs(lambda a, b: np.where(a > b, a - b, as_word(0))),
}


def _perm(high: Value, low: Value, selector: Value) -> Value:
    """V_PERM_B32 for selectors 0 to 7: bytes of the second operand, then of the first; 12 gives 0."""
    pool = low.only | high.only << as_word(32)
    value = as_word(0)
    for i in range(4):
        pick = int(selector.only[0]) >> (8 * i) & 0xFF
        if pick == 12:
            continue
        if pick > 7:
            raise NotModelled(f"selector {pick} of V_PERM_B32")
        value = value | ((pool >> as_word(8 * pick)) & as_word(0xFF)) << as_word(8 * i)
    return Value(lanes=(value,), kind="i32")


def _widened(codes: Value, upper: Value, to: str, source: str) -> Value:
    """Two fp8 codes of the lower or upper half of a word, widened exactly."""
    word = codes.whole() >> as_word(16 if _index(upper) else 0)
    name = {"fp8": "e4m3", "bf8": "e5m2"}[source]
    kind = {"f32": "float", "f16": "half", "bf16": "bfloat"}[to]
    lanes = (
        rounded(
            as_float((word >> as_word(8 * i)) & as_word(0xFF), name), _FLOATS[kind], "rn", False
        )
        for i in range(2)
    )
    return Value(lanes=tuple(lanes), kind=kind)
