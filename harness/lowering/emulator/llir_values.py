"""The values of LLVM IR as arrays, one element an input, and the operations on them.

Semantics from the LLVM Language Reference Manual and the instruction set manuals of CDNA 3 and 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bitproof.harness.lowering.emulator.memory import Array, NotModelled, as_float, as_word
from bitproof.harness.lowering.emulator.ptx_thread import round_codes

FLOATS = {"half": "fp16", "bfloat": "bf16", "float": "fp32"}


@dataclass(frozen=True, kw_only=True)
class Value:
    """Lanes of `width` bits each; a scalar has one. `kind` is the element type as LLVM writes it."""

    lanes: tuple[Array, ...]
    kind: str

    @property
    def width(self) -> int:
        """Bits of a lane."""
        return bits(self.kind)

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


def bits(kind: str) -> int:
    """Bits of an element type."""
    if kind.startswith("ptr"):
        return 64
    return {"half": 16, "bfloat": 16, "float": 32, "double": 64}.get(kind) or int(kind[1:])


def shape(text: str) -> tuple[str, int]:
    """(element type, lanes) of a type as written."""
    found = re.fullmatch(r"<(\d+) x (.+)>", text)
    return (found[2], int(found[1])) if found else (text, 1)


def truncate(word: Array, kind: str) -> Array:
    """A word cut to the width of an element type."""
    return word & as_word((1 << bits(kind)) - 1)


def _sign_extend(word: Array, width: int) -> Array:
    return (word.astype(np.int64) << np.int64(64 - width)) >> np.int64(64 - width)


def index_of(value: Value) -> int:
    """A constant that says which lane."""
    return int(value.only[0])


def constant(text: str, kind: str) -> int:
    """The bits of a constant of an element type, as LLVM writes it."""
    found = re.fullmatch(r"f?0x[HRK]?([0-9A-Fa-f]+)", text)
    if kind not in FLOATS:
        return int(text, 0)
    if found is None:
        number = np.float32(re.sub(r"q?nan.*", "nan", text))
        return int(round_codes(np.array([number]), FLOATS[kind], "rn", False)[0])
    digits = int(found[1], 16)
    if kind == "float" and not text.startswith("f"):  # written as the double of the same value
        return int(
            np.array([digits], dtype=np.uint64)
            .view(np.float64)
            .astype(np.float32)
            .view(np.uint32)[0]
        )
    return digits


def tokens(text: str) -> list[str]:
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


def arguments(text: str) -> list[str]:
    """A list's items, at the commas outside of brackets."""
    found, depth, current = [], 0, ""
    for character in text:
        depth += (character in "<([") - (character in ">)]")
        if character == "," and depth == 0:
            found.append(current.strip())
            current = ""
        else:
            current += character
    return [*found, current.strip()] if current.strip() else found


def lanewise(how: Callable[[Array, Array, int, str], Array], left: Value, right: Value) -> Value:
    """An operation on each pair of lanes."""
    lanes = zip(left.lanes, right.lanes, strict=True)
    return Value(
        lanes=tuple(truncate(how(a, b, left.width, left.kind), left.kind) for a, b in lanes),
        kind=left.kind,
    )


def _make_shift(left: bool) -> Callable[[Array, Array, int, str], Array]:
    def shift(a: Array, b: Array, width: int, kind: str) -> Array:
        if (b >= as_word(width)).any():
            raise NotModelled(f"a shift of {kind} by its width or more")
        return a << b if left else a >> b

    return shift


def _float(how: Callable[[Array, Array], Array]) -> Callable[[Array, Array, int, str], Array]:
    def run(a: Array, b: Array, width: int, kind: str) -> Array:
        name = FLOATS[kind]
        with np.errstate(all="ignore"):
            return round_codes(how(as_float(a, name), as_float(b, name)), name, "rn", False)

    return run


