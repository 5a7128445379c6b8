"""Rounding fp32 onto the e4m3 grid in fp32 arithmetic, for kernels to import.

A value already on the grid is converted exactly by every target, so that a conversion after
`round_e4m3` is right even where the target's own fp32 conversion rounds twice.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bitproof.harness.spec import Accepted, Fault, Lowering
from bitproof.harness.targets.architectures import ALL

ANYWHERE = Lowering(supports=ALL)
# sm_80 and sm_86 have no e4m3, and Triton refuses the type there.
WITH_E4M3 = tuple(target for target in ALL if target not in ("sm_80", "sm_86"))
ON_GRID = Lowering(
    supports=WITH_E4M3,
    accepted=(
        Accepted(
            hazard="rounding twice",
            because="the value is on the grid of e4m3 before it is converted: going through fp16 is exact",
            targets=("sm_89",),
        ),
        Accepted(
            hazard="not analysed",
            because="gfx950's own conversion has no model here; what it is given is on the grid of e4m3 and "
            "at most 448, where nothing is left to round: NaN alone depends on it",
            targets=("gfx950",),
        ),
    ),
)

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


def faults(*names: str) -> tuple[Fault, ...]:
    """The planted faults of this module, or those called `names`, for the specs of its importers."""
    return tuple(fault for fault in _FAULTS if not names or fault.name in names)


def _fault(name: str, within: str, old: str, new: str) -> Fault:
    return Fault(
        name=name,
        within=within,
        old=old,
        new=new,
        caught_by="agreement",
        module="bitproof.kernels.quantise.grid",
    )


_FAULTS = (
    _fault("truncates", "round_e4m3", " + 0x7FFFF + ((word >> 20) & 1)", ""),
    _fault("rounds ties away from zero", "round_e4m3", "0x7FFFF + ((word >> 20) & 1)", "0x80000"),
    _fault(
        "rounds negatives to +0",
        "round_e4m3",
        "(rounded & 0x7FFFFFFF) | (word & 0x80000000)",
        "rounded",
    ),
    _fault("takes 2^-7 for the smallest normal", "SMALLEST_NORMAL", "0.015625", "0.0078125"),
    _fault("rounds subnormals to multiples of 2^-10", "MAGIC", "24576.0", "12288.0"),
    _fault("adds 2^14, under which negatives fall out", "MAGIC", "24576.0", "16384.0"),
    _fault(
        "loses NaN where it saturates",
        "saturate",
        "tl.where(x > LARGEST, LARGEST, tl.where(x < -LARGEST, -LARGEST, x))",
        "tl.minimum(tl.maximum(x, -LARGEST), LARGEST)",
    ),
    _fault(
        "rounds twice, first toward zero to fp16",
        "to_e4m3",
        "round_e4m3(saturate(x, LARGEST))",
        'saturate(x, LARGEST).to(tl.float16, fp_downcast_rounding="rtz")',
    ),
)
