"""Planted faults of the KV store, see `kernels.quantise.faults`."""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Fault
from bitproof.kernels.quantise.faults import ROUNDING, select_faults

_in_kv_store = partial(Fault, module="bitproof.kernels.quantise.kv_store", caught_by="agreement")

# Shows that the claim of equal bits can fail.
READS_PAST_A_HEAD = "reads on past the end of a head"

_EITHER = (
    _in_kv_store(
        name="lets the scale underflow",
        within="_scale",
        old="tl.where(short, scale + SUBNORMAL_STEP_FP16, scale)",
        new="scale",
    ),
    _in_kv_store(
        name="lets the scale overflow",
        within="_scale",
        old="saturate(tl.math.div_rn(amax, MAG), LARGEST_FP16)",
        new="tl.math.div_rn(amax, MAG)",
    ),
    _in_kv_store(
        name="divides a zero block by zero",
        within="_scale",
        old="tl.where(amax == 0.0, 1.0, scale)",
        new="scale",
    ),
    _in_kv_store(
        name="divides before the scale is fp16",
        within="_scale",
        old="exact.to(tl.float16).to(tl.float32)",
        new="exact",
    ),
    _in_kv_store(
        name="multiplies by the reciprocal",
        within="_store_blocks",
        old="tl.math.div_rn(x, scale[:, None])",
        new="x * tl.math.div_rn(1.0, scale)[:, None]",
    ),
    _in_kv_store(
        name="divides approximately",
        within="_store_blocks",
        old="tl.math.div_rn(x, scale[:, None])",
        new="x / scale[:, None]",
        lanes=("cuda",),
        because="the interpreter divides as IEEE says, compiled `/` is within 2 ulp",
    ),
    _in_kv_store(
        name="gives V the scales of K",
        within="_store",
        old="v_scale_ptr + scale, inside, live",
        new="k_scale_ptr + scale, inside, live",
    ),
    _in_kv_store(
        name="stores by token, not by slot",
        within="_store",
        old="slot * heads + head",
        new="token * heads + head",
    ),
    _in_kv_store(
        name="stores skipped tokens in the first slot",
        within="_store",
        old="other=-1)\n    live = (number < count) & (slot >= 0)",
        new="other=-1)\n    slot = tl.where(slot < 0, 0, slot)\n    live = number < count",
    ),
    _in_kv_store(
        name="stores skipped tokens before the cache",
        within="_store",
        old="live = (number < count) & (slot >= 0)",
        new="live = number < count",
        caught_by="memory",
    ),
    _in_kv_store(
        name="does not mask the tail of a head",
        within="_store",
        old="live[:, None] & (column < dim)",
        new="live[:, None] & (column >= 0)",
        caught_by="memory",
    ),
    _in_kv_store(
        name=READS_PAST_A_HEAD,
        within="_store_blocks",
        old="tl.load(source, mask=inside, other=0.0)",
        new="tl.load(source, mask=live[:, None], other=0.0)",
        caught_by="reproducibility",
    ),
    _in_kv_store(
        name="loses the tokens after the first",
        within="_store",
        old="slot = tl.load(indices_ptr + token,",
        new="slot = tl.load(indices_ptr + token * 0,",
        caught_by="invariances",
    ),
)
INT8 = (
    *_EITHER,
    _in_kv_store(
        name="rounds half to even",
        within="_round_half_away",
        old="magnitude - whole >= 0.5",
        new="(magnitude - whole > 0.5) | ((magnitude - whole == 0.5) & (whole.to(tl.int32) % 2 == 1))",
    ),
    _in_kv_store(
        name="truncates",
        within="_round_half_away",
        old="tl.where(magnitude - whole >= 0.5, whole + 1.0, whole)",
        new="whole",
    ),
    _in_kv_store(
        name="adds one half before the floor",
        within="_round_half_away",
        old="tl.where(magnitude - whole >= 0.5, whole + 1.0, whole)",
        new="(magnitude + 0.5).to(tl.int32).to(tl.float32)",
    ),
    _in_kv_store(
        name="does not clamp",
        within="_store_blocks",
        old="_round_half_away(saturate(q, MAG))",
        new="_round_half_away(q)",
    ),
    _in_kv_store(
        name="hides a NaN",
        within="_store_blocks",
        old='tl.where(nan, float("nan"), scale)',
        new="scale",
    ),
)
FP8 = (
    *_EITHER,
    *select_faults(
        ROUNDING,
        "rounds ties away from zero",
        "rounds twice, first toward zero to fp16",
        "rounds negatives to +0",
        "loses NaN where it saturates",
    ),
)
