"""Planted faults of the casts and quantisers: what a tired colleague would write, and who must see it.

First those of what kernels share, then those of casts; `faults_groups` has those of quantisers of matrices,
`faults_kv_store` those of the KV store.
"""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Fault

_in_casts = partial(Fault, module="bitproof.kernels.quantise.casts", caught_by="agreement")
_in_e4m3_rounding = partial(
    Fault, module="bitproof.kernels.quantise.e4m3_rounding", caught_by="agreement"
)
_in_groups = partial(Fault, module="bitproof.kernels.quantise.groups", caught_by="agreement")
_in_power_of_two_scales = partial(
    Fault, module="bitproof.kernels.quantise.power_of_two_scales", caught_by="agreement"
)

# Shows that a claim of equal bits can fail.
STALE_ZEROS = "keeps what the output held where the value is zero"


def select_faults(faults: tuple[Fault, ...], *names: str) -> tuple[Fault, ...]:
    """Those of `faults` that are called `names`, in their own order."""
    return tuple(fault for fault in faults if fault.name in names)


ROUNDING = (
    _in_e4m3_rounding(
        name="truncates",
        within="round_e4m3",
        old=" + 0x7FFFF + ((word >> 20) & 1)",
        new="",
    ),
    _in_e4m3_rounding(
        name="rounds ties away from zero",
        within="round_e4m3",
        old="0x7FFFF + ((word >> 20) & 1)",
        new="0x80000",
    ),
    _in_e4m3_rounding(
        name="rounds negatives to +0",
        within="round_e4m3",
        old="(rounded & 0x7FFFFFFF) | (word & 0x80000000)",
        new="rounded",
    ),
    _in_e4m3_rounding(
        name="takes 2^-7 for the smallest normal",
        within="SMALLEST_NORMAL",
        old="0.015625",
        new="0.0078125",
    ),
    _in_e4m3_rounding(
        name="rounds subnormals to multiples of 2^-10",
        within="MAGIC",
        old="24576.0",
        new="12288.0",
    ),
    _in_e4m3_rounding(
        name="adds 2^14, under which negatives fall out",
        within="MAGIC",
        old="24576.0",
        new="16384.0",
    ),
    _in_e4m3_rounding(
        name="loses NaN where it saturates",
        within="saturate",
        old="tl.where(x > LARGEST, LARGEST, tl.where(x < -LARGEST, -LARGEST, x))",
        new="tl.minimum(tl.maximum(x, -LARGEST), LARGEST)",
    ),
    _in_e4m3_rounding(
        name="rounds twice, first toward zero to fp16",
        within="to_e4m3",
        old="round_e4m3(saturate(x, LARGEST))",
        new='saturate(x, LARGEST).to(tl.float16, fp_downcast_rounding="rtz")',
    ),
)

GROUPS = (
    _in_groups(
        name="does not mask the tail of a row",
        within="tile_of_groups",
        old=" & (column < columns)",
        new="",
        caught_by="memory",
    ),
    _in_groups(
        name="does not mask the last program's surplus groups",
        within="tile_of_groups",
        old="(number < groups)[:, None] & (column < columns)",
        new="column < columns",
        caught_by="memory",
    ),
    _in_groups(
        name="takes the magnitude of positive values alone",
        within="largest_magnitude",
        old="tl.abs(x)",
        new="x",
    ),
    _in_groups(
        name="shares one amax between the groups of a program",
        within="largest_magnitude",
        old="tl.max(magnitude, axis=1)",
        new="tl.zeros_like(tl.max(magnitude, axis=1)) + tl.max(magnitude)",
        caught_by="invariances",
    ),
)

