"""How one number becomes another as sm_90 code rounds it: arrays in, arrays out, no Triton.

The interpreter stores bfloat16 as uint16 and the fp8 formats as uint8, and so do all functions
here: a *code* is such a bit pattern. The rules are those of PTX `cvt` (PTX ISA 8.7, "cvt"): to
nearest, ties to even; `satfinite` for fp8 (magnitudes beyond the greatest finite value, infinity
too, become that value; NaN becomes 0x7F); bfloat16 and float16 overflow to infinity and their NaN
is 0x7FFF.

A lane shares no rounding code with the oracle that judges it, so nothing here comes from `oracles`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CANONICAL_NAN_16 = 0x7FFF
CANONICAL_NAN_8 = 0x7F


def bf16_from_f32(x: Array) -> Array:
    """Round float32 to bfloat16 codes (uint16), to nearest even; NaN becomes 0x7FFF."""
    bits = x.view(np.uint32)
    codes = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
    return _mark_nan(codes, x)


def bf16_from_f32_toward_zero(x: Array) -> Array:
    """Truncate float32 to bfloat16 codes (uint16); NaN becomes 0x7FFF."""
    codes = (x.view(np.uint32) >> 16).astype(np.uint16)
    return _mark_nan(codes, x)


def f32_from_bf16(codes: Array) -> Array:
    """Widen bfloat16 codes (uint16) to float32, exactly."""
    return (codes.astype(np.uint32) << 16).view(np.float32)


def f32_from_f16(x: Array) -> Array:
    """float16 to float32: exact, every NaN the one positive NaN that a card's `cvt.f32.f16` gives."""
    wide = x.astype(np.float32)
    nan = np.isnan(wide)
    if nan.any():
        wide = np.where(nan, np.uint32(0x7FFFFFFF).view(np.float32), wide)
    return wide


def f16_from_float(x: Array) -> Array:
    """Round float32 or float64 to float16 once, to nearest even; NaN becomes 0x7FFF."""
    with np.errstate(all="ignore"):
        rounded = x.astype(np.float16)
    return _mark_nan(rounded.view(np.uint16), x).view(np.float16)


def f16_from_f32_toward_zero(x: Array) -> Array:
    """Truncate float32 to float16: finite values stay finite; NaN becomes 0x7FFF."""
    nearest = f16_from_float(x)
    with np.errstate(invalid="ignore"):
        too_far = np.abs(nearest.astype(np.float32)) > np.abs(x)
    return (nearest.view(np.uint16) - too_far.astype(np.uint16)).view(np.float16)


def f32_from_f64_to_odd(x: Array) -> Array:
    """Round float64 to float32 "to odd": rounding further, to 22 bits or fewer, then rounds once.

    An inexact result gets its last bit set (Boldo and Melquiond, "When double rounding is odd",
    2005).
    """
    with np.errstate(all="ignore"):
        nearest = x.astype(np.float32)
        away = np.abs(nearest.astype(np.float64)) > np.abs(x)
        inexact = nearest.astype(np.float64) != x
    bits = nearest.view(np.uint32)
    toward_zero = bits - away.astype(np.uint32)
    odd = np.where(np.isnan(x), bits, toward_zero | inexact.astype(np.uint32))
    return odd.astype(np.uint32).view(np.float32)


def bf16_from_f64(x: Array) -> Array:
    """Round float64 to bfloat16 codes (uint16) once, to nearest even; NaN becomes 0x7FFF."""
    return bf16_from_f32(f32_from_f64_to_odd(x))


