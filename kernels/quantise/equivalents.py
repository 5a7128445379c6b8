"""Generated mutants of the quantisers that are no faults, with the reason why each changes nothing."""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Equivalent

_in_rounding = partial(Equivalent, module="bitproof.kernels.quantise.e4m3_rounding")
_in_groups = partial(Equivalent, module="bitproof.kernels.quantise.groups")
_in_store = partial(Equivalent, module="bitproof.kernels.quantise.kv_store")

ROUNDING = (
    _in_rounding(
        within="saturate",
        old="tl.where(x > LARGEST",
        new="tl.where(x >= LARGEST",
        because="a value that equals the limit becomes the limit either way",
    ),
    _in_rounding(
        within="saturate",
        old="tl.where(x < -LARGEST",
        new="tl.where(x <= -LARGEST",
        because="a value that equals the limit becomes the limit either way",
    ),
    _in_rounding(
        within="round_e4m3",
        old="(x + MAGIC) - MAGIC",
        new="MAGIC - (x + MAGIC)",
        because="the sign is taken from x afterwards, and the difference of equals is exact",
    ),
    _in_rounding(
        within="LARGEST",
        old="448.0",
        new="447.9999694824219",
        because="the limit is rounded to e4m3 after it, and comes to 448",
    ),
    _in_rounding(
        within="LARGEST",
        old="448.0",
        new="448.0000305175781",
        because="the limit is rounded to e4m3 after it, and comes to 448",
    ),
    _in_rounding(
        within="to_e4m3",
        old="round_e4m3(saturate(x, LARGEST))",
        new="round_e4m3(saturate(x, LARGEST)).to(tl.float16)",
        because="the values of e4m3 are values of fp16: the conversion to it rounds nothing",
    ),
)
GROUPS = (
    _in_groups(
        within="largest_magnitude",
        old="tl.where(x == x, tl.abs(x), 0.0)",
        new="tl.abs(x)",
        because="compiled maxima pass over NaN, and the lane's do: the selection is for readers",
    ),
)
STORE = (
    _in_store(
        within="_store",
        old="mask=number < count, other=-1)",
        new="mask=number < count)",
        because="what lies past the last block is not live, whatever slot it reads",
    ),
    _in_store(
        within="_store",
        old="(number < count) & (slot >= 0)",
        new="slot >= 0",
        because="past the last block the slot is -1, the value of `other`",
    ),
)
