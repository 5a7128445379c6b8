"""Rounding fp32 onto the e4m3 grid in fp32 arithmetic, for kernels to import.

A value already on the grid is converted exactly by every target, so that a conversion after
`round_e4m3` is right even where the target's own fp32 conversion rounds twice.
"""

from __future__ import annotations

import triton
import triton.language as tl

LARGEST = tl.constexpr(448.0)
SMALLEST_NORMAL = tl.constexpr(0.015625)
# Adding 1.5 * 2^14 leaves an fp32 in [2^14, 2^15), whose last place is 2^-9, e4m3's subnormal step,
# for either sign of what is added.
MAGIC = tl.constexpr(24576.0)


@triton.jit
def saturate(x, LARGEST: tl.constexpr):
    """`x` limited to [-LARGEST, LARGEST]; NaN stays, whatever the target's min and max do with it."""
    return tl.where(x > LARGEST, LARGEST, tl.where(x < -LARGEST, -LARGEST, x))


@triton.jit
def round_e4m3(x):
    """The e4m3 value nearest to fp32 `x` in [-448, 448], ties to even, as fp32; -0 and NaN are kept."""
    word = x.to(tl.uint32, bitcast=True)
    kept = (word + 0x7FFFF + ((word >> 20) & 1)) & 0xFFF00000
    shifted = (x + MAGIC) - MAGIC
    normal = tl.abs(x) >= SMALLEST_NORMAL
    rounded = tl.where(normal, kept, shifted.to(tl.uint32, bitcast=True))
    # A negative value that rounds to zero leaves the subtraction as +0.
    signed = (rounded & 0x7FFFFFFF) | (word & 0x80000000)
    return signed.to(tl.float32, bitcast=True)


@triton.jit
def to_e4m3(x):
    """fp32 to e4m3: saturating at 448, to nearest, ties to even, NaN to NaN."""
    return round_e4m3(saturate(x, LARGEST)).to(tl.float8e4nv)
