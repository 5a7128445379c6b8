"""Power-of-two scales found in the bits of a group's largest magnitude, for kernels to import.

log2 and ceil in fp32 are wrong just above a power of two; the exponent field and one comparison of
mantissas are not.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bitproof.harness.spec import Fault


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


def faults() -> tuple[Fault, ...]:
    """The planted faults of this module, for the specs of its importers."""
    return _FAULTS


def _fault(name: str, new: str) -> Fault:
    return Fault(
        name=name,
        within="covering_exponent",
        old="(word >> 23) - (top >> 23) + exceeds.to(tl.int32)",
        new=new,
        caught_by="agreement",
        module="bitproof.kernels.quantise.powers",
    )


_FAULTS = (
    _fault("takes ceil(log2()) in fp32", "tl.ceil(tl.log2(amax * (1.0 / LARGEST))).to(tl.int32)"),
    _fault(
        "rounds log2() to nearest",
        "tl.floor(tl.log2(amax * (1.0 / LARGEST)) + 0.5).to(tl.int32)",
    ),
    _fault(
        "takes floor(log2())",
        "(word >> 23) - (top >> 23) - 1 + ((word & 0x7FFFFF) >= (top & 0x7FFFFF)).to(tl.int32)",
    ),
    _fault(
        "goes up at the largest value itself",
        "(word >> 23) - (top >> 23) + ((word & 0x7FFFFF) >= (top & 0x7FFFFF)).to(tl.int32)",
    ),
)
