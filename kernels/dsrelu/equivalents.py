"""Generated mutants of the dsReLU backward pass that are no faults, and why each changes nothing."""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Equivalent
from bitproof.kernels.quantise.equivalents import ROUNDING

_in_rounding = partial(Equivalent, module="bitproof.kernels.quantise.e4m3_rounding")
_COVERED = "the scale of a block covers its largest magnitude, so that nothing is left to saturate"

_SATURATION = (
    _in_rounding(
        within="saturate",
        old="tl.where(x < -LARGEST, -LARGEST, x)",
        new="x",
        because=_COVERED,
    ),
    _in_rounding(
        within="saturate",
        old="tl.where(x > LARGEST, LARGEST, tl.where(x < -LARGEST, -LARGEST, x))",
        new="tl.where(x < -LARGEST, -LARGEST, x)",
        because=_COVERED,
    ),
    _in_rounding(within="to_e4m3", old="saturate(x, LARGEST)", new="x", because=_COVERED),
)
_PADDING = (
    Equivalent(
        module="bitproof.kernels.dsrelu.gemm",
        within="backward_tiles",
        old="mask=mine & owned, other=0.0",
        new="mask=mine & owned, other=1.0",
        because="other rows are another group's, which are not stored, or nobody's, where C counts as 0",
    ),
)
_SLOTS = tuple(
    Equivalent(
        module="bitproof.kernels.dsrelu.reduce",
        within="_add_rows",
        old=f"{place}, mask=mine, other=0.0)",
        new=f"{place}, mask=mine{other})",
        because="a row where the mask is off is summed apart and not stored",
    )
    for place in ("tl.load(dprob_slots_ptr + row", "tl.load(place")
    for other in (", other=1.0", "")
)
ALL = (*ROUNDING, *_SATURATION, *_PADDING, *_SLOTS)
