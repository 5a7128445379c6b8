"""Correlated operands: rounded as a program that draws in their type, and as correlated as they claim."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitproof.harness import generators
from bitproof.harness.strategies import correlated
from bitproof.harness.strategies.encoding import DTYPES
from bitproof.oracles import formats, rounding

CPU = torch.device("cpu")
FORMATS = {"bf16": formats.BF16, "fp16": formats.FP16, "fp32": formats.FP32}


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("form", [*correlated.QUERIES.values(), *correlated.KEYS.values()])
def test_each_step_is_rounded_to_the_type(form, dtype):
    """As two roundings that do not share this module's code say, in float64 between them."""
    factor, shift = form

    def to(values):
        return rounding.round_value(values, FORMATS[dtype], overflow="inf")

    n = to(generators.normal(generators.hash_words(7, 0, 64 * 512, CPU)).double().numpy())
    expected = to(to(factor * n) + shift)
    x = correlated.affine(form, 7, (64, 512), CPU, dtype)
    assert x.dtype == DTYPES[dtype]
    assert np.array_equal(x.double().numpy().reshape(-1), expected)


@given(st.integers(-(2**40), 2**40), st.integers(1, 24))
def test_integers_are_rounded_to_the_nearest_with_ties_to_even(value, digits):
    """Python's own rounding of a quotient says what the nearest multiple is."""
    unit = 2 ** max(value.bit_length() - digits, 0)
    quotient, rest = divmod(value, unit)
    up = 2 * rest > unit or (2 * rest == unit and quotient % 2)
    found = correlated.round_digits(torch.tensor([value]), digits)
    assert found.tolist() == [(quotient + bool(up)) * unit]


def _normalised(form, seed):
    x = correlated.affine(form, seed, (400, 128), CPU, "bf16").double()
    return x / x.norm(dim=-1, keepdim=True)


def _agrees(samples, expected):
    """Whether the samples' mean is within five standard errors of what is expected, plus bf16's step."""
    error = samples.std() / samples.numel() ** 0.5
    return bool((samples.mean() - expected).abs() < 5 * error + 2.0**-8 * abs(expected))


def test_correlated_keys_point_the_same_way_and_queries_the_other():
    """Cosines 50^2 / (50^2 + 10^2) and -50 / sqrt(2 * (50^2 + 10^2)); ordinary operands have none."""
    keys = _normalised(correlated.KEYS["correlated"], 1)
    queries = _normalised(correlated.QUERIES["correlated"], 2)
    assert _agrees((keys[:200] * keys[200:]).sum(-1), 2500 / 2600)
    assert _agrees((queries * keys).sum(-1), -50 / 5200**0.5)
    plain = _normalised(correlated.KEYS["normal"], 1)
    assert _agrees((plain[:200] * plain[200:]).sum(-1), 0.0)
    leaning = _normalised(correlated.KEYS["leaning"], 1)
    between = (leaning[:200] * leaning[200:]).sum(-1).mean()
    assert 0.5 < between < 2500 / 2600


@pytest.mark.parametrize("width", [16, 24, 60, 128])
@pytest.mark.parametrize("form", [*correlated.QUERIES.values(), *correlated.KEYS.values()])
def test_unit_operands_are_the_same_times_a_power_of_two(form, width):
    """And their rows' root mean square norm is from 1/2 to 1, give or take what sampling does."""
    x = correlated.affine(form, 3, (500, width), CPU, "bf16").double()
    unit = correlated.affine(form, 3, (500, width), CPU, "bf16", unit=True).double()
    ratio = (x / unit)[unit != 0].unique()
    assert ratio.numel() == 1
    assert torch.frexp(ratio).mantissa.tolist() == [0.5]
    square = unit.square().sum(-1)
    error = 5 * square.std() / 500**0.5
    assert 0.25 - error < square.mean() < 1 + error