BINARY: dict[str, Callable[[Array, Array, int, str], Array]] = {
    "and": lambda a, b, *_: a & b,
    "or": lambda a, b, *_: a | b,
    "xor": lambda a, b, *_: a ^ b,
    "add": lambda a, b, *_: a + b,
    "sub": lambda a, b, *_: a - b,
    "mul": lambda a, b, *_: a * b,
    "shl": _make_shift(True),
    "lshr": _make_shift(False),
    "fadd": _float(np.add),
    "fsub": _float(np.subtract),
    "fmul": _float(np.multiply),
}


def compare_integers(how: str, left: Value, right: Value) -> Value:
    """`icmp`: lanes of i1."""
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
        pairs = [(_sign_extend(a, left.width), _sign_extend(b, left.width)) for a, b in pairs]
    return Value(lanes=tuple(compare(a, b).astype(np.uint64) for a, b in pairs), kind="i1")


def compare_floats(how: str, left: Value, right: Value) -> Value:
    """`fcmp`: lanes of i1; a NaN on either side answers for itself."""
    name = FLOATS[left.kind]
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
    width = bits(kind)
    if width == value.width:
        return Value(lanes=value.lanes, kind=kind)
    words: list[Array] = []
    if width < value.width:
        for lane in value.lanes:
            words += [
                truncate(lane >> as_word(i * width), kind) for i in range(value.width // width)
            ]
    else:
        each = width // value.width
        for i in range(0, len(value.lanes), each):
            words.append(Value(lanes=value.lanes[i : i + each], kind=value.kind).whole())
    assert len(words) == lanes
    return Value(lanes=tuple(words), kind=kind)


def _make_resize(signed: bool) -> Callable[[Value, str, int], Value]:
    def resize(value: Value, kind: str, lanes: int) -> Value:
        words = [
            _sign_extend(lane, value.width).astype(np.uint64) if signed else lane
            for lane in value.lanes
        ]
        return Value(lanes=tuple(truncate(word, kind) for word in words), kind=kind)

    return resize


def _convert_float(value: Value, kind: str, lanes: int) -> Value:
    words = (
        round_codes(as_float(lane, FLOATS[value.kind]), FLOATS[kind], "rn", False)
        for lane in value.lanes
    )
    return Value(lanes=tuple(words), kind=kind)


CONVERSIONS: dict[str, Callable[[Value, str, int], Value]] = {
    "bitcast": _bitcast,
    "trunc": _make_resize(False),
    "zext": _make_resize(False),
    "sext": _make_resize(True),
    "fptrunc": _convert_float,
    "fpext": _convert_float,
}


def _fabs(value: Value) -> Value:
    mask = as_word((1 << (value.width - 1)) - 1)
    return Value(lanes=tuple(lane & mask for lane in value.lanes), kind=value.kind)


def _pairs(how: Callable[[Array, Array], Array]) -> Callable[[Value, Value], Value]:
    return lambda left, right: lanewise(lambda a, b, *_: how(a, b), left, right)


CALLS: dict[str, Callable[..., Value]] = {
    "llvm.fabs": _fabs,
    "llvm.umax": _pairs(np.maximum),
    "llvm.umin": _pairs(np.minimum),
    "llvm.usub.sat": _pairs(lambda a, b: np.where(a > b, a - b, as_word(0))),
}


def perm(high: Value, low: Value, selector: Value) -> Value:
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


def widen_fp8(codes: Value, upper: Value, to: str, source: str) -> Value:
    """Two fp8 codes of the lower or upper half of a word, widened exactly."""
    word = codes.whole() >> as_word(16 if index_of(upper) else 0)
    name = {"fp8": "e4m3", "bf8": "e5m2"}[source]
    kind = {"f32": "float", "f16": "half", "bf16": "bfloat"}[to]
    lanes = (
        round_codes(
            as_float((word >> as_word(8 * i)) & as_word(0xFF), name), FLOATS[kind], "rn", False
        )
        for i in range(2)
    )
    return Value(lanes=tuple(lanes), kind=kind)
