"""One elementary function, or one conversion, of Triton on every element: what `bitproof functions` measures.

Functions go by the names of `oracles.elementary`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

# A program of the interpreter costs as much as a hundred thousand elements.
_BLOCKS = {"cuda": 1024, "cpu": 1 << 16}


def apply(name: str, operands: tuple[Tensor, ...]) -> Tensor:
    """The function `name` of fp32 operands [n], n a power of two: fp32 [n]."""
    out = torch.empty_like(operands[0])
    x, y, z = (*operands, *operands[:1] * (3 - len(operands)))
    block = min(_BLOCKS[out.device.type], out.numel())
    evaluate[(out.numel() // block,)](x, y, z, out, NAME=name, COUNT=len(operands), BLOCK=block)
    return out


def convert(x: Tensor, dtype: torch.dtype, rounding: str | None) -> Tensor:
    """`x` [n], n a power of two, as `dtype`; `rounding` is Triton's `fp_downcast_rounding`."""
    out = torch.empty_like(x, dtype=dtype)
    block = min(_BLOCKS[x.device.type], x.numel())
    cast[(x.numel() // block,)](x, out, ROUNDING=rounding, BLOCK=block)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def cast(x, out, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Every element of `x` to the type of `out`."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(out + i, a.to(out.dtype.element_ty, fp_downcast_rounding=ROUNDING))


@triton.jit  # type: ignore[untyped-decorator]
def evaluate(  # type: ignore[no-untyped-def]
    x, y, z, out, NAME: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr
):
    """The function NAME of the first COUNT operands, elementwise."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i)
    if COUNT == 1:
        r = of_one(a, NAME)
    if COUNT == 2:
        r = of_two(a, tl.load(y + i), NAME)
    if COUNT == 3:
        r = tl.fma(a, tl.load(y + i), tl.load(z + i))
    tl.store(out + i, r)


@triton.jit  # type: ignore[untyped-decorator]
def of_one(x, NAME: tl.constexpr):  # type: ignore[no-untyped-def]
    """A function of one argument."""
    if NAME == "exp":
        r = tl.exp(x)
    if NAME == "exp2":
        r = tl.exp2(x)
    if NAME == "log":
        r = tl.log(x)
    if NAME == "log2":
        r = tl.log2(x)
    if NAME == "sin":
        r = tl.sin(x)
    if NAME == "cos":
        r = tl.cos(x)
    if NAME == "erf":
        r = tl.erf(x)
    if NAME == "sqrt":
        r = tl.sqrt(x)
    if NAME == "sqrt_rn":
        r = tl.sqrt_rn(x)
    if NAME == "rsqrt":
        r = tl.rsqrt(x)
    if NAME == "sigmoid":
        r = tl.sigmoid(x)
    if NAME == "softmax of (x, 0)":
        m = tl.maximum(x, 0.0)
        e = tl.exp(x - m)
        r = e / (e + tl.exp(-m))
    if NAME == "abs":
        r = tl.abs(x)
    if NAME == "floor":
        r = tl.floor(x)
    if NAME == "ceil":
        r = tl.ceil(x)
    if NAME == "libdevice.acos":
        r = libdevice.acos(x)
    if NAME == "libdevice.acosh":
        r = libdevice.acosh(x)
    if NAME == "libdevice.asin":
        r = libdevice.asin(x)
    if NAME == "libdevice.asinh":
        r = libdevice.asinh(x)
    if NAME == "libdevice.atan":
        r = libdevice.atan(x)
    if NAME == "libdevice.atanh":
        r = libdevice.atanh(x)
    if NAME == "libdevice.cbrt":
        r = libdevice.cbrt(x)
    if NAME == "libdevice.cos":
        r = libdevice.cos(x)
    if NAME == "libdevice.cosh":
        r = libdevice.cosh(x)
    if NAME == "libdevice.erf":
        r = libdevice.erf(x)
    if NAME == "libdevice.erfc":
        r = libdevice.erfc(x)
    if NAME == "libdevice.exp":
        r = libdevice.exp(x)
    if NAME == "libdevice.exp10":
        r = libdevice.exp10(x)
    if NAME == "libdevice.exp2":
        r = libdevice.exp2(x)
    if NAME == "libdevice.expm1":
        r = libdevice.expm1(x)
    if NAME == "libdevice.log":
        r = libdevice.log(x)
    if NAME == "libdevice.log10":
        r = libdevice.log10(x)
    if NAME == "libdevice.log1p":
        r = libdevice.log1p(x)
    if NAME == "libdevice.log2":
        r = libdevice.log2(x)
    if NAME == "libdevice.rcbrt":
        r = libdevice.rcbrt(x)
    if NAME == "libdevice.rint":
        r = libdevice.rint(x)
    if NAME == "libdevice.round":
        r = libdevice.round(x)
    if NAME == "libdevice.rsqrt":
        r = libdevice.rsqrt(x)
    if NAME == "libdevice.sin":
        r = libdevice.sin(x)
    if NAME == "libdevice.sinh":
        r = libdevice.sinh(x)
    if NAME == "libdevice.sqrt":
        r = libdevice.sqrt(x)
    if NAME == "libdevice.tan":
        r = libdevice.tan(x)
    if NAME == "libdevice.tanh":
        r = libdevice.tanh(x)
    if NAME == "libdevice.trunc":
        r = libdevice.trunc(x)
    if NAME == "libdevice.fast_cosf":
        r = libdevice.fast_cosf(x)
    if NAME == "libdevice.fast_expf":
        r = libdevice.fast_expf(x)
    if NAME == "libdevice.fast_log10f":
        r = libdevice.fast_log10f(x)
    if NAME == "libdevice.fast_log2f":
        r = libdevice.fast_log2f(x)
    if NAME == "libdevice.fast_logf":
        r = libdevice.fast_logf(x)
    if NAME == "libdevice.fast_sinf":
        r = libdevice.fast_sinf(x)
    if NAME == "libdevice.fast_tanf":
        r = libdevice.fast_tanf(x)
    if NAME == "libdevice.fast_tanhf":
        r = libdevice.fast_tanhf(x)
    return r


@triton.jit  # type: ignore[untyped-decorator]
def of_two(x, y, NAME: tl.constexpr):  # type: ignore[no-untyped-def]
    """A function of two arguments."""
    if NAME == "x / y":
        r = x / y
    if NAME == "div_rn":
        r = tl.div_rn(x, y)
    if NAME == "libdevice.atan2":
        r = libdevice.atan2(x, y)
    if NAME == "libdevice.fast_dividef":
        r = libdevice.fast_dividef(x, y)
    if NAME == "libdevice.fast_powf":
        r = libdevice.fast_powf(x, y)
    if NAME == "libdevice.fmod":
        r = libdevice.fmod(x, y)
    if NAME == "libdevice.hypot":
        r = libdevice.hypot(x, y)
    if NAME == "libdevice.pow":
        r = libdevice.pow(x, y)
    return r
