"""`tl.clamp`, which compiles to one instruction where the bounds are seen to be opposite.

Usually it is `min(max(x, low), high)`, so that NaN becomes `low`. On sm_90, where `low` is seen to
be `-high`, it is `min.xorsign.abs`, so that NaN becomes `high` with NaN's sign (which fp16 has lost up
to triton 3.8, where it is converted to fp32 first). Seen are two constants, `0 - high` and, from triton
3.9, `-high` and bounds that are scalars; so a value remembers here that it is a constant, or the
negative of another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.errors import Unsupported
from bitproof.harness.lanes.interpreter.numerics.arithmetic import (
    greater,
    lesser,
    narrow,
    widen,
)
from bitproof.harness.lanes.interpreter.overlay import Patch, in_session
from bitproof.harness.targets import roundings as r
from bitproof.harness.targets.versions import release

_SEES_SCALARS = release(triton.__version__) >= (3, 9)


def clamp(x: r.Array, low: r.Array, high: r.Array, name: str, *, propagate_nan: bool) -> r.Array:
    """`min(max(x, low), high)`: NaN gives `low`, or NaN if `propagate_nan`."""
    raised = greater(x, low, name, propagate_nan=propagate_nan)
    return lesser(raised, high, name, propagate_nan=propagate_nan)


def clip(x: r.Array, high: r.Array, name: str, *, propagate_nan: bool) -> r.Array:
    """PTX `min.xorsign.abs`: the lesser magnitude, with the product of the signs."""
    a, b = widen(x, name), widen(high, name)
    magnitude = (np.minimum if propagate_nan else np.fmin)(np.abs(a), np.abs(b))
    negative = np.signbit(a) != np.signbit(b)
    return narrow(np.where(negative, -magnitude, magnitude), name)


def patches() -> list[Patch]:
    """The clamp, and what its bounds remember."""
    builder = interpreter.InterpreterBuilder
    constants = ("get_fp16", "get_bf16", "get_fp32", "get_fp64", "get_null_value")
    kept = ("cast_impl", "create_fp_to_fp", "create_broadcast", "create_expand_dims")
    return [
        Patch(TensorHandle, "constant", lambda _original: False),
        Patch(TensorHandle, "negative_of", lambda _original: None),
        Patch(TensorHandle, "spread_from", lambda _original: None),
        Patch(builder, "create_clampf", in_session(_clamp)),
        Patch(builder, "create_fsub", _wrap_subtract),
        Patch(builder, "create_fneg", _wrap_negate),
        *(Patch(builder, name, _wrap_constant) for name in constants),
        *(Patch(builder, name, _wrap_keep) for name in kept),
        Patch(builder, "create_splat", _wrap_splat),
    ]


def _clamp(_builder: Any, arg: Any, low: Any, high: Any, propagate_nans: Any) -> Any:
    dtype = arg.dtype.scalar
    propagate = propagate_nans == interpreter._ir.PROPAGATE_NAN.ALL
    if not _opposite(low, high):
        data = clamp(arg.data, low.data, high.data, dtype.name, propagate_nan=propagate)
    elif dtype.name == "fp64":
        raise Unsupported(
            "sm_90 and later cannot clip fp64 to +-constant: use tl.minimum, tl.maximum"
        )
    else:
        data = clip(arg.data, high.data, dtype.name, propagate_nan=propagate)
    return TensorHandle(data, dtype)


def _opposite(low: Any, high: Any) -> bool:
    """Whether the compiler sees that `low` is `-high`."""
    if low.constant and high.constant:
        name = low.dtype.scalar.name
        mirrored = (widen(low.data, name) == -widen(high.data, name)).all()
        return bool(mirrored) and (_SEES_SCALARS or low.spread_from is not None)
    if _SEES_SCALARS:
        low, high = low.spread_from or low, high.spread_from or high
        return low.negative_of is high
    return low.data.size > 1 and low.negative_of is high


def _wrap_constant(original: Callable[..., Any]) -> Callable[..., Any]:
    def constant(*args: Any) -> Any:
        result = original(*args)
        result.constant = True
        return result

    return constant


def _wrap_keep(original: Callable[..., Any]) -> Callable[..., Any]:
    def keep(self: Any, operand: Any, *options: Any) -> Any:
        result = original(self, operand, *options)
        result.constant = operand.constant
        return result

    return keep


def _wrap_splat(original: Callable[..., Any]) -> Callable[..., Any]:
    def spread(self: Any, block_type: Any, scalar: Any) -> Any:
        result = original(self, block_type, scalar)
        result.constant, result.spread_from = scalar.constant, scalar
        return result

    return spread


def _wrap_subtract(original: Callable[..., Any]) -> Callable[..., Any]:
    def subtract(self: Any, lhs: Any, rhs: Any) -> Any:
        result = original(self, lhs, rhs)
        if lhs.constant and not lhs.data.any():
            result.negative_of, result.constant = rhs, rhs.constant
        return result

    return subtract


def _wrap_negate(original: Callable[..., Any]) -> Callable[..., Any]:
    def negate(self: Any, arg: Any) -> Any:
        result = original(self, arg)
        result.constant = arg.constant
        if _SEES_SCALARS:
            result.negative_of = arg
        return result

    return negate
