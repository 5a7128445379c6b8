"""Bounds judge bit patterns first: signs of zero, NaN, infinities, then distances in a format's own steps."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitproof.harness.bounds import exact_bits, forward_error, ulps
from bitproof.harness.bounds.norms import relative_rms, scaled_max
from bitproof.harness.errors import SpecError
from bitproof.oracles import formats
from bitproof.oracles.estimates import Estimate, around

FLOATS = [
    np.dtype(dtype)
    for dtype in (
        np.float32,
        np.float16,
        np.float64,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e8m0fnu,
    )
]
SIGNED = [dtype for dtype in FLOATS if dtype.name != "float8_e8m0fnu"]
INTEGERS = [
    np.dtype(name) for name in ("bool", "int8", "uint8", "int16", "int32", "int64", "uint64")
]


def _patterns(dtype: np.dtype[Any], *patterns: int) -> np.ndarray[Any, Any]:
    return np.array(patterns, dtype=f"u{dtype.itemsize}").view(dtype)


def _nan(pattern: int, dtype: np.dtype[Any]) -> bool:
    """From the fields of the pattern, by the definition of each format."""
    if dtype.name == "float8_e8m0fnu":
        return pattern == 0xFF
    if dtype.name == "float8_e4m3fn":
        return pattern & 0x7F == 0x7F
    mantissa = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7, "float8_e5m2": 2}
    ones = (1 << (8 * dtype.itemsize - 1)) - 1
    infinity = ones >> mantissa[dtype.name] << mantissa[dtype.name]
    return pattern & ones > infinity


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@given(data=st.data())
def test_exact_bits_compares_patterns_and_equates_nan(
    dtype: np.dtype[Any], data: st.DataObject
) -> None:
    """Bad is exactly: other bits, unless both are NaN; signalling ones included, without a warning."""
    words = st.integers(0, 2 ** (8 * dtype.itemsize) - 1)
    one, other = data.draw(words), data.draw(words)
    judged = exact_bits().judge(_patterns(dtype, one, one), _patterns(dtype, other, one))
    expected = one != other and not (_nan(one, dtype) and _nan(other, dtype))
    assert (judged is not None) == expected
    if judged is not None:
        assert judged.bad.tolist() == [True, False]
        assert (judged.distance[0] == math.inf) == (_nan(one, dtype) != _nan(other, dtype))
        assert judged.distance[1] == 0


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_are_apart_by_their_difference(dtype: np.dtype[Any]) -> None:
    """Also where the difference overflows the type."""
    ends = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    got, want = np.array([*ends, ends[0]], dtype), np.array([ends[1], ends[0], ends[0]], dtype)
    judged = exact_bits().judge(got, want)
    assert judged is not None
    assert judged.bad.tolist() == [True, True, False]
    gap = float(ends[1] - ends[0])
    assert judged.distance.tolist() == [gap, gap, 0.0]


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_zeros_of_both_signs_are_different_bits(dtype: np.dtype[Any]) -> None:
    """-0 for +0 is wrong, at distance 0."""
    judged = exact_bits().judge(np.array([-0.0]).astype(dtype), np.array([0.0]).astype(dtype))
    assert judged is not None
    assert judged.bad.tolist() == [True]
    assert judged.distance.tolist() == [0.0]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_neighbours_are_one_ulp_apart(dtype: np.dtype[Any]) -> None:
    """Distance counts codes, across binades too."""
    judged = exact_bits().judge(_patterns(dtype, 0x37, 0x38, 2), _patterns(dtype, 0x38, 0x37, 5))
    assert judged is not None
    assert judged.distance.tolist() == [1.0, 1.0, 3.0]


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_distance_counts_through_zero(dtype: np.dtype[Any]) -> None:
    """The third value below zero and the second above are five steps apart."""
    sign = 1 << (8 * dtype.itemsize - 1)
    judged = exact_bits().judge(_patterns(dtype, sign + 3), _patterns(dtype, 2))
    assert judged is not None
    assert judged.distance.tolist() == [5.0]


def test_scalars_and_empty_arrays_are_judged_too() -> None:
    """A 0-d output that is wrong is found; there is nothing wrong in no elements."""
    judged = exact_bits().judge(np.array(1, np.float32), np.array(2, np.float32))
    assert judged is not None
    assert judged.bad.shape == ()
    assert judged.bad.all()
    for shape in ((0,), (3, 0)):
        empty = np.zeros(shape, np.float32)
        assert exact_bits().judge(empty, empty) is None
        judged = ulps(1, because="x").judge(empty, empty)
        assert judged is not None
        assert not judged.bad.any()


def test_exact_bits_needs_the_oracle_in_the_outputs_dtype() -> None:
    """A float64 answer has other bits by nature: that is the spec's mistake, not the kernel's."""
    with pytest.raises(SpecError, match="needs the oracle in the output's dtype float32"):
        exact_bits().judge(np.zeros(1, np.float32), np.zeros(1))


@pytest.mark.parametrize(
    ("got", "expected", "distance"),
    [
        (1.0 + 2**-23, 1.0, 1.0),
        (1.0 - 2**-24, 1.0, 0.5),
        (-1.0, 1.0, 2.0**24),
        (1.0, 1.0 + 2**-25, 0.25),
        (2**-149, 0.0, 1.0),
        (3 * 2**-149, 2**-149, 2.0),
        (-0.0, 0.0, 0.0),
        (2.0**-126 + 2**-149, 2.0**-126, 1.0),
        (math.inf, math.inf, 0.0),
        (math.nan, math.nan, 0.0),
        (math.inf, 3.4e38, math.inf),
        (3.4e38, math.inf, math.inf),
        (-math.inf, math.inf, math.inf),
        (math.nan, 1.0, math.inf),
        (1.0, math.nan, math.inf),
        (math.nan, math.inf, math.inf),
    ],
)
def test_ulps_are_measured_at_the_exact_answer(
    got: float, expected: float, distance: float
) -> None:
    """In steps of the output's format at the oracle's value; no NaN or infinity is near anything."""
    judged = ulps(1, because="the sum is rounded once").judge(
        np.array([got], np.float32), np.array([expected], np.float64)
    )
    assert judged is not None
    assert judged.distance.tolist() == [distance]
    assert judged.bad.tolist() == [distance > 1]


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != np.float64], ids=str)
@given(data=st.data())
def test_ulps_of_codes_in_one_binade_count_codes(dtype: np.dtype[Any], data: st.DataObject) -> None:
    """For two codes that share an exponent, ulps and exact bits agree on how far they are apart."""
    fmt = formats.of_dtype(dtype)
    binade = data.draw(st.integers(0, (fmt.largest_code >> fmt.mantissa_bits) - 1))
    steps = st.integers(0, (1 << fmt.mantissa_bits) - 1)
    codes = [(binade << fmt.mantissa_bits) + data.draw(steps) for _ in range(2)]
    one, other = (_patterns(dtype, code) for code in codes)
    judged = ulps(1, because="x").judge(one, other)
    assert judged is not None
    assert judged.distance.tolist() == [float(abs(codes[0] - codes[1]))]


@pytest.mark.parametrize("dtype", [*INTEGERS, np.dtype(np.float64)], ids=str)
def test_ulps_say_nothing_of_other_outputs(dtype: np.dtype[Any]) -> None:
    """Integers have no last place, and float64 is what the answer is in."""
    with pytest.raises(SpecError, match=f"ulps says nothing of an output in {dtype}"):
        ulps(1, because="x").judge(np.zeros(1, dtype), np.zeros(1))


@pytest.mark.parametrize(("count", "because"), [(0, "x"), (-1, "x"), (1, "")])
def test_a_loose_bound_needs_a_reason(count: float, because: str) -> None:
    """Nothing looser than exact bits comes without saying why."""
    with pytest.raises(SpecError, match="a positive count and the reason"):
        ulps(count, because=because)


def test_formulas_are_words() -> None:
    """What a report prints of a bound."""
    assert exact_bits().formula == "exact bits, any NaN equal to any NaN"
    assert ulps(1.5, because="one product").formula == "1.5 ulp, because one product"


def test_a_forward_error_judges_each_element_by_its_own_interval() -> None:
    """On the interval's ends is inside, the next float beyond is not; NaN asks for NaN alone."""
    value = np.array([1.0, 1.0, 1.0, np.nan, 2.0, np.nan])
    error = np.array([2.0**-23, 2.0**-23, 0.0, 1.0, np.inf, 1.0])
    got = np.array([1 + 2**-23, 1 + 2**-22, 1.0, np.nan, np.inf, 1.0], dtype=np.float32)
    judged = forward_error(because="a reason").judge(got, around(value, error))
    assert judged is not None
    assert judged.bad.tolist() == [False, True, False, False, False, True]
    assert judged.distance[:3].tolist() == [2.0**-23, 2.0**-22, 0.0]


