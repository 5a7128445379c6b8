"""Power-of-two scales found in the bits of a group's largest magnitude, for kernels to import.

log2 and ceil in fp32 are wrong just above a power of two; the exponent field and one comparison of
mantissas are not.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def covering_exponent(amax, LARGEST: tl.constexpr):
    """The smallest integer e with amax <= LARGEST * 2^e, int32; both are positive, normal fp32."""
    word = amax.to(tl.int32, bitcast=True)
    top = tl.full([], LARGEST, tl.float32).to(tl.int32, bitcast=True)
    exceeds = (word & 0x7FFFFF) > (top & 0x7FFFFF)
    return (word >> 23) - (top >> 23) + exceeds.to(tl.int32)


@triton.jit
def power_of_two(exponent):
    """2^exponent in fp32 for int32 exponents from -126 to 127, exact."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)