POWERS = (
    _in_power_of_two_scales(
        name="takes ceil(log2()) in fp32",
        within="covering_exponent",
        old="(word >> 23) - (top >> 23) + exceeds.to(tl.int32)",
        new="tl.ceil(tl.log2(amax * (1.0 / LARGEST))).to(tl.int32)",
    ),
    _in_power_of_two_scales(
        name="rounds log2() to nearest",
        within="covering_exponent",
        old="(word >> 23) - (top >> 23) + exceeds.to(tl.int32)",
        new="tl.floor(tl.log2(amax * (1.0 / LARGEST)) + 0.5).to(tl.int32)",
    ),
    _in_power_of_two_scales(
        name="takes floor(log2())",
        within="covering_exponent",
        old="(word >> 23) - (top >> 23) + exceeds.to(tl.int32)",
        new="(word >> 23) - (top >> 23) - 1 + ((word & 0x7FFFFF) >= (top & 0x7FFFFF)).to(tl.int32)",
    ),
    _in_power_of_two_scales(
        name="goes up at the largest value itself",
        within="covering_exponent",
        old="(word >> 23) - (top >> 23) + exceeds.to(tl.int32)",
        new="(word >> 23) - (top >> 23) + ((word & 0x7FFFFF) >= (top & 0x7FFFFF)).to(tl.int32)",
    ),
)


def _around(kernel: str) -> tuple[Fault, ...]:
    """What can go wrong around any elementwise conversion."""
    return (
        _in_casts(
            name="stores past the end",
            within=kernel,
            old="tl.store(y_ptr + element, y, mask=inside)",
            new="tl.store(y_ptr + element, y)",
            caught_by="memory",
        ),
        _in_casts(
            name="loses the last element",
            within=kernel,
            old="tl.store(y_ptr + element, y, mask=inside)",
            new="tl.store(y_ptr + element, y, mask=element < n - 1)",
            caught_by="memory",
        ),
        _in_casts(
            name=STALE_ZEROS,
            within=kernel,
            old="tl.store(y_ptr + element, y, mask=inside)",
            new="tl.store(y_ptr + element, y, mask=inside & (x != 0.0))",
            caught_by="reproducibility",
        ),
        _in_casts(
            name="takes every second element from its neighbour",
            within=kernel,
            old="tl.load(x_ptr + element, mask=inside)",
            new="tl.load(x_ptr + (element | 1) - 1, mask=inside)",
            caught_by="invariances",
        ),
    )


_conversion = partial(_in_casts, within="_cast", old="x.to(y_ptr.dtype.element_ty)")
_UNSIGNED_ZERO = _conversion(
    name="negative zero becomes positive", new="(x + 0.0).to(y_ptr.dtype.element_ty)"
)
_THROUGH_FP16 = _conversion(
    name="rounds twice, first toward zero to fp16",
    new='x.to(tl.float32).to(tl.float16, fp_downcast_rounding="rtz").to(y_ptr.dtype.element_ty)',
)
_TRUNCATES = _conversion(
    name="truncates",
    new='x.to(tl.float32).to(y_ptr.dtype.element_ty, fp_downcast_rounding="rtz")',
)
_THROUGH_BF16 = _conversion(
    name="rounds twice, first to bf16", new="x.to(tl.bfloat16).to(y_ptr.dtype.element_ty)"
)
_TIES_AWAY = _conversion(
    name="rounds ties away from zero",
    new="((x.to(tl.float32).to(tl.uint32, bitcast=True) + 0x8000) & 0xFFFF0000)"
    ".to(tl.float32, bitcast=True).to(y_ptr.dtype.element_ty)",
)

CASTS = {
    "e4m3": (*_around("_cast"), _UNSIGNED_ZERO, _THROUGH_FP16),
    "e5m2": (*_around("_cast"), _UNSIGNED_ZERO, _THROUGH_FP16),
    "bf16": (*_around("_cast"), _UNSIGNED_ZERO, _TRUNCATES, _TIES_AWAY),
    "fp16": (*_around("_cast"), _UNSIGNED_ZERO, _TRUNCATES, _THROUGH_BF16),
}
ROUND_E4M3 = (*_around("_round"), *ROUNDING)
