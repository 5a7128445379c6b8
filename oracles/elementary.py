"""Elementary functions in float64, on whatever device their arguments are.

Each is within a few units in the last place of float64, as torch and CUDA document theirs: 2^-26 of one of
fp32. So an error that is measured against them in ulps of fp32 is right to six digits. Arguments are exact
values of fp32, and are taken as exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

Function = Callable[..., Tensor]


def fma(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """x * y + z of fp32 values: the product is exact in float64, the sum is rounded once."""
    return x * y + z


def softmax_beside_zero(x: Tensor) -> Tensor:
    """The first of softmax(x, 0), which subtracts the maximum: NaN where x is infinity."""
    return torch.where(x == torch.inf, torch.nan, torch.sigmoid(x))


def round_away(x: Tensor) -> Tensor:
    """To the nearest integer, ties away from zero; exact for values of fp32."""
    return torch.copysign(torch.floor(x.abs() + 0.5), x)


def cbrt(x: Tensor) -> Tensor:
    """The cube root of either sign; a step of Newton's makes up for the rounded exponent."""
    root = x.abs() ** (1 / 3)
    better = root - (root * root * root - x.abs()) / (3 * root * root)
    return torch.copysign(torch.where(better.isfinite(), better, root), x)


def rcbrt(x: Tensor) -> Tensor:
    """One over the cube root."""
    return 1 / cbrt(x)


# In the order of the page: those of `triton.language` first, then those of its device library.
_OF_ONE: Mapping[str, Function] = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "log2": torch.log2,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "sqrt": torch.sqrt,
    "sqrt_rn": torch.sqrt,
    "rsqrt": lambda x: 1 / torch.sqrt(x),
    "sigmoid": torch.sigmoid,
    "softmax of (x, 0)": softmax_beside_zero,
    "abs": torch.abs,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "libdevice.acos": torch.acos,
    "libdevice.acosh": torch.acosh,
    "libdevice.asin": torch.asin,
    "libdevice.asinh": torch.asinh,
    "libdevice.atan": torch.atan,
    "libdevice.atanh": torch.atanh,
    "libdevice.cbrt": cbrt,
    "libdevice.cos": torch.cos,
    "libdevice.cosh": torch.cosh,
    "libdevice.erf": torch.erf,
    "libdevice.erfc": torch.erfc,
    "libdevice.exp": torch.exp,
    "libdevice.exp10": lambda x: 10.0**x,
    "libdevice.exp2": torch.exp2,
    "libdevice.expm1": torch.expm1,
    "libdevice.log": torch.log,
    "libdevice.log10": torch.log10,
    "libdevice.log1p": torch.log1p,
    "libdevice.log2": torch.log2,
    "libdevice.rcbrt": rcbrt,
    "libdevice.rint": torch.round,
    "libdevice.round": round_away,
    "libdevice.rsqrt": lambda x: 1 / torch.sqrt(x),
    "libdevice.sin": torch.sin,
    "libdevice.sinh": torch.sinh,
    "libdevice.sqrt": torch.sqrt,
    "libdevice.tan": torch.tan,
    "libdevice.tanh": torch.tanh,
    "libdevice.trunc": torch.trunc,
    "libdevice.fast_cosf": torch.cos,
    "libdevice.fast_expf": torch.exp,
    "libdevice.fast_log10f": torch.log10,
    "libdevice.fast_log2f": torch.log2,
    "libdevice.fast_logf": torch.log,
    "libdevice.fast_sinf": torch.sin,
    "libdevice.fast_tanf": torch.tan,
    "libdevice.fast_tanhf": torch.tanh,
}
_OF_TWO: Mapping[str, Function] = {
    "x / y": torch.divide,
    "div_rn": torch.divide,
    "libdevice.atan2": torch.atan2,
    "libdevice.fast_dividef": torch.divide,
    "libdevice.fast_powf": torch.pow,
    "libdevice.fmod": torch.fmod,
    "libdevice.hypot": torch.hypot,
    "libdevice.pow": torch.pow,
}
_OF_THREE: Mapping[str, Function] = {"fma": fma}

# How many arguments each function takes, and the function.
FUNCTIONS: Mapping[str, tuple[int, Function]] = MappingProxyType(
    {
        name: (count, function)
        for count, functions in ((1, _OF_ONE), (2, _OF_TWO), (3, _OF_THREE))
        for name, function in functions.items()
    }
)
