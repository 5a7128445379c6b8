"""Functions that compiled fp32 code approximates, as near as an exact evaluation can come to it.

The instructions around the approximate one are followed (`exp(x)` is `ex2(x * log2(e))`, whose product
is rounded; `.ftz` forms flush subnormals); the approximate instruction itself is evaluated in float64
and rounded once, so that what is left is its own error, listed in docs/interpreter.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.lanes.interpreter.overlay import Patch, in_session
from bitproof.harness.targets import roundings as r

_LOG2_E = np.uint32(0x3FB8AA3B).view(np.float32)
_SMALLEST_NORMAL = np.float32(2.0**-126)


def flush(x: r.Array) -> r.Array:
    """float32 with subnormals replaced by zeros of their sign, as `.ftz` does."""
    return np.where(np.abs(x) < _SMALLEST_NORMAL, np.copysign(np.float32(0), x), x)


def _in_float64(function: Callable[[r.Array], r.Array]) -> Callable[[r.Array], r.Array]:
    return lambda x: np.asarray(function(x.astype(np.float64)).astype(x.dtype))


def _erf(x: r.Array) -> r.Array:
    return np.asarray(torch.special.erf(torch.from_numpy(np.ascontiguousarray(x))).numpy())


_exp2 = _in_float64(np.exp2)
_rsqrt = _in_float64(lambda x: 1 / np.sqrt(x))

# What fp32 code computes; fp64 code is within an ulp or two of the plain function.
FP32: dict[str, Callable[[r.Array], r.Array]] = {
    "exp": lambda x: _exp2(x * _LOG2_E),
    "exp2": lambda x: flush(_exp2(flush(x))),
    "log": _in_float64(np.log),
    "log2": _in_float64(np.log2),
    "sin": _in_float64(np.sin),
    "cos": _in_float64(np.cos),
    "erf": _in_float64(_erf),
    "sqrt": lambda x: np.sqrt(flush(x)),
    "rsqrt": lambda x: _rsqrt(flush(x)),
    "floor": lambda x: np.floor(flush(x)),
    "ceil": lambda x: np.ceil(flush(x)),
}
FP64: dict[str, Callable[[r.Array], r.Array]] = {
    **{name: getattr(np, name) for name in FP32 if name not in ("erf", "rsqrt")},
    "erf": _erf,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def _method(name: str) -> Callable[..., Any]:
    single, double = FP32[name], FP64[name]

    def evaluate(_builder: Any, arg: Any) -> Any:
        function = single if arg.data.dtype == np.float32 else double
        return TensorHandle(function(arg.data), arg.dtype.scalar)

    return evaluate


def patches() -> list[Patch]:
    """Elementary functions of the builder."""
    builder = interpreter.InterpreterBuilder
    return [Patch(builder, f"create_{name}", in_session(_method(name))) for name in FP32]
