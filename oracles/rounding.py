"""Rounding to a small float format, answered twice.

The first answer is integer arithmetic on the input's bit pattern, written here for every format and
rounding. The second is ml_dtypes (numpy for fp16), asked wherever it has the conversion. Where both
answer they must agree bit for bit, NaN payloads aside; otherwise `OracleDisagreement` is raised and
no answer is given.

What happens above the largest finite value belongs to a kernel's contract, not to a library, so
that it is an argument. Rounding is decided first, with an unbounded exponent (IEEE 754-2019 §4.3
and §7.4): 464 is e4m3's tie between 448 and the missing 480, and goes to the even 448 under any
policy.

NaN gives the format's canonical NaN with the input's sign (none in fnuz and e8m0), payload dropped.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bitproof.oracles.formats import Array, Floats, Format, Specials, bits, decode, is_nan

Mode: TypeAlias = Literal["rne", "rz", "half_away"]
Overflow: TypeAlias = Literal["saturate", "nan", "inf"]

# What ml_dtypes and numpy do above the largest finite value, by the kind of special values.
_NATIVE_OVERFLOW: Final[Mapping[Specials, Overflow]] = {
    "ieee": "inf",
    "fn": "nan",
    "fnuz": "nan",
    "finite": "saturate",
    "exponent": "nan",
}
# Elements rounded at a time, so that the dozen temporaries stay in cache.
_BLOCK: Final = 1 << 15


class OracleDisagreement(AssertionError):
    """The integer rounding and ml_dtypes gave different codes: one of the oracles is wrong."""


def round_to(
    x: npt.ArrayLike, fmt: Format, *, mode: Mode = "rne", overflow: Overflow = "saturate"
) -> Array:
    """The codes of `x` rounded to `fmt`: x's shape, in the format's storage type.

    `x` is fp32, fp64, fp16 or bf16 (the last two widened exactly), any shape.
    Modes: `rne` to nearest, ties to even (in e8m0, where every significand is odd, to the larger:
    IEEE 754-2019 §4.3.1); `rz` toward zero; `half_away` to nearest, ties away from zero.
    Overflow: `saturate` gives the largest finite value of x's sign, for infinite x too; `nan` a
    NaN; `inf` an infinity. With `rz` a finite x never overflows (IEEE 754-2019 §7.4).
    The sign of a zero is kept. e8m0 has neither zero nor sign: zero and negative x are NaN there,
    and a positive x below 2^-127 gives 2^-127.

    ValueError: a format without infinity under `inf`, or without NaN under `nan`; a NaN in `x` for
    a format without NaN; an x of another type; subnormals flushed in this process.
    OracleDisagreement: see the module.
    """
    require_policy(fmt, mode, overflow)
    require_subnormals()
    values = widen(np.asarray(x))
    flat = values.reshape(-1)
    codes = np.empty(flat.shape, dtype=fmt.storage)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        rounded = _by_integers(block, fmt, mode, overflow)
        if mode == "rne" and block.dtype == np.float32:
            _confirm(block, rounded, fmt, overflow)
        codes[start : start + _BLOCK] = rounded
    return codes.reshape(values.shape)


def round_value(
    x: npt.ArrayLike, fmt: Format, *, mode: Mode = "rne", overflow: Overflow = "saturate"
) -> Floats:
    """The values of `round_to`, exact in float64."""
    return decode(round_to(x, fmt, mode=mode, overflow=overflow), fmt)


def require_policy(fmt: Format, mode: Mode, overflow: Overflow) -> None:
    """ValueError for a rounding mode or overflow policy that does not exist, or not in `fmt`."""
    if mode not in ("rne", "rz", "half_away"):
        raise ValueError(f"there is no rounding mode {mode!r}; use rne, rz or half_away")
    if overflow not in ("saturate", "nan", "inf"):
        raise ValueError(f"there is no overflow policy {overflow!r}; use saturate, nan or inf")
    if (overflow == "inf" and fmt.infinity is None) or (overflow == "nan" and fmt.nan is None):
        raise ValueError(f"{fmt.name} has no {overflow} to overflow to; choose another policy")


def require_subnormals() -> None:
    """ValueError where this thread flushes subnormals, which makes every oracle wrong."""
    smallest_normal = np.float32(2.0**-126)
    if smallest_normal * np.float32(0.5) * np.float32(2.0) != smallest_normal:
        raise ValueError(
            "subnormals are flushed to zero in this process, so that no oracle can be right; "
            "call torch.set_flush_denormal(False) first"
        )


def widen(array: Array) -> Array:
    """fp16 and bf16 as fp32, exactly; fp32 and fp64 as they are; ValueError for another type."""
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype == np.float16:
        with np.errstate(invalid="ignore"):
            return array.astype(np.float32)
    if array.dtype.name == "bfloat16":
        return (bits(array).astype(np.uint32) << np.uint32(16)).view(np.float32)
    raise ValueError(f"cannot round {array.dtype}; pass fp32, fp64, fp16 or bf16")


def _by_integers(values: Array, fmt: Format, mode: Mode, overflow: Overflow) -> Array:
    """Shift the significand to the target's last place, round it there, let its carry run.

    With m the target's mantissa bits and c the input's exponent, or the smallest normal exponent of
    the target if that is larger, the code without sign is

        ((c - smallest normal exponent) << m) + round(|x| / 2^(c - m))

    The rounded significand of a normal number holds the implicit bit, which makes up for the field
    of the smallest normal exponent being 1; a subnormal number's does not, and its field is 0; a
    carry out of the mantissa is one more in the exponent field.
    """
    if fmt.specials == "exponent" or fmt.mantissa_bits >= 23:
        # In fp64 every fp32 input is normal, and at least one bit is shifted out.
        with np.errstate(invalid="ignore"):
            values = values.astype(np.float64)
    word: Any = np.uint32 if values.dtype == np.float32 else np.uint64
    mantissa, bias = (23, 127) if word is np.uint32 else (52, 1023)
    infinity = word((2 * bias + 1) << mantissa)
    pattern = values.view(word)
    top = word(8 * values.itemsize - 1)
    magnitude = pattern & word((1 << int(top)) - 1)
    if fmt.nan is None and (magnitude > infinity).any():
        first = int(pattern[magnitude > infinity][0])
        raise ValueError(f"{fmt.name} has no NaN but an input is {first:#x}; handle NaN before")

    field = magnitude >> word(mantissa)
    fraction = magnitude & word((1 << mantissa) - 1)
    significand = fraction | (np.minimum(field, word(1)) << word(mantissa))
    base = word(fmt.minimum_exponent + bias)
    binade = np.maximum(field, base)
    # A subnormal input has no implicit bit and the exponent of field 1.
    shift = binade - np.maximum(field, word(1)) + word(mantissa - fmt.mantissa_bits)
    # From this shift on, every significand is below a quarter of the last place.
    shift = np.minimum(shift, word(mantissa + 3))
    code = ((binade - base) << word(fmt.mantissa_bits)) + _shift_and_round(
        significand, shift, mode, word
    )

    if fmt.specials == "exponent":
        # No subnormals: field 0 is the smallest exponent, and only zero is below it.
        code = np.maximum(code, word(1)) - word(1)

    largest = word(fmt.largest_code)
    if overflow == "saturate":
        code = np.minimum(code, largest)
    else:
        over = magnitude == infinity if mode == "rz" else code > largest
        beyond = fmt.infinity if overflow == "inf" else fmt.nan
        code = np.where(over, word(beyond), np.minimum(code, largest))
    if fmt.nan is not None:
        code = np.where(magnitude > infinity, word(fmt.nan), code)
    sign = pattern >> top
    if fmt.specials == "exponent":
        code = np.where((magnitude == 0) | (sign != 0), word(fmt.nan), code)
    elif fmt.specials == "fnuz":
        code = np.where(code == 0, code, code | (sign << word(fmt.bits - 1)))
    else:
        code |= sign << word(fmt.bits - 1)
    codes: Array = code.astype(fmt.storage)
    return codes


def _shift_and_round(significand: Array, shift: Array, mode: Mode, word: Any) -> Array:
    """significand / 2^shift rounded to an integer, for shifts of at least 1."""
    one = word(1)
    if mode == "rz":
        shifted: Array = significand >> shift
        return shifted
    half = (one << shift) >> one
    if mode == "rne":
        # A tie goes up only from an odd quotient.
        half = half - one + ((significand >> shift) & one)
    rounded: Array = (significand + half) >> shift
    return rounded


def _confirm(values: Array, codes: Array, fmt: Format, overflow: Overflow) -> None:
    """Ask ml_dtypes the same where it can be asked, and raise OracleDisagreement if it differs."""
    if overflow not in ("saturate", _NATIVE_OVERFLOW[fmt.specials]):
        return
    with np.errstate(all="ignore"):
        if overflow == "saturate":
            # Clamping first leaves nothing to overflow; NaN passes through.
            largest = np.float32(fmt.largest)
            values = np.minimum(np.maximum(values, -largest), largest)
        other = bits(values.astype(fmt.numpy_dtype))
    wrong = other != codes
    if fmt.specials == "exponent":
        # ml_dtypes 0.6 sends everything between 2^-127 and 2^-126 up, so that it has no say there.
        wrong &= np.abs(values) >= np.float32(2.0**-126)
    if wrong.any():
        wrong &= ~(is_nan(other, fmt) & is_nan(codes, fmt))
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise OracleDisagreement(
                f"fp32 {int(bits(values)[first]):#010x} to {fmt.name} is {int(codes[first]):#x} in "
                f"integer arithmetic and {int(other[first]):#x} in {fmt.numpy_dtype}; "
                f"{int(wrong.sum())} of {values.size} inputs differ"
            )
