"""Planted faults of the quantisers of matrices, see `kernels.quantise.faults`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bitproof.harness.spec import Fault
from bitproof.kernels.quantise.faults import GROUPS, POWERS, ROUNDING, STALE_ZEROS, select_faults

_in_e2m1 = partial(Fault, module="bitproof.kernels.quantise.e2m1", caught_by="agreement")
_in_per_tensor_static = partial(
    Fault, module="bitproof.kernels.quantise.per_tensor_static", caught_by="agreement"
)
_in_per_token_group = partial(
    Fault, module="bitproof.kernels.quantise.per_token_group", caught_by="agreement"
)
_in_ue8m0 = partial(Fault, module="bitproof.kernels.quantise.ue8m0", caught_by="agreement")

# Show that claims of equal bits can fail.
STALE_SCALE_OF_ZEROS = "leaves the scale of a zero group as it was"
STALE_SCALE_OF_TINY = "leaves the scale of a tiny group as it was"
READS_BETWEEN_ROWS = "reads on between the rows"

PER_TENSOR_STATIC = (
    _in_per_tensor_static(
        name="divides by the scale",
        within="_quantise",
        old="x * inverse",
        new="tl.math.div_rn(x, tl.load(scale_ptr))",
    ),
    _in_per_tensor_static(
        name="multiplies by the scale",
        within="_quantise",
        old="x * inverse",
        new="x * tl.load(scale_ptr)",
    ),
    _in_per_tensor_static(
        name="takes the rows for dense",
        within="_quantise",
        old="row[:, None] * x_stride",
        new="row[:, None] * columns",
    ),
    _in_per_tensor_static(
        name=STALE_ZEROS,
        within="_quantise",
        old="y_ptr + row[:, None] * columns + column, y, mask=inside",
        new="y_ptr + row[:, None] * columns + column, y, mask=inside & (x != 0.0)",
        caught_by="reproducibility",
    ),
    *select_faults(
        ROUNDING,
        "truncates",
        "rounds twice, first toward zero to fp16",
        "rounds negatives to +0",
        "loses NaN where it saturates",
    ),
    *select_faults(
        GROUPS,
        "does not mask the tail of a row",
        "does not mask the last program's surplus groups",
    ),
)

PER_TOKEN_GROUP = (
    _in_per_token_group(
        name="multiplies by the reciprocal",
        within="_quantise",
        old="tl.math.div_rn(x, scale[:, None])",
        new="x * tl.math.div_rn(1.0, scale)[:, None]",
    ),
    _in_per_token_group(
        name="multiplies amax by 1/448",
        within="_quantise",
        old="tl.math.div_rn(amax, LARGEST)",
        new="amax * (1.0 / LARGEST)",
    ),
    _in_per_token_group(name="has no floor under amax", within="FLOOR", old="1e-10", new="0.0"),
    _in_per_token_group(
        name="stores a scale one group off",
        within="_quantise",
        old="scale_ptr + number",
        new="scale_ptr + row * per_row + (number + 1) % per_row",
    ),
    _in_per_token_group(
        name=STALE_SCALE_OF_ZEROS,
        within="_quantise",
        old="mask=number < count",
        new="mask=(number < count) & (amax > FLOOR)",
        caught_by="reproducibility",
    ),
    _in_per_token_group(
        name="divides approximately",
        within="_quantise",
        old="tl.math.div_rn(x, scale[:, None])",
        new="x / scale[:, None]",
        lanes=("cuda",),
        because="the interpreter divides as IEEE says, compiled `/` is within 2 ulp",
    ),
    *select_faults(
        ROUNDING,
        "rounds twice, first toward zero to fp16",
        "rounds negatives to +0",
        "loses NaN where it saturates",
    ),
    *GROUPS,
)

_UE8M0 = (
    *POWERS,
    _in_ue8m0(name="has no floor under amax", within="FLOOR", old="1e-4", new="0.0"),
    _in_ue8m0(
        name="overlooks an infinity",
        within="_scaled",
        old='tl.where(infinite[:, None], float("nan"), scaled)',
        new="scaled",
    ),
    *select_faults(
        ROUNDING,
        "rounds ties away from zero",
        "rounds negatives to +0",
        "loses NaN where it saturates",
    ),
    *select_faults(
        GROUPS, "does not mask the tail of a row", "takes the magnitude of positive values alone"
    ),
)

UE8M0_GROUP = (
    *_UE8M0,
    _in_ue8m0(
        name=STALE_SCALE_OF_TINY,
        within="_quantise",
        old="mask=number < count",
        new="mask=(number < count) & (exponent > -22)",
        caught_by="reproducibility",
    ),
    _in_ue8m0(
        name="stores a scale one group off",
        within="_quantise",
        old="scale_ptr + number",
        new="scale_ptr + row * per_row + (number + 1) % per_row",
    ),
    _in_ue8m0(
        name="stores e + 126",
        within="_quantise",
        old="exponent + 127",
        new="exponent + 126",
    ),
    *select_faults(GROUPS, "shares one amax between the groups of a program"),
)

UE8M0_INPLACE = (
    *_UE8M0,
    _in_ue8m0(
        name=READS_BETWEEN_ROWS,
        within="_round_trip",
        old="tl.load(address, mask=inside, other=0.0)",
        new="tl.load(address, mask=(number < count)[:, None], other=0.0)",
        caught_by="reproducibility",
    ),
    _in_ue8m0(
        name="takes the rows for dense",
        within="_round_trip",
        old="row[:, None] * x_stride",
        new="row[:, None] * columns",
    ),
    _in_ue8m0(
        name="overflows to infinity",
        within="_round_trip",
        old="saturate(value, LIMIT)",
        new="value",
    ),
    _in_ue8m0(
        name="leaves the quantised value unscaled",
        within="_round_trip",
        old=" * power_of_two(exponent)[:, None]",
        new="",
    ),
    *select_faults(GROUPS, "shares one amax between the groups of a program"),
)

E2M1_GROUP = (
    _in_e2m1(
        name="truncates",
        within="_encode",
        old=" + 0x1FFFFF + ((magnitude >> 22) & 1)",
        new="",
    ),
    _in_e2m1(
        name="rounds ties away from zero",
        within="_encode",
        old="0x1FFFFF + ((magnitude >> 22) & 1)",
        new="0x200000",
    ),
    _in_e2m1(
        name="loses the sign of zero",
        within="_encode",
        old="(word >> 28) & 8",
        new="tl.where(code == 0, 0, (word >> 28) & 8)",
    ),
    _in_e2m1(
        name="rounds subnormals to multiples of 0.25",
        within="MAGIC",
        old="4194304.0",
        new="2097152.0",
    ),
    _in_e2m1(
        name="swaps the two codes of a byte",
        within="_quantise",
        old="low | (high << 4)",
        new="high | (low << 4)",
    ),
    _in_e2m1(
        name="hides a NaN",
        within="_quantise",
        old='(tl.abs(x) < float("inf")).to(tl.int32) ^ 1',
        new='(tl.abs(x) == float("inf")).to(tl.int32)',
    ),
    _in_e2m1(
        name="keeps codes beside a NaN",
        within="_quantise",
        old="x = tl.where(unfit[:, None], 0.0, x)",
        new="x = tl.where(x == x, x, 0.0)",
    ),
    _in_e2m1(
        name="has no floor under amax",
        within="FLOOR",
        old="7.052966104933725e-38",
        new="0.0",
    ),
    _in_e2m1(
        name="writes half a byte too many in a row",
        within="_quantise",
        old="pair < columns // 2",
        new="pair <= columns // 2",
        caught_by="memory",
    ),
    _in_e2m1(
        name="leaves the last byte of a tail unwritten",
        within="_quantise",
        old="pair < columns // 2",
        new="(pair < columns // 2 - 1) | (pair % (GROUP // 2) == GROUP // 2 - 1)",
        caught_by="memory",
    ),
    _in_e2m1(
        name=STALE_SCALE_OF_ZEROS,
        within="_quantise",
        old="mask=number < count",
        new="mask=(number < count) & (exponent > -126)",
        caught_by="reproducibility",
    ),
    *POWERS,
    # Only loads go by the element mask here, so that a GPU's guard bands see nothing of it.
    *(
        replace(fault, caught_by="agreement")
        for fault in select_faults(GROUPS, "does not mask the tail of a row")
    ),
    *select_faults(
        GROUPS,
        "takes the magnitude of positive values alone",
        "shares one amax between the groups of a program",
    ),
)
