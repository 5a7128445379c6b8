"""Binary number formats: what every code of every small float means, exactly.

A format is data (field widths, bias, which special values it has) and everything else here is
integer arithmetic on that data: the values of its codes, the midpoints where a rounding changes its
mind, the distance between two codes in units in the last place. A code is kept in the narrowest
unsigned integer that holds it, one code to an element, in the low bits.

Sources: IEEE 754-2019 (fp16, fp32), OCP 8-bit Floating Point Specification 1.0 (e4m3, e5m2), OCP
Microscaling Formats 1.0 (e2m1, e3m2, e2m3, e8m0), arXiv 2206.02915 (the fnuz formats).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Specials: TypeAlias = Literal["ieee", "fn", "fnuz", "finite", "exponent"]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A binary floating-point format: sign, exponent and mantissa fields, most significant first.

    `specials` says which codes are not ordinary numbers:
    `ieee`: infinities and NaN at the largest exponent;
    `fn`: no infinity, NaN where all bits but the sign are ones;
    `fnuz`: no infinity and no negative zero, whose code is the NaN;
    `finite`: every code is a number;
    `exponent`: unsigned powers of two without a zero, NaN at all ones.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: Specials

    @cached_property
    def bits(self) -> int:
        """Bits of one code; the storage element may be wider."""
        return self.exponent_bits + self.mantissa_bits + (self.specials != "exponent")

    @cached_property
    def storage(self) -> np.dtype[Any]:
        """The unsigned integer type a code is stored in: uint8, uint16 or uint32."""
        return np.dtype(f"u{max(1, self.bits // 8)}")

    @cached_property
    def sign_bit(self) -> int:
        """The sign's bit of a code; 0 for a format without sign."""
        return 0 if self.specials == "exponent" else 1 << (self.bits - 1)

    @cached_property
    def magnitude_mask(self) -> int:
        """All bits of a code but the sign."""
        return (1 << (self.exponent_bits + self.mantissa_bits)) - 1

    @cached_property
    def minimum_exponent(self) -> int:
        """The exponent of the smallest normal number."""
        return (0 if self.specials == "exponent" else 1) - self.bias

    @cached_property
    def infinity(self) -> int | None:
        """The code of +infinity, None where the format has none."""
        if self.specials != "ieee":
            return None
        return self.magnitude_mask >> self.mantissa_bits << self.mantissa_bits

    @cached_property
    def nan(self) -> int | None:
        """The code of the canonical (quiet, positive) NaN, None where the format has none."""
        if self.specials == "finite":
            return None
        if self.specials == "fnuz":
            return self.sign_bit
        if self.infinity is not None:
            return self.infinity | 1 << (self.mantissa_bits - 1)
        return self.magnitude_mask

    @cached_property
    def largest_code(self) -> int:
        """The code of the largest finite value."""
        if self.infinity is not None:
            return self.infinity - 1
        return self.magnitude_mask - (self.specials in ("fn", "exponent"))

    @cached_property
    def largest(self) -> float:
        """The largest finite value."""
        return float(_value(np.array(self.largest_code), self))

    @cached_property
    def beyond(self) -> float:
        """From where rounding to nearest leaves the range: half a step past the largest value."""
        step = math.ldexp(1.0, math.frexp(self.largest)[1] - 1 - self.mantissa_bits)
        return self.largest + step / 2

    @cached_property
    def smallest(self) -> float:
        """The smallest positive value: the smallest subnormal, or 2^-127 in e8m0."""
        return float(_value(np.array(0 if self.specials == "exponent" else 1), self))

    @cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The numpy or ml_dtypes type of this format, one code to an element."""
        return np.dtype(_NUMPY[self.name])

    @cached_property
    def torch_dtype(self) -> torch.dtype | None:
        """The torch type of this format, None where torch has no unpacked one."""
        return _TORCH.get(self.name)


E4M3 = Format(name="e4m3", exponent_bits=4, mantissa_bits=3, bias=7, specials="fn")
E5M2 = Format(name="e5m2", exponent_bits=5, mantissa_bits=2, bias=15, specials="ieee")
BF16 = Format(name="bf16", exponent_bits=8, mantissa_bits=7, bias=127, specials="ieee")
FP16 = Format(name="fp16", exponent_bits=5, mantissa_bits=10, bias=15, specials="ieee")
FP32 = Format(name="fp32", exponent_bits=8, mantissa_bits=23, bias=127, specials="ieee")
E2M1 = Format(name="e2m1", exponent_bits=2, mantissa_bits=1, bias=1, specials="finite")
E3M2 = Format(name="e3m2", exponent_bits=3, mantissa_bits=2, bias=3, specials="finite")
E2M3 = Format(name="e2m3", exponent_bits=2, mantissa_bits=3, bias=1, specials="finite")
E8M0 = Format(name="e8m0", exponent_bits=8, mantissa_bits=0, bias=127, specials="exponent")
E4M3FNUZ = Format(name="e4m3fnuz", exponent_bits=4, mantissa_bits=3, bias=8, specials="fnuz")
E5M2FNUZ = Format(name="e5m2fnuz", exponent_bits=5, mantissa_bits=2, bias=16, specials="fnuz")

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        fmt.name: fmt
        for fmt in (E4M3, E5M2, BF16, FP16, FP32, E2M1, E3M2, E2M3, E8M0, E4M3FNUZ, E5M2FNUZ)
    }
)

_NUMPY: Mapping[str, type] = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "fp32": np.float32,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
_TORCH: Mapping[str, torch.dtype] = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "e8m0": torch.float8_e8m0fnu,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
}
_OF_DTYPE: Mapping[object, Format] = {
    **{np.dtype(dtype): FORMATS[name] for name, dtype in _NUMPY.items()},
    **{dtype: FORMATS[name] for name, dtype in _TORCH.items()},
}
_TORCH_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def by_name(name: str) -> Format:
    """The format called `name`, for instance "e4m3"; ValueError names the known ones."""
    try:
        return FORMATS[name]
    except KeyError:
        known = ", ".join(FORMATS)
        raise ValueError(f"there is no format named {name!r}; use one of {known}") from None


def of_dtype(dtype: npt.DTypeLike | torch.dtype) -> Format:
    """The format of a numpy, ml_dtypes or torch type; ValueError where it is none of ours."""
    fmt = _OF_DTYPE.get(dtype if isinstance(dtype, torch.dtype) else np.dtype(dtype))
    if fmt is None:
        known = ", ".join(FORMATS)
        raise ValueError(f"{dtype} is not the type of a known format; convert to one of {known}")
    return fmt


def to_numpy(tensor: torch.Tensor) -> Array:
    """The same bits as a numpy array, ml_dtypes types included, whatever the device and strides.

    No value is converted. A CPU tensor shares its memory with the result.
    """
    tensor = tensor.detach()
    fmt = _OF_DTYPE.get(tensor.dtype)
    if fmt is None:
        array: Array = tensor.cpu().numpy()
        return array
    integers = tensor.view(_TORCH_INTEGERS[tensor.element_size()])
    return integers.cpu().numpy().view(fmt.numpy_dtype)


def bits(values: Array | torch.Tensor) -> Array:
    """The bit patterns of floats or integers, as unsigned integers of the same width."""
    array = to_numpy(values) if isinstance(values, torch.Tensor) else values
    return array.view(f"u{array.dtype.itemsize}")


def from_bits(codes: Array, fmt: Format) -> Array:
    """Codes, in the storage type of `fmt`, seen as an array of its numpy or ml_dtypes type."""
    if codes.dtype != fmt.storage:
        raise ValueError(
            f"codes of {fmt.name} are {fmt.storage} but these are {codes.dtype}; cast them first"
        )
    return codes.view(fmt.numpy_dtype)


def is_nan(codes: Array, fmt: Format) -> npt.NDArray[np.bool_]:
    """Which codes are a NaN of `fmt`, whatever the payload and sign."""
    result: npt.NDArray[np.bool_]
    if fmt.nan is None:
        result = np.zeros(codes.shape, dtype=np.bool_)
    elif fmt.infinity is not None:
        result = (codes & fmt.storage.type(fmt.magnitude_mask)) > fmt.infinity
    elif fmt.specials == "fn":
        result = (codes & fmt.storage.type(fmt.magnitude_mask)) == fmt.nan
    else:
        result = codes == fmt.nan
    return result


def decode(codes: Array, fmt: Format) -> Floats:
    """The value of every code, exactly, in float64; any shape."""
    codes = np.asarray(codes)
    if fmt.bits > 16:
        return _value(codes, fmt)
    # Some storage bits are unused in the 4- and 6-bit formats, and a set one is a mistake.
    if fmt.bits < 8 and codes.size and int(codes.max()) >= 1 << fmt.bits:
        raise ValueError(
            f"{int(codes.max()):#x} is no {fmt.name} code, which has {fmt.bits} bits; unpack first"
        )
    values: Floats = _values(fmt)[codes]
    return values


@cache
def grid(fmt: Format) -> Floats:
    """Every finite value once, ascending: [n] float64, read-only; formats of up to 16 bits."""
    values = _values(fmt)
    finite = np.unique(values[np.isfinite(values)])
    finite.flags.writeable = False
    return finite


@cache
def midpoints(fmt: Format) -> Floats:
    """The points halfway between neighbours of `grid`: [n-1] float64, exact, read-only."""
    values = grid(fmt)
    # The sum needs one bit more than a significand has, far below float64's 53.
    middle = (values[:-1] + values[1:]) * 0.5
    middle.flags.writeable = False
    return middle


def ulp_distance(left: Array, right: Array, fmt: Format) -> npt.NDArray[np.int64]:
    """How many representable values lie between two codes, elementwise, as int64.

    -0 and +0 are at distance 0 (see `zero_signs_differ`), an infinity is one step beyond the
    largest finite value. Two NaNs are at distance 0; a NaN and a number at 2^bits, farther than any
    two numbers.
    """
    distance = np.abs(_ordinal(left, fmt) - _ordinal(right, fmt))
    left_nan, right_nan = is_nan(left, fmt), is_nan(right, fmt)
    result: npt.NDArray[np.int64] = np.where(
        left_nan | right_nan, np.where(left_nan & right_nan, 0, 1 << fmt.bits), distance
    )
    return result


def zero_signs_differ(left: Array, right: Array, fmt: Format) -> npt.NDArray[np.bool_]:
    """Where one code is +0 and the other -0, the difference that `ulp_distance` does not count."""
    if fmt.specials in ("exponent", "fnuz"):
        return np.zeros(np.broadcast_shapes(left.shape, right.shape), dtype=np.bool_)
    magnitude = fmt.storage.type(fmt.magnitude_mask)
    result: npt.NDArray[np.bool_] = (((left | right) & magnitude) == 0) & (left != right)
    return result


def _ordinal(codes: Array, fmt: Format) -> npt.NDArray[np.int64]:
    magnitude = codes.astype(np.int64) & fmt.magnitude_mask
    if not fmt.sign_bit:
        return magnitude
    return np.where(codes & fmt.storage.type(fmt.sign_bit), -magnitude, magnitude)


@cache
def _values(fmt: Format) -> Floats:
    if fmt.bits > 16:
        raise ValueError(f"{fmt.name} has 2^{fmt.bits} codes, too many to list; use decode")
    values = _value(np.arange(1 << fmt.bits), fmt)
    values.flags.writeable = False
    return values


def _value(codes: Array, fmt: Format) -> Floats:
    """The definition: (-1)^sign · significand · 2^(exponent - bias - mantissa bits)."""
    code = codes.astype(np.int64)
    magnitude = code & fmt.magnitude_mask
    exponent = magnitude >> fmt.mantissa_bits
    significand = magnitude & ((1 << fmt.mantissa_bits) - 1)
    if fmt.specials == "exponent":
        significand, power = np.ones_like(code), exponent - fmt.bias
    else:
        significand = significand | (exponent > 0).astype(np.int64) << fmt.mantissa_bits
        power = np.maximum(exponent, 1) - fmt.bias - fmt.mantissa_bits
    # A significand is below 2^24 and the smallest power 2^-149, so that ldexp is exact.
    values: Floats = np.ldexp(significand.astype(np.float64), power)
    values = np.where(code & fmt.sign_bit, -values, values)
    if fmt.infinity is not None:
        values = np.where(magnitude == fmt.infinity, np.copysign(np.inf, values), values)
    return np.where(is_nan(code.astype(fmt.storage), fmt), np.nan, values)
