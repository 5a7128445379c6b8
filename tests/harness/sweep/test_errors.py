"""The largest errors of results: their sides, the inputs that show them, and what has no distance."""

from __future__ import annotations

import torch

from bitproof.harness.sweep.errors import Errors, Largest, Tally

INFINITY, NAN = float("inf"), float("nan")


def judge(got: list[float], exact: list[float], dtype: torch.dtype = torch.bfloat16) -> Errors:
    """The errors of results in `dtype` whose operand is the number of the result, counted from 1."""
    tally = Tally(dtype)
    operand = torch.arange(1, len(got) + 1, dtype=torch.float32)
    tally.add(torch.tensor(got).to(dtype), torch.tensor(exact, dtype=torch.float64), [operand])
    return tally.errors()


def test_exact_results_have_no_error() -> None:
    """Zeros and both signs included."""
    assert judge([1.0, -2.0, 0.0], [1.0, -2.0, 0.0]) == Errors(tried=3)


def test_errors_are_counted_in_steps_of_the_exact_value_s_binade() -> None:
    """bf16 has steps of 2^-7 in [1, 2) and of 2^-8 below; the side is that of the magnitude."""
    found = judge([1.0, -1.0], [1.0 + 2.0**-9, -(1.0 - 2.0**-9)])
    assert found.normal["toward"] == Largest(ulps=0.25, inputs=("0x3f800000",), got="0x3f80")
    assert found.normal["away"] == Largest(ulps=0.5, inputs=("0x40000000",), got="0xbf80")


def test_a_result_of_the_other_sign_is_too_small() -> None:
    """As if its magnitude had passed zero."""
    assert judge([-1.0], [1.0]).normal["toward"].ulps == 256.0


def test_errors_on_one_side_leave_the_other_out() -> None:
    """So that it can be told from a side with small errors."""
    assert set(judge([1.0, -1.0], [1.001, -1.002]).normal) == {"toward"}


def test_the_first_of_equal_errors_is_kept_over_batches() -> None:
    """So that the input does not depend on the batches."""
    tally = Tally(torch.bfloat16)
    for start in (4.0, 8.0):
        got = torch.tensor([1.0, 1.0]).bfloat16()
        exact = torch.tensor([1.001, 1.001], dtype=torch.float64)
        tally.add(got, exact, [torch.tensor([start, start + 1])])
    assert tally.errors().normal["toward"].inputs == ("0x40800000",)
    assert tally.errors().tried == 4


def test_an_infinity_is_one_step_beyond_the_largest_number() -> None:
    """Where a number in range is right."""
    largest = torch.finfo(torch.float16).max
    found = judge([INFINITY], [largest], torch.float16)
    assert found.normal["away"].ulps == 1.0


def test_subnormal_arguments_and_values_are_apart() -> None:
    """A flushed bf16 subnormal is as many steps away as it has; a subnormal fp32 argument counts too."""
    found = judge([0.0], [2.0**-127])
    assert found.normal == {}
    assert found.subnormal["toward"].ulps == 64.0
    tally = Tally(torch.bfloat16)
    exact = torch.tensor([1.001], dtype=torch.float64)
    tally.add(torch.tensor([1.0]).bfloat16(), exact, [torch.tensor([2.0**-140])])
    assert set(tally.errors().subnormal) == {"toward"}


def test_what_is_beyond_the_range_is_named_and_not_measured() -> None:
    """464 is e4m3's tie between 448 and what it does not have; the largest number is in range."""
    e4m3 = torch.float8_e4m3fn
    found = judge([448.0, 448.0, NAN, -448.0], [463.0, 464.0, 1e4, -INFINITY], e4m3)
    assert found.beyond == ("NaN", "the largest")
    assert found.infinite == ("the largest",)
    assert found.normal["toward"].ulps == 15 / 32


def test_nan_that_is_lost_and_made_is_counted_with_its_first_input() -> None:
    """And is no part of any distance."""
    found = judge([1.0, NAN, NAN, 2.0], [NAN, 1.0, NAN, NAN])
    assert (found.nan_lost, found.nan_made) == (2, 1)
    assert found.nan_at == {"lost": ("0x3f800000",), "made": ("0x40000000",)}
    assert found.normal == {}


def test_an_infinity_that_becomes_a_number_is_named() -> None:
    """Apart from one that stays."""
    assert judge([65536.0, -INFINITY], [INFINITY, INFINITY]).infinite == ("another number",)
