"""CUDA's device library, which the interpreter does not have: its common functions, computed on the host.

Every function is evaluated in fp64 and rounded once to the operand's type, so that it is as close to
the true value as the type allows; NVIDIA's versions are within a few ulp of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from bitproof.harness.errors import Uncompilable, Unsupported
from bitproof.harness.lanes.interpreter import state

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "div_rn": np.divide,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "exp": np.exp,
    "exp10": lambda x: np.power(10.0, x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fast_cosf": np.cos,
    "fast_dividef": np.divide,
    "fast_expf": np.exp,
    "fast_log10f": np.log10,
    "fast_log2f": np.log2,
    "fast_logf": np.log,
    "fast_powf": np.power,
    "fast_sinf": np.sin,
    "fast_tanf": np.tan,
    "fast_tanhf": np.tanh,
    "finitef": np.isfinite,
    "floor": np.floor,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "isfinited": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "nearbyint": np.rint,
    "pow": np.power,
    "rint": np.rint,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}


def on_host(function: Any) -> Callable[..., Any]:
    """The host's version of a libdevice `function` during a session, `function` outside of one."""

    def call(*operands: Any, **named: Any) -> Any:
        if state.current is None:
            return function(*operands, **named)
        return _evaluate(function.__name__, operands)

    return call


def _evaluate(name: str, operands: tuple[Any, ...]) -> Any:
    compute = _FUNCTIONS.get(name)
    if compute is None:
        raise Unsupported(f"the interpreter has no libdevice.{name}: test this kernel on lane cuda")
    semantic = interpreter.interpreter_semantic
    blocks = [semantic.to_tensor(operand) for operand in operands]
    element = blocks[0].type.scalar
    if any(block.type.scalar not in (tl.float32, tl.float64) for block in blocks):
        raise Uncompilable(
            f"no target compiles libdevice.{name} of {element}, only of fp32 or fp64: convert its operand"
        )
    wide = compute(*(block.handle.data.astype(np.float64) for block in blocks))
    result = tl.int1 if wide.dtype == np.bool_ else element
    data = wide.astype(interpreter._get_np_dtype(result))
    handle = interpreter.TensorHandle(data, result)
    return tl.tensor(handle, tl.block_type(result, list(data.shape)) if blocks[0].shape else result)
