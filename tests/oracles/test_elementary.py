"""Elementary functions in float64 against mpmath, to a few units in the last place of float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch

from bitproof.harness.generators import hash_words, words_to_fp32
from bitproof.oracles.elementary import FUNCTIONS

# 2^-26 of an ulp of fp32, which is at least 2^-24 of the value.
TOLERANCE = 2.0**-50

EXACT: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "acos": mpmath.acos,
    "acosh": mpmath.acosh,
    "asin": mpmath.asin,
    "asinh": mpmath.asinh,
    "atan": mpmath.atan,
    "atan2": mpmath.atan2,
    "atanh": mpmath.atanh,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "ceil": mpmath.ceil,
    "cosf": mpmath.cos,
    "cos": mpmath.cos,
    "cosh": mpmath.cosh,
    "div_rn": lambda x, y: x / y,
    "dividef": lambda x, y: x / y,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "exp": mpmath.exp,
    "exp10": lambda x: mpmath.mpf(10) ** x,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "expf": mpmath.exp,
    "expm1": mpmath.expm1,
    "floor": mpmath.floor,
    "fma": lambda x, y, z: x * y + z,
    "fmod": lambda x, y: mpmath.sign(x) * (abs(x) % abs(y)),
    "hypot": mpmath.hypot,
    "log": mpmath.log,
    "log10": mpmath.log10,
    "log10f": mpmath.log10,
    "log1p": mpmath.log1p,
    "log2": lambda x: mpmath.log(x, 2),
    "log2f": lambda x: mpmath.log(x, 2),
    "logf": mpmath.log,
    "pow": lambda x, y: x**y,
    "powf": lambda x, y: x**y,
    "rcbrt": lambda x: mpmath.sign(x) / mpmath.cbrt(abs(x)),
    "rint": mpmath.nint,
    "round": lambda x: mpmath.sign(x) * mpmath.floor(abs(x) + 0.5),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "sin": mpmath.sin,
    "sinf": mpmath.sin,
    "sinh": mpmath.sinh,
    "softmax of (x, 0)": lambda x: 1 / (1 + mpmath.exp(-x)),
    "sqrt": mpmath.sqrt,
    "sqrt_rn": mpmath.sqrt,
    "tan": mpmath.tan,
    "tanf": mpmath.tan,
    "tanh": mpmath.tanh,
    "tanhf": mpmath.tanh,
    "trunc": lambda x: mpmath.sign(x) * mpmath.floor(abs(x)),
    "x / y": lambda x, y: x / y,
}


def exact(name: str, *operands: float) -> Any:
    """The value of a function in 80 digits, or None where it is no real number."""
    function = EXACT[name.removeprefix("libdevice.").removeprefix("fast_")]
    with mpmath.workdps(80):
        try:
            value = function(*(mpmath.mpf(operand) for operand in operands))
        except (ZeroDivisionError, ValueError):
            return None
        return value if isinstance(value, mpmath.mpf) and mpmath.isfinite(value) else None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_in_float64_is_exact_to_a_few_units(name: str) -> None:
    """Arguments of every magnitude, and near 1; no result is near enough to a pole for mpmath to mind."""
    count, function = FUNCTIONS[name]
    operands = []
    for place in range(count):
        words = hash_words(7 + place, 0, 64, torch.device("cpu"))
        near = (words & 0x807F_FFFF) | ((120 + (words >> 23 & 7)) << 23)
        operands.append(torch.cat([words_to_fp32(words), words_to_fp32(near)]).double())
    compared = 0
    for *arguments, value in zip(
        *(o.tolist() for o in operands), function(*operands).tolist(), strict=True
    ):
        right = exact(name, *arguments)
        # What float64 cannot hold is no part of the claim, nor a sum that cancels further than fp32 goes.
        if right is None or not 1e-300 < abs(right) < 1e300:
            continue
        compared += 1
        assert abs((value - right) / right) <= TOLERANCE, (name, arguments)
    assert compared >= 20
