"""The double rounding through fp16 (FreeToken pull request 85), as large as it was reported."""

from __future__ import annotations

import torch

from bitproof.harness.case import Launch
from bitproof.harness.strategies.values import Values
from bitproof.harness.subjects.discovery import find
from bitproof.harness.subjects.planting import plant

FAULT = "rounds twice, first toward zero to fp16"
LAUNCH = Launch(block=1 << 15, num_warps=8)


def _both(name):
    """(the kernel's spec, the spec with the double rounding planted)."""
    found = find([], [name])[0]
    fault = next(fault for fault in found.spec.faults if fault.name == FAULT)
    return found.spec, plant(found, fault)


def test_a_cast_is_wrong_where_a_truncated_input_would_be(outputs):
    """Exactly where fp16's ten bits of mantissa end on a midpoint, and then one step toward zero.

    About one in 2^8 of values uniform in [-448, 448], reported as 0.39 %.
    """
    good, bad = _both("cast_e4m3")
    x = Values(kind="uniform", exponent=9).build((1 << 20,), torch.device("cpu")) * 0.875
    # Above 2^-14 a truncation to fp16 clears 13 bits; below lies nothing of this sample.
    x = x[x.abs() >= 2.0**-14]
    truncated = (x.view(torch.int32) & ~0x1FFF).view(torch.float32)
    codes = outputs(bad, x=x, launch=LAUNCH)["y"].view(torch.uint8)
    right = outputs(good, x=x, launch=LAUNCH)["y"].view(torch.uint8)
    assert torch.equal(codes, outputs(good, x=truncated, launch=LAUNCH)["y"].view(torch.uint8))
    wrong = codes != right
    assert bool((right[wrong] - codes[wrong] == 1).all())
    assert f"{float(wrong.double().mean()):.1%}" == "0.4%"


def test_a_group_quantiser_loses_as_much_as_reported(outputs):
    """randn in bf16: mean|dequantised| / mean|x| moves by 2e-4 (reported 0.999169 and 0.998937)."""
    x = torch.randn(512, 2048, generator=torch.Generator().manual_seed(0)).bfloat16()
    means = []
    for spec in _both("per_token_group"):
        found = outputs(spec, x=x, params={"group": 128}, launch=LAUNCH)
        codes = found["y"].float().reshape(512, 16, 128)
        means.append(float((codes * found["scale"][..., None]).abs().double().mean()))
    right, wrong = (mean / float(x.abs().double().mean()) for mean in means)
    assert f"{right - wrong:.0e}" == "2e-04"
