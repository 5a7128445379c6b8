"""Conversions of single values that other people's kernels got wrong."""

from __future__ import annotations

import math

import pytest
import torch

from bitproof.kernels.quantise.specs import CASTS, ROUND_E4M3

SPECS = {spec.name: spec for spec in (*CASTS, ROUND_E4M3)}
TO_E4M3 = [SPECS["cast_e4m3"], SPECS["round_e4m3"]]
NAMES = [spec.name for spec in TO_E4M3]


@pytest.mark.parametrize("spec", TO_E4M3, ids=NAMES)
@pytest.mark.parametrize(
    ("x", "y"),
    [
        (126.24, 128.0),
        (31.9, 32.0),
        (1.0625, 1.0),
        (1.0625001, 1.125),
        (0.0029296875, 0.00390625),
        (0.0078125 * 1.5, 0.0078125 * 1.5),
        (464.0, 448.0),
        (465.0, 448.0),
        (480.0, 448.0),
        (1e4, 448.0),
        (math.inf, 448.0),
        (400.199585, 416.0),
        (272.156555, 288.0),
        (136.002075, 144.0),
    ],
)
def test_fp32_to_e4m3_is_to_nearest_even_and_saturates(outputs, spec, x, y):
    """Ties, carries, subnormals and overflow, of both signs."""
    got = outputs(spec, x=torch.tensor([x, -x]))["y"]
    assert got.float().tolist() == [y, -y]


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
def test_zeros_keep_their_sign_and_nan_stays(outputs, spec):
    """-0 is not +0, a NaN of either sign and either kind is a NaN."""
    bits = torch.tensor([0, -(2**31), 0x7FC00000, 0x7F800001, -1], dtype=torch.int32)
    got = outputs(spec, x=bits.view(torch.float32))["y"].float()
    assert torch.signbit(got[:2]).tolist() == [False, True]
    assert got[:2].tolist() == [0.0, 0.0]
    assert torch.isnan(got).tolist() == [False, False, True, True, True]


def test_fp32_to_e5m2_rounds_a_tie_to_even(outputs):
    """1.125 lies between 1.0 and 1.25."""
    got = outputs(SPECS["cast_e5m2"], x=torch.tensor([1.125, 126.24, math.inf]))["y"]
    assert got.float().tolist() == [1.0, 128.0, 57344.0]


@pytest.mark.parametrize("name", ["cast_bf16", "cast_fp16"])
def test_sixteen_bit_formats_overflow_to_infinity(outputs, name):
    """The largest fp32 is beyond either format's last midpoint."""
    largest = torch.finfo(torch.float32).max
    got = outputs(SPECS[name], x=torch.tensor([largest, -largest, math.inf]))["y"]
    assert got.float().tolist() == [math.inf, -math.inf, math.inf]


@pytest.mark.parametrize("spec", TO_E4M3, ids=NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_sixteen_bit_input_is_converted_as_torch_converts_it(outputs, spec, dtype):
    """All 65 536 patterns; torch saturates on the CPU once the input is clamped."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    got = outputs(spec, x=x)["y"]
    expected = x.float().clamp(-448, 448).to(torch.float8_e4m3fn)
    number = ~torch.isnan(x)
    assert torch.equal(got.view(torch.uint8)[number], expected.view(torch.uint8)[number])
    assert torch.equal(torch.isnan(got.float()), ~number)
