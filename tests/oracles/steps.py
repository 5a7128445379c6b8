"""A step of a tensor core by exact fractions, and the codes that it is tried on."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from bitproof.oracles import formats
from bitproof.oracles.instructions import Instruction


def finite(fmt: formats.Format) -> st.SearchStrategy[int]:
    """Codes of numbers, of either sign, zeros and subnormals included."""
    magnitude = st.integers(0, fmt.largest_code)
    return st.tuples(magnitude, st.booleans()).map(lambda m: m[0] | fmt.sign_bit * m[1])


def exponent_of(code: int, fmt: formats.Format) -> int:
    """By the definition of the format: a subnormal's is the smallest."""
    field = (code & fmt.magnitude_mask) >> fmt.mantissa_bits
    return max(field, 1) - fmt.bias


def cut(value: Fraction, unit: Fraction) -> Fraction:
    """`value` toward zero to a multiple of `unit`."""
    whole = abs(value) // unit * unit
    return -whole if value < 0 else whole


def by_fractions(
    a: list[int], b: list[int], start: np.float32, fmt: formats.Format, one: Instruction
) -> float:
    """The step by the words of its definition."""
    mask = ~((1 << one.ignored) - 1)

    def number(code: int) -> Fraction:
        value = formats.decode(np.array([code & mask], fmt.storage), fmt)[0]
        return Fraction(float(value))

    terms = [
        (number(x) * number(y), exponent_of(x, fmt) + exponent_of(y, fmt))
        for x, y in zip(a, b, strict=True)
    ]
    code = int(start.view(np.uint32))
    terms.append((Fraction(float(start)), exponent_of(code, formats.by_name("fp32"))))
    present = [exponent for value, exponent in terms if value]
    if not present:
        return 0.0
    unit = Fraction(2) ** (max(present) - one.kept)
    total = sum((cut(value, unit) for value, _ in terms), Fraction(0))
    if not total:
        return 0.0
    top = 0
    while Fraction(2) ** (top + 1) <= abs(total):
        top += 1
    while Fraction(2) ** top > abs(total):
        top -= 1
    last = max(top - one.width + 1, -149)
    result = cut(total, Fraction(2) ** last)
    return float(result) if abs(result) < Fraction(2) ** 128 else np.inf * (1 if result > 0 else -1)
