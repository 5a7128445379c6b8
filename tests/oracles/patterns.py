"""fp32 bit patterns to round: hashed from a counter, around breakpoints, and special ones."""

import numpy as np

from bitproof.oracles.formats import Array, Format, midpoints

SPECIAL = np.array(
    [
        *(0x00000000, 0x00000001, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001),
        *(0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000),
        *(0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF),
    ],
    dtype=np.uint32,
)


def hashed(count: int, *, seed: int = 0) -> Array:
    """`count` uniform patterns: the 32-bit finaliser of MurmurHash3 over a counter."""
    u = np.arange(seed * count, (seed + 1) * count, dtype=np.uint32)
    u ^= u >> np.uint32(16)
    u *= np.uint32(0x85EBCA6B)
    u ^= u >> np.uint32(13)
    u *= np.uint32(0xC2B2AE35)
    return u ^ (u >> np.uint32(16))


def both_signs(patterns: Array) -> Array:
    """The patterns and their negatives."""
    return np.concatenate([patterns, patterns ^ np.uint32(1 << 31)])


def around_midpoints(fmt: Format) -> Array:
    """Every midpoint of a format's grid with the two fp32 numbers next to it."""
    middle = midpoints(fmt).astype(np.float32).view(np.uint32)
    return np.concatenate([middle - np.uint32(1), middle, middle + np.uint32(1)])


def numbers(patterns: Array) -> Array:
    """The patterns that are not NaN, as fp32."""
    values = patterns.view(np.float32)
    return values[~np.isnan(values)]
