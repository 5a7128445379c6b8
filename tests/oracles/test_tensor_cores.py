"""A step of a tensor core against exact fractions, and what follows of it for products of many steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitproof.oracles import formats
from bitproof.oracles.tensor_cores import (
    SM_90,
    add_products,
    multiply,
    order_products,
)
from tests.oracles.steps import by_fractions, finite

OPERANDS = {"bf16": "bf16", "fp16": "fp16", "tf32": "fp32", "e4m3": "e4m3", "e5m2": "e5m2"}
PLAIN = sorted(key for key, one in SM_90.items() if not one.promoted)


@pytest.mark.parametrize("key", PLAIN, ids=[" ".join(key) for key in PLAIN])
@settings(max_examples=40)
@given(data=st.data())
def test_a_step_is_what_its_definition_says(key: tuple[str, str], data: st.DataObject) -> None:
    """On numbers of all magnitudes."""
    one, fmt = SM_90[key], formats.by_name(OPERANDS[key[0]])
    codes = st.lists(finite(fmt), min_size=one.terms, max_size=one.terms)
    a, b = data.draw(codes), data.draw(codes)
    start = np.array([data.draw(finite(formats.by_name("fp32")))], np.uint32).view(np.float32)
    arrays = (np.array([codes], fmt.storage) for codes in (a, b))
    got = add_products(*arrays, start, fmt, one)
    assert float(got[0]) == by_fractions(a, b, start[0], fmt, one)


def test_terms_are_cut_below_the_largest() -> None:
    """fp8 on wgmma keeps 13 bits: beside 1, sixteen products of 2^-14 vanish, one by one."""
    fmt, one = formats.by_name("e4m3"), SM_90["e4m3", "wgmma"]
    quarter = int(formats.bits(np.array([2.0**-2]).astype(fmt.numpy_dtype))[0])
    tiny = int(formats.bits(np.array([2.0**-7]).astype(fmt.numpy_dtype))[0])
    a = np.full((1, 32), tiny, fmt.storage)
    got = add_products(a, a, np.ones(1, np.float32), fmt, one)
    assert got[0] == 1.0
    a[0, 0] = quarter
    got = add_products(a, a, np.zeros(1, np.float32), fmt, one)
    assert got[0] == 2.0**-4 + 31 * 2.0**-14


def test_pairs_come_before_pairs() -> None:
    """Of each 32 products those with k mod 4 in {0, 1} make the first step."""
    order = order_products(40, SM_90["e4m3", "mma"])
    assert order[:4].tolist() == [0, 1, 4, 5]
    assert order[16:20].tolist() == [2, 3, 6, 7]
    assert sorted(order[:32].tolist()) == list(range(32))
    assert order[32:36].tolist() == [32, 33, 36, 37]
    assert set(order[36:40].tolist()) == {40}


@pytest.mark.parametrize("key", sorted(SM_90), ids=[" ".join(key) for key in sorted(SM_90)])
def test_small_integers_are_exact(key: tuple[str, str]) -> None:
    """In any order, with or without promotion, for K that is no whole number of steps."""
    one, fmt = SM_90[key], formats.by_name(OPERANDS[key[0]])
    numbers = np.random.default_rng(5).integers(-4, 5, (2, 7, 45)).astype(np.float32)
    a, b = (formats.bits(each.astype(fmt.numpy_dtype)) for each in numbers)
    got = multiply(a, b.T, np.ones((7, 7), np.float32), fmt, one)
    assert np.array_equal(got, 1 + numbers[0] @ numbers[1].T)


def test_nan_and_infinity_follow_the_operands() -> None:
    """0 times infinity and opposite infinities are NaN."""
    fmt, one = formats.by_name("bf16"), SM_90["bf16", "mma"]
    inf, minus, nan, zero, unit = 0x7F80, 0xFF80, 0x7FC0, 0, 0x3F80
    rows = [[inf, unit], [minus, unit], [nan, unit], [inf, minus], [unit, unit]]
    other = [[unit, unit]] * 5
    zeros = [[inf, unit]], [[zero, unit]]
    got = multiply(
        np.array(rows, np.uint16),
        np.array(other, np.uint16)[:1].T,
        np.zeros((5, 1), np.float32),
        fmt,
        one,
    )[:, 0]
    assert got[0] == np.inf
    assert got[1] == -np.inf
    assert np.isnan(got[2:4]).all()
    assert got[4] == 2.0
    a, b = (np.array(each, np.uint16) for each in zeros)
    assert np.isnan(multiply(a, b.T, np.zeros((1, 1), np.float32), fmt, one)).all()


def test_one_sided_sums_of_fp8_fall_short_without_promotion() -> None:
    """At K = 4096 by several percent, by less than a thousandth where each step is promoted."""
    fmt = formats.by_name("e4m3")
    numbers = np.random.default_rng(1).random((2, 4, 4096)).astype(np.float32)
    a, b = (formats.bits(each.astype(fmt.numpy_dtype)) for each in numbers)
    exact = formats.decode(a, fmt) @ formats.decode(b, fmt).T
    errors = {}
    for name in ("wgmma", "wgmma promoted"):
        got = multiply(a, b.T, np.zeros((4, 4), np.float32), fmt, SM_90["e4m3", name])
        errors[name] = float(((got - exact) / exact).mean())
    assert -0.10 < errors["wgmma"] < -0.03
    assert -1e-3 < errors["wgmma promoted"] < 0
