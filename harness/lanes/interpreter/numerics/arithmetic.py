"""Elementwise arithmetic, comparison and selection of the greater, as sm_90 code computes them.

Types of 16 bits are computed in float32 and rounded: 24 significant bits are more than twice those
of float16 (11) and bfloat16 (8) plus two, so that sums, differences and products are as if rounded
once (Figueroa, "When is double rounding innocuous?", 1995). fp8 has no arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.errors import Uncompilable
from bitproof.harness.lanes.interpreter.numerics.conversions import FP8, INTEGERS
from bitproof.harness.lanes.interpreter.numerics.fusion import multiply_add
from bitproof.harness.lanes.interpreter.overlay import Patch, in_session
from bitproof.harness.targets import roundings as r

_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_COMPARISONS = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def widen(data: r.Array, name: str) -> r.Array:
    """Storage of the type named as an array that numpy can compute on: float32 for 16-bit floats."""
    if name == "bf16":
        return r.f32_from_bf16(data)
    if name == "fp16":
        return data.astype(np.float32)
    if name in FP8:
        raise Uncompilable(f"no target compiles arithmetic on {name}: convert it to fp32 first")
    return data


def narrow(result: r.Array, name: str) -> r.Array:
    """The reverse of `widen`, rounded to nearest even."""
    if name == "bf16":
        return r.bf16_from_f32(result)
    if name == "fp16":
        return r.f16_from_float(result)
    return result


def elementwise(op: Callable[..., r.Array], name: str, *operands: r.Array) -> r.Array:
    """`op` on storage of one type, rounded once; int1 counts modulo 2."""
    if name in ("bf16", "fp16"):
        return narrow(op(*(widen(x, name) for x in operands)), name)
    if name == "int1":
        return (op(*(x.astype(np.int8) for x in operands)) & 1).astype(bool)
    result = op(*(widen(x, name) for x in operands))
    return result if result.dtype == operands[0].dtype else result.astype(operands[0].dtype)


def greater(x: r.Array, y: r.Array, name: str, *, propagate_nan: bool = False) -> r.Array:
    """PTX `max`: of a number and NaN the number (NaN if `propagate_nan`); +0 is above -0."""
    op, both = (np.maximum if propagate_nan else np.fmax), np.bitwise_and
    return _extreme(op, both, x, y, name)


def lesser(x: r.Array, y: r.Array, name: str, *, propagate_nan: bool = False) -> r.Array:
    """PTX `min`: of a number and NaN the number (NaN if `propagate_nan`); -0 is below +0."""
    op, both = (np.minimum if propagate_nan else np.fmin), np.bitwise_or
    return _extreme(op, both, x, y, name)


def _extreme(op: Any, both: Any, x: r.Array, y: r.Array, name: str) -> r.Array:
    if name in INTEGERS:
        return np.asarray(op(x, y))
    a, b = widen(x, name), widen(y, name)
    # Equal numbers have equal bits but for the two zeros, whose sign bit this decides.
    word = _BITS[a.dtype.itemsize]
    equal = both(a.view(word), b.view(word)).view(a.dtype)
    return narrow(np.where(a == b, equal, op(a, b)), name)


def remainder(x: r.Array, y: r.Array, name: str) -> r.Array:
    """`x % y` on fp32 or fp64 as compiled: one exact division, truncated, one fused multiply-add."""
    quotient = np.trunc(x / y)
    rest = multiply_add(-quotient, y, x, name)
    return np.where(np.isinf(y), x, rest)


def compare(x: r.Array, y: r.Array, name: str, relation: str, *, unordered: bool) -> r.Array:
    """A comparison of floats as bools; where either is NaN, the answer is `unordered`."""
    a, b = widen(x, name), widen(y, name)
    result = np.asarray(_COMPARISONS[relation](a, b))
    if unordered == (relation == "NE"):
        return result
    nan = np.isnan(a) | np.isnan(b)
    return result | nan if unordered else result & ~nan


def _handle(function: Callable[..., r.Array], **options: Any) -> Callable[..., Any]:
    """A builder method that applies `function(*storage, name)` to its operands."""

    def method(_builder: Any, *operands: Any) -> Any:
        dtype = operands[0].dtype.scalar
        data = function(*(operand.data for operand in operands), dtype.name, **options)
        return TensorHandle(data, dtype)

    return method


def _comparison(relation: str, unordered: bool) -> Callable[..., Any]:
    int1 = interpreter.tl.int1

    def method(_builder: Any, lhs: Any, rhs: Any) -> Any:
        name = lhs.dtype.scalar.name
        data = compare(lhs.data, rhs.data, name, relation, unordered=unordered)
        return TensorHandle(data, int1)

    return method


def _int_comparison(relation: str) -> Callable[..., Any]:
    op, int1 = _COMPARISONS[relation], interpreter.tl.int1
    return lambda _builder, lhs, rhs: TensorHandle(op(lhs.data, rhs.data), int1)


def _binary_op(_builder: Any, lhs: Any, rhs: Any, op: Any) -> Any:
    dtype = lhs.dtype.scalar
    if dtype.is_ptr():
        return TensorHandle(op(lhs.data, rhs.data), dtype)
    return TensorHandle(elementwise(op, dtype.name, lhs.data, rhs.data), dtype)


def _negate(_builder: Any, arg: Any) -> Any:
    dtype = arg.dtype.scalar
    if dtype.name in FP8:
        raise Uncompilable(
            f"no target compiles the negation of {dtype.name}: convert it to fp32 first"
        )
    flipped = arg.data ^ np.uint16(0x8000) if dtype.name == "bf16" else np.negative(arg.data)
    return TensorHandle(flipped, dtype)


def _fma(_builder: Any, x: Any, y: Any, z: Any) -> Any:
    dtype = z.dtype.scalar
    widen(z.data[:0], dtype.name)
    return TensorHandle(multiply_add(x.data, y.data, z.data, dtype.name), dtype)


def _umulhi(_builder: Any, lhs: Any, rhs: Any) -> Any:
    """The high half of the unsigned product, whatever the operands' sign."""
    dtype = lhs.data.dtype
    if dtype.itemsize == 4:
        a, b = (x.data.astype(np.uint32).astype(np.uint64) for x in (lhs, rhs))
        high = (a * b) >> np.uint64(32)
        return TensorHandle(high.astype(np.uint32).astype(dtype), lhs.dtype.scalar)
    a, b = (x.data.astype(np.uint64) for x in (lhs, rhs))
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    cross = (a & low) * (b & low) >> half
    left = (a >> half) * (b & low) + cross
    right = (a & low) * (b >> half) + (left & low)
    high = (a >> half) * (b >> half) + (left >> half) + (right >> half)
    return TensorHandle(high.astype(dtype), lhs.dtype.scalar)


def patches() -> list[Patch]:
    """Arithmetic, comparisons, minima and maxima of the builder."""
    methods: dict[str, Callable[..., Any]] = {
        "binary_op": _binary_op,
        "create_fneg": _negate,
        "create_frem": _handle(remainder),
        "create_fma": _fma,
        "create_umulhi": _umulhi,
        "create_maxnumf": _handle(greater),
        "create_minnumf": _handle(lesser),
        "create_maximumf": _handle(greater, propagate_nan=True),
        "create_minimumf": _handle(lesser, propagate_nan=True),
    }
    for relation in _COMPARISONS:
        methods[f"create_fcmpO{relation}"] = _comparison(relation, unordered=False)
        methods[f"create_fcmpU{relation}"] = _comparison(relation, unordered=True)
        for sign in ("", "S", "U"):
            if (sign == "") == (relation in ("EQ", "NE")):
                methods[f"create_icmp{sign}{relation}"] = _int_comparison(relation)
    builder = interpreter.InterpreterBuilder
    return [Patch(builder, name, in_session(method)) for name, method in methods.items()]