def test_a_forward_error_reads_small_floats_and_integers_as_numbers() -> None:
    """A code of e4m3 is its value, a byte its number, and zeros have no sign."""
    for got in (np.array([-0.0, 2.0], dtype=ml_dtypes.float8_e4m3fn), np.array([0, 2], np.uint8)):
        judged = forward_error(because="a reason").judge(got, around(np.array([0.0, 2.0]), 0.0))
        assert judged is not None
        assert not judged.bad.any()


def test_an_interval_past_the_range_of_the_output_holds_its_infinity() -> None:
    """From where rounding to nearest gives it, of its own sign; half a place below, it is wrong."""
    largest = float(np.finfo(np.float32).max)
    value = np.array([-4.3e38, 4.3e38, largest, largest + 2.0**103])
    got = np.array([-np.inf, -np.inf, np.inf, np.inf], dtype=np.float32)
    judged = forward_error(because="a reason").judge(got, around(value, 0.0))
    assert judged is not None
    assert judged.bad.tolist() == [False, True, True, False]
    assert judged.distance[[0, 3]].tolist() == [0.0, 0.0]


def test_estimates_and_bounds_have_to_fit() -> None:
    """An estimate is no exact answer, and a plain answer has no interval."""
    estimate, got = around(np.ones(1), 0.0), np.ones(1, dtype=np.float32)
    for bound in (exact_bits(), ulps(1, because="a reason")):
        with pytest.raises(SpecError, match="declare a forward_error"):
            bound.judge(got, estimate)
    with pytest.raises(SpecError, match="needs an oracle that answers with an Estimate"):
        forward_error(because="a reason").judge(got, got)
    with pytest.raises(SpecError, match="needs its derivation in words"):
        forward_error(because="")


