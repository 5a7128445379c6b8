"""Single fp32 values that matter to a rounding, as bit patterns in hexadecimal: "0x3f880001".

A value that a case names is written as its bits and never as a decimal, so that a NaN's payload, a zero's
sign and the last place survive in reports, records and shrinking. `patterns` is the strategy; the generators
of `harness.strategies.values`, which fill whole tensors, use the same tables.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from bitproof.harness.errors import UsageError
from bitproof.oracles import formats

Words = NDArray[np.int64]

# fp32 words of the values that are special in every format, ordered from plain to odd.
SPECIALS = {
    "zero": 0x00000000,
    "negative zero": 0x80000000,
    "smallest subnormal": 0x00000001,
    "negative smallest subnormal": 0x80000001,
    "largest subnormal": 0x007FFFFF,
    "smallest normal": 0x00800000,
    "largest": 0x7F7FFFFF,
    "negative largest": 0xFF7FFFFF,
    "infinity": 0x7F800000,
    "negative infinity": 0xFF800000,
    "quiet NaN": 0x7FC00000,
    "negative quiet NaN": 0xFFC00000,
    "quiet NaN with payload": 0x7FD55555,
    "signalling NaN": 0x7F800001,
    "negative signalling NaN": 0xFFBFFFFF,
    "all ones": 0xFFFFFFFF,
}


def hexadecimal(word: int) -> str:
    """A 32-bit word as the text in a case: 0x3f800000 for 1.0."""
    return f"0x{word:08x}"


def word(pattern: str) -> int:
    """The 32-bit word of a case's text; UsageError where the text is not "0x" and eight hex digits."""
    try:
        value = int(pattern, 16)
    except ValueError:
        value = -1
    if not 0 <= value <= 0xFFFFFFFF or pattern != hexadecimal(value):
        raise UsageError(f"{pattern!r} is no fp32 bit pattern: write it as 0x and eight hex digits")
    return value


def pattern(value: float) -> str:
    """The bit pattern of `value` rounded to fp32, for literals in tests and tables."""
    return hexadecimal(int(np.float32(value).view(np.uint32)))


def number(pattern: str) -> float:
    """The fp32 value of a case's text, exact in float64; UsageError as in `word`."""
    return float(np.uint32(word(pattern)).view(np.float32))


@cache
def magnitudes(target: str) -> Words:
    """fp32 words of the non-negative values at which rounding to `target` changes, ascending.

    These are every value of the format, every midpoint between two, and the point from which it overflows.
    `target` is the name of a format in `oracles.formats`, or "int8" for the integers and halves up to 127.5.
    """
    if target == "int8":
        values = np.arange(0, 128, 0.5)
    else:
        fmt = formats.by_name(target)
        grid = formats.grid(fmt)
        beyond = grid[-1] + (grid[-1] - grid[-2]) / 2
        values = np.concatenate([grid, formats.midpoints(fmt), [beyond]])
    values = np.unique(np.abs(values))
    return values.astype(np.float32).view(np.uint32).astype(np.int64)


def largest(target: str) -> int:
    """The word of a format's largest finite value: the last of `magnitudes` is where it overflows."""
    return int(magnitudes(target)[-2])


def neighbourhood(middle: Words) -> Words:
    """Words without sign, together with those of the fp32 values just above and just below, ascending."""
    return np.unique(np.concatenate([middle, middle + 1, np.maximum(middle - 1, 0)]))


@cache
def midpoints(target: str) -> Words:
    """The fp32 words of the positive rounding midpoints of `target`, ascending."""
    if target == "int8":
        values = np.arange(0.5, 127)
    else:
        every = formats.midpoints(formats.by_name(target))
        values = every[every > 0]
    return values.astype(np.float32).view(np.uint32).astype(np.int64)


@cache
def words_of_fp16() -> Words:
    """The fp32 words that widen each of the 65 536 fp16 patterns exactly, NaN payloads included."""
    codes = np.arange(1 << 16, dtype=np.int64)
    values = formats.decode(codes, formats.FP16).astype(np.float32)
    words = values.view(np.uint32).astype(np.int64)
    nan = (codes & 0x8000) << 16 | 0x7F800000 | (codes & 0x3FF) << 13
    return np.where(np.isnan(values), nan, words)


@cache
def patterns(target: str) -> st.SearchStrategy[str]:
    """One fp32 bit pattern: near where rounding to `target` changes, special, or any of the 2^32.

    Shrinks toward the format's small values, then toward the value itself rather than a neighbour.
    """
    return st.one_of(lattice(target), specials(), any_bits())


@cache
def lattice(target: str) -> st.SearchStrategy[str]:
    """A value or midpoint of `target`, or the fp32 value just above or below it, of either sign."""
    words = magnitudes(target)

    def moved(place: int, step: int, sign: int) -> str:
        return hexadecimal(max(int(words[place]) + step, 0) | sign)

    places = st.integers(0, len(words) - 1)
    return st.builds(moved, places, st.sampled_from((0, 1, -1)), st.sampled_from((0, 0x80000000)))


@cache
def specials() -> st.SearchStrategy[str]:
    """Signed zeros and infinities, the ends of the subnormal and normal ranges, NaN payloads."""
    return st.sampled_from([hexadecimal(value) for value in SPECIALS.values()])


@cache
def any_bits() -> st.SearchStrategy[str]:
    """Any of the 2^32 patterns."""
    return st.integers(0, 0xFFFFFFFF).map(hexadecimal)