def f64_from_int_to_odd(x: Array) -> Array:
    """Integers or bools as float64, those beyond 53 bits rounded "to odd" (see above)."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    negative = x < 0
    magnitude = np.where(negative, -x.astype(np.uint64), x.astype(np.uint64))
    sticky = (magnitude & np.uint64(0x7FF)) != 0
    shortened = (magnitude >> np.uint64(11)) | sticky
    large = magnitude >= np.uint64(2**53)
    value = np.where(
        large, np.ldexp(shortened.astype(np.float64), 11), magnitude.astype(np.float64)
    )
    return np.where(negative, -value, value)


def int_from_float(x: Array, dtype: np.dtype[Any]) -> Array:
    """Truncate a float to an integer, clamped to the type's range, as `cvt.rzi` does.

    NaN gives 0, or 1 << (bits - 1) where the source is float64 or the destination has 64 bits.
    There is no 8-bit form: those go through 16 bits, whose low byte is kept (300.0 -> 44).
    """
    if dtype.itemsize == 1:
        wide = np.dtype(np.int16 if dtype.kind == "i" else np.uint16)
        return int_from_float(x, wide).astype(dtype)
    limits = np.iinfo(dtype)
    # Both bounds are powers of two, hence exact; `top` is one past the greatest.
    bottom, top = float(limits.min), float(limits.max + 1)
    with np.errstate(all="ignore"):
        whole = np.trunc(x.astype(np.float64))
        inside = (whole >= bottom) & (whole < top)
        if inside.all():
            return whole.astype(dtype)
        clamped = np.where(whole >= top, limits.max, limits.min).astype(dtype)
        result = np.where(inside, np.where(inside, whole, 0.0).astype(dtype), clamped)
    if x.dtype == np.float64 or dtype.itemsize == 8:
        at_nan = np.uint64(1 << (8 * dtype.itemsize - 1)).astype(dtype)
    else:
        at_nan = dtype.type(0)
    return np.where(np.isnan(x), at_nan, result).astype(dtype)


def _mark_nan(codes: Array, x: Array) -> Array:
    nan = np.isnan(x)
    if nan.any():
        codes = np.where(nan, np.uint16(CANONICAL_NAN_16), codes)
    return codes


# The 8-bit formats: name -> (exponent bits, mantissa bits, greatest finite code).
FP8_FORMATS = {"fp8e4nv": (4, 3, 0x7E), "fp8e5": (5, 2, 0x7B)}


@cache
def f32_values_of_fp8(name: str) -> Array:
    """The 256 float32 values of an fp8 format, indexed by code; e4m3 has no infinity, e5m2 has."""
    exponent_bits, mantissa_bits, greatest = FP8_FORMATS[name]
    codes = np.arange(128)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    significand = mantissa + np.where(exponent > 0, 1 << mantissa_bits, 0)
    values = np.ldexp(
        significand.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa_bits
    )
    values[greatest + 1 :] = np.nan
    if name == "fp8e5":
        values[greatest + 1] = np.inf
    both = np.concatenate([values, -values]).astype(np.float32)
    both[np.isnan(both)] = np.nan
    return both


def f32_from_fp8(codes: Array, name: str) -> Array:
    """Widen fp8 codes (uint8) to float32, exactly."""
    return np.asarray(f32_values_of_fp8(name)[codes])


def bf16_from_e5m2(codes: Array) -> Array:
    """Widen e5m2 codes to bfloat16 codes as compiled code does.

    Triton shifts the exponent and multiplies by 2^112, so infinity and the NaN codes come out as
    the finite numbers that one more binade would hold (0x7C -> 65536, 0x7F -> 114688).
    """
    wide = codes.astype(np.uint16)
    scaled = f32_from_bf16((wide & 0x7F) << 5) * np.float32(2.0**112)
    return np.asarray(bf16_from_f32(scaled) | ((wide & 0x80) << 8))


@cache
def _fp8_table(name: str) -> Array:
    """fp8 codes of the 65 536 float32 values whose low 16 bits are zero, indexed by the high 16."""
    greatest = FP8_FORMATS[name][2]
    grid = f32_values_of_fp8(name)[: greatest + 1].astype(np.float64)
    high = np.arange(1 << 16, dtype=np.uint32)
    x = (high << 16).view(np.float32).astype(np.float64)
    magnitude = np.abs(x)
    midpoints = (grid[1:] + grid[:-1]) / 2
    below = np.searchsorted(midpoints, magnitude, side="left")
    above = np.searchsorted(midpoints, magnitude, side="right")
    even = np.where(below % 2 == 0, below, above)
    codes = even | ((high >> 15) << 7)
    return np.where(np.isnan(x), CANONICAL_NAN_8, codes).astype(np.uint8)


def fp8_from_f32(x: Array, name: str) -> Array:
    """Round float32 to fp8 codes (uint8), to nearest even, saturating; NaN becomes 0x7F."""
    bits = x.view(np.uint32)
    # 7 mantissa bits of which the last also says "something follows": enough to round to 3 or 2.
    high = (bits >> 16) | ((bits & 0xFFFF) != 0)
    return np.asarray(_fp8_table(name)[high])


def fp8_from_bf16(codes: Array, name: str) -> Array:
    """Round bfloat16 codes to fp8 codes, to nearest even, saturating; NaN becomes 0x7F."""
    return np.asarray(_fp8_table(name)[codes])


def e5m2_from_f32_toward_zero(x: Array) -> Array:
    """Truncate float32 to e5m2 codes as compiled code does, through truncated float16.

    Finite values stay finite, infinity stays infinity, NaN becomes 0x7F.
    """
    halves = f16_from_f32_toward_zero(x).view(np.uint16)
    return (halves >> 8).astype(np.uint8)
