"""What a hazard says of fp8 sums is what the instruction's model gives."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from bitproof.harness.lowering.rules.summing import FALLS_SHORT
from bitproof.oracles import formats
from bitproof.oracles.instructions import INSTRUCTIONS
from bitproof.oracles.tensor_cores import product


def test_fp8_sums_fall_short_by_what_is_told() -> None:
    """The mean over a few sums of terms evenly spread from 0 to 1, to the digits told."""
    told = [float(number) for number in re.findall(r"by ([0-9.]+) %", FALLS_SHORT)]
    fmt, one = formats.E4M3, INSTRUCTIONS["sm_90"]["e4m3", "wgmma"]
    random = np.random.default_rng(3)
    a, b = (
        random.random(shape).astype(np.float32).astype(fmt.numpy_dtype)
        for shape in ((8, 4096), (4096, 8))
    )
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for promoted, percent in zip((0, 128), told, strict=True):
        got = product(a, b, kind="e4m3", instruction=replace(one, promoted=promoted), tile=4096)
        short = float(((exact - got) / exact).mean()) * 100
        assert abs(short - percent) < 0.03 * percent
