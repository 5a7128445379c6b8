"""Rounding and quantising one element at a time in exact rational arithmetic.

Written from the contracts and shared with nothing: no bit patterns, no arrays, no floating-point
operation other than reading a number. Far too slow to be an oracle, which is what makes it a check
on them. A number is a Python float that holds an fp32 value, so that NaN, infinities and the sign of
a zero travel; every operation on finite numbers goes through `Fraction`.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from bitproof.oracles.formats import E2M1, E4M3, FP16, FP32, Format

NAN_CODE = {"e4m3": 0x7F, "e5m2": 0x7E, "e4m3fnuz": 0x80, "e5m2fnuz": 0x80}


@cache
def magnitudes(fmt: Format) -> tuple[Fraction, ...]:
    """The finite values that are not negative, by code, from the definition of the fields."""
    values = []
    for code in range(1 << (fmt.exponent_bits + fmt.mantissa_bits)):
        field, fraction = divmod(code, 1 << fmt.mantissa_bits)
        normal = field > 0
        significand = fraction + (1 << fmt.mantissa_bits if normal else 0)
        power = max(field, 1) - fmt.bias - fmt.mantissa_bits
        values.append(Fraction(significand) * Fraction(2) ** power)
    last = {"ieee": -(1 << fmt.mantissa_bits), "fn": -1}.get(fmt.specials)
    return tuple(values[:last])


def nearest_code(value: Fraction, fmt: Format) -> int:
    """The code nearest to a value that is not negative, the even one of two; saturating."""
    values = magnitudes(fmt)
    return min(range(len(values)), key=lambda code: (abs(values[code] - value), code & 1))


def code_of(x: float, fmt: Format) -> int:
    """`nearest_code` with a sign, a NaN and infinities, which saturate."""
    if math.isnan(x):
        return NAN_CODE[fmt.name]
    sign = 1 << (fmt.bits - 1) if math.copysign(1.0, x) < 0 else 0
    if math.isinf(x):
        return sign | (len(magnitudes(fmt)) - 1)
    code = nearest_code(abs(Fraction(x)), fmt)
    return code if fmt.specials == "fnuz" and code == 0 else sign | code


def rounded(value: Fraction, fmt: Format) -> Fraction:
    """To nearest even with an unbounded exponent above, subnormals below."""
    if value == 0:
        return value
    size = abs(value)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    power -= size < Fraction(2) ** power
    last_place = Fraction(2) ** (max(power, 1 - fmt.bias) - fmt.mantissa_bits)
    return round(value / last_place) * last_place


def fl32(value: Fraction, sign: float) -> float:
    """One fp32 rounding of an exact result; a zero and an overflow take the given sign."""
    result = abs(rounded(value, FP32))
    overflows = result >= Fraction(2) ** 128
    return math.copysign(math.inf if overflows else float(result), sign)


def divide(x: float, y: float) -> float:
    """fl32(x / y) for y > 0."""
    if math.isnan(x) or math.isnan(y) or (math.isinf(x) and math.isinf(y)):
        return math.nan
    if math.isinf(x):
        return x
    if math.isinf(y):
        return math.copysign(0.0, x)
    return fl32(Fraction(x) / Fraction(y), x)


def multiply(x: float, y: float) -> float:
    """fl32(x · y) for finite y > 0."""
    if math.isnan(x) or math.isinf(x):
        return x
    return fl32(Fraction(x) * Fraction(y), x)


def amax(group: Sequence[float]) -> float:
    """The largest magnitude of those that are not NaN."""
    return max((abs(x) for x in group if not math.isnan(x)), default=0.0)


def smallest_cover(value: float, largest: int) -> int:
    """The smallest e with value <= largest · 2^e, by trying one after another."""
    return next(e for e in range(-130, 130) if Fraction(value) <= largest * Fraction(2) ** e)


def per_token_group(group: Sequence[float]) -> tuple[list[int], float]:
    """The e4m3 codes and the fp32 scale of one group."""
    floor = float(rounded(Fraction(1, 10**10), FP32))
    scale = divide(max(amax(group), floor), 448.0)
    return [code_of(divide(x, scale), E4M3) for x in group], scale


def per_tensor_static(row: Sequence[float], scale: float) -> list[int]:
    """The e4m3 codes under a given scale."""
    inverse = divide(1.0, scale)
    return [code_of(multiply(x, inverse), E4M3) for x in row]


def ue8m0_group(group: Sequence[float]) -> tuple[list[int], int]:
    """The e4m3 codes and the e8m0 code of one group."""
    if any(math.isinf(x) for x in group):
        return [NAN_CODE["e4m3"]] * len(group), 255
    floor = float(rounded(Fraction(1, 10**4), FP32))
    exponent = smallest_cover(max(amax(group), floor), 448)
    return [code_of(divide(x, 2.0**exponent), E4M3) for x in group], exponent + 127


def ue8m0_inplace(group: Sequence[float], fmt: Format) -> list[float]:
    """The values that replace one group of an input in format `fmt`."""
    codes, scale = ue8m0_group(group)
    largest = Fraction(fmt.largest)
    result = []
    for x, code in zip(group, codes, strict=True):
        if code == NAN_CODE["e4m3"]:
            result.append(math.nan)
            continue
        value = magnitudes(E4M3)[code & 0x7F] * Fraction(2) ** (scale - 127)
        result.append(math.copysign(float(min(rounded(value, fmt), largest)), x))
    return result


def kv_block(block: Sequence[float], kind: str) -> tuple[list[int], float]:
    """The int8 numbers or e4m3 codes, and the fp16 scale, of one block of 32."""
    largest = {"int8": 127, "fp8": 448}[kind]
    top = amax(block)
    if kind == "int8" and any(math.isnan(x) for x in block):
        return [0] * len(block), math.nan
    if top == 0:
        scale = Fraction(1)
    elif math.isinf(top):
        scale = Fraction(65504)
    else:
        quotient = Fraction(divide(top, float(largest)))
        scale = min(rounded(quotient, FP16), Fraction(65504))
        if scale < Fraction(1, 2**14) and scale * largest < Fraction(top):
            scale += Fraction(1, 2**24)
    quotients = [divide(x, float(scale)) for x in block]
    if kind == "fp8":
        return [code_of(q, E4M3) for q in quotients], float(scale)
    return [_half_away(q) for q in quotients], float(scale)


def _half_away(q: float) -> int:
    if math.isinf(q):
        return 127 if q > 0 else -127
    size = min(math.floor(abs(Fraction(q)) + Fraction(1, 2)), 127)
    return size if q > 0 else -size


def e2m1_group(group: Sequence[float]) -> tuple[list[int], int]:
    """The e2m1 codes, unpacked, and the e8m0 code of one group."""
    if any(math.isnan(x) or math.isinf(x) for x in group):
        return [0] * len(group), 255
    exponent = smallest_cover(max(amax(group), 6.0 * 2.0**-126), 6)
    return [code_of(divide(x, 2.0**exponent), E2M1) for x in group], exponent + 127