BF16, E4M3, E5M2 = (
    np.dtype(t) for t in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
)


@pytest.mark.parametrize(
    ("dtype", "exact", "got", "holds"),
    [
        (BF16, 3.414e38, np.inf, True),
        (BF16, -3.414e38, -np.inf, True),
        (BF16, 3.414e38, -np.inf, False),
        (BF16, 3.3895e38, np.inf, False),
        (BF16, np.inf, 3.3895e38, False),
        (BF16, 1e39, 3.3895e38, True),
        (E4M3, 500.0, 448.0, True),
        (E4M3, -1e9, -448.0, True),
        (E4M3, 500.0, np.nan, False),
        (E4M3, 500.0, 416.0, False),
        (E5M2, 1e6, 57344.0, True),
        (E5M2, 1e6, np.inf, True),
    ],
)
@pytest.mark.parametrize(
    "bound",
    [
        ulps(1, because="rounded once"),
        relative_rms(1e-2, because="a contract"),
        scaled_max(1e-2, because="a contract"),
    ],
    ids=["ulps", "relative_rms", "scaled_max"],
)
def test_an_answer_beyond_the_format_is_its_infinity_or_its_largest(
    bound: Any, dtype: np.dtype[Any], exact: float, got: float, holds: bool
) -> None:
    """A float64 answer does not say whether a kernel saturates; anything else is wrong."""
    judgement = bound.judge(np.array([got]).astype(dtype), np.array([exact]))
    assert (not judgement.bad.any()) is holds


@pytest.mark.parametrize(("low", "high"), [(np.nan, 1.0), (0.0, np.nan), (2.0, 1.0)])
def test_an_interval_that_is_none_is_the_oracles_mistake(low: float, high: float) -> None:
    """It is named with its element, and no kernel fails by it."""
    estimate = Estimate(
        value=np.array([1.0, 1.0]), low=np.array([1.0, low]), high=np.array([1.0, high])
    )
    with pytest.raises(SpecError, match=r"interval at \[1\] is from .* in ascending order"):
        forward_error(because="x").judge(np.ones(2, np.float32), estimate)
