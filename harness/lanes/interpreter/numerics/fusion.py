"""Fused multiply-add: its value, exactly rounded, and where compiled code makes one of `a * b + c`.

While fusion is on (`Session.fp_fusion`), LLVM contracts every product that reaches an addition or a
subtraction, even one that is used elsewhere too: `a * b + c`, `c - a * b`, `-(a * b) + c`. So a
product remembers its factors, also through negation and through reshaping and broadcasting, and the
addition asks for them. Of two products the left one is contracted (`a * b - c * d` is
`fma(a, b, -(c * d))`). Selections, minima and casts forget.

What an eager interpreter cannot know: LLVM prefers, of two products, the one used less often; sums
inside `tl.sum(a * b)` contract within a thread; a bfloat16 product widened to float32, added and
narrowed again contracts in bfloat16; a product in another layout than the addition's may pass
through shared memory and lose its factors. There the lane's answer differs by one rounding.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.overlay import Patch
from bitproof.harness.targets import roundings as r


def multiply_add(x: r.Array, y: r.Array, z: r.Array, name: str) -> r.Array:
    """`x * y + z` rounded once, to nearest even; storage of the type named (fp16, bf16, fp32, fp64)."""
    if name == "fp64":
        return np.asarray(_fma64(x, y, z), dtype=np.float64)
    if name == "fp32":
        product = np.multiply(x, y, dtype=np.float64)
        total = product + z
        if _near_tie(total):
            total = _to_odd(total, product, z)
        return np.asarray(total.astype(np.float32))
    x, y, z = (r.f32_from_bf16(a) if name == "bf16" else a for a in (x, y, z))
    product = np.multiply(x, y, dtype=np.float64)
    addend = z.astype(np.float64)
    total = _to_odd(product + addend, product, addend)
    return r.bf16_from_f64(total) if name == "bf16" else r.f16_from_float(total)


def _near_tie(total: r.Array) -> bool:
    """Whether a float64 sum may decide a float32 rounding wrongly: exactly between two, or tiny."""
    low = total.view(np.uint64) & np.uint64(0x1FFFFFFF)
    tiny = (np.abs(total) < 2.0**-125) & (total != 0)
    return bool(((low == 0x10000000) | tiny).any())


def _to_odd(total: r.Array, product: r.Array, addend: r.Array) -> r.Array:
    """The float64 sum of an exact product and an addend, rounded "to odd" (see `roundings`).

    `total` is their rounded sum, whose error is known exactly (Knuth, TAOCP 2, 4.2.2, theorem B).
    """
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    step = np.where((error > 0) == (total > 0), 1, -1)
    # Infinities and NaN have a NaN error, which is neither above nor below zero.
    inexact = (error > 0) | (error < 0)
    return np.asarray(bits + np.where(inexact & (bits & 1 == 0), step, 0)).view(np.float64)


def _host_fma() -> Callable[..., Any]:
    function = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6").fma
    function.argtypes, function.restype = [ctypes.c_double] * 3, ctypes.c_double
    return np.frompyfunc(function, 3, 1)


_fma64 = _host_fma()


def patches() -> list[Patch]:
    """Products that remember their factors, and the operations that keep or use them."""
    builder = interpreter.InterpreterBuilder
    keeping = ("create_broadcast", "create_expand_dims", "create_reshape", "create_splat")
    return [
        Patch(TensorHandle, "factors", lambda _original: None),
        Patch(builder, "create_fmul", _wrap_multiply),
        Patch(builder, "create_fadd", _wrap_add),
        Patch(builder, "create_fsub", _wrap_subtract),
        Patch(builder, "create_fneg", _wrap_negate),
        *(Patch(builder, name, _wrap_keep) for name in keeping),
    ]


def _wrap_multiply(original: Callable[..., Any]) -> Callable[..., Any]:
    def multiply(self: Any, lhs: Any, rhs: Any) -> Any:
        result = original(self, lhs, rhs)
        if state.current is not None and state.current.fp_fusion:
            result.factors = (lhs.data, rhs.data)
        return result

    return multiply


def _wrap_add(original: Callable[..., Any]) -> Callable[..., Any]:
    def add(self: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.factors is not None:
            return _fuse(lhs.factors, rhs.data, rhs.dtype)
        if rhs.factors is not None:
            return _fuse(rhs.factors, lhs.data, lhs.dtype)
        return original(self, lhs, rhs)

    return add


def _wrap_subtract(original: Callable[..., Any]) -> Callable[..., Any]:
    def subtract(self: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.factors is not None:
            return _fuse(lhs.factors, _opposite(rhs.data), rhs.dtype)
        if rhs.factors is not None:
            x, y = rhs.factors
            return _fuse((_opposite(x), y), lhs.data, lhs.dtype)
        return original(self, lhs, rhs)

    return subtract


def _wrap_negate(original: Callable[..., Any]) -> Callable[..., Any]:
    def negate(self: Any, arg: Any) -> Any:
        result = original(self, arg)
        if arg.factors is not None:
            x, y = arg.factors
            result.factors = (_opposite(x), y)
        return result

    return negate


def _wrap_keep(original: Callable[..., Any]) -> Callable[..., Any]:
    def keep(self: Any, *operands: Any) -> Any:
        result = original(self, *operands)
        for i, operand in enumerate(operands):
            if getattr(operand, "factors", None) is not None:
                result.factors = tuple(
                    original(self, *operands[:i], alike, *operands[i + 1 :]).data
                    for alike in (TensorHandle(data, operand.dtype) for data in operand.factors)
                )
        return result

    return keep


def _fuse(factors: tuple[r.Array, r.Array], addend: r.Array, dtype: Any) -> Any:
    return TensorHandle(multiply_add(*factors, addend, dtype.scalar.name), dtype.scalar)


def _opposite(data: r.Array) -> r.Array:
    """The negative; 16-bit unsigned storage is bfloat16."""
    return data ^ np.uint16(0x8000) if data.dtype == np.uint16 else np.negative(data)
