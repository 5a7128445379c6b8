"""Bounds by norms: one token's fault shows in its row, a contract's threshold in the whole."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bitproof.harness.bounds import Bound, all_of, exact_bits, forward_error
from bitproof.harness.bounds.norms import relative_error, relative_rms, scaled_max, storage_model
from bitproof.harness.case import Inputs
from bitproof.harness.errors import SpecError
from bitproof.harness.outcomes import Finding
from bitproof.harness.report import compare
from bitproof.oracles.estimates import around
from bitproof.oracles.modelled import Modelled
from tests.harness.plain import variant

MODEL = storage_model(1, because="a test")
CONTRACT = relative_rms(0.008, because="the report's test asks it")


def _answer(value: Any, model: Any = None, floor: Any = 0.0, **rest: Any) -> Modelled:
    value = np.asarray(value, dtype=np.float64)
    return Modelled(
        value=value,
        model=value if model is None else np.asarray(model, dtype=np.float64),
        floor=np.asarray(floor, dtype=np.float64),
        **{"rows": 1, **rest},
    )


def _judged(bound: Bound, got: Any, answer: Any) -> list[bool]:
    """Which elements are bad."""
    got = np.asarray(got, dtype=np.float32)
    judged = bound.judge(got, answer)
    return [False] * got.size if judged is None else judged.bad.ravel().tolist()


def _found(got: torch.Tensor, answer: Any, bound: Bound) -> Finding | None:
    """What the report says of it."""
    spec = variant(oracle=lambda tensors, params: {"y": answer}, bounds={"y": bound})
    findings, _ = compare.against_oracle(spec, {"y": got}, Inputs(tensors={}, params={}))
    return findings[0] if findings else None


# --- the storage model


def test_a_row_may_lose_what_its_storage_loses_and_its_floor() -> None:
    """Up to slack * 3 + 5 in the Euclidean norm, in each row by its own figures; beyond it is bad."""
    answer = _answer([[0.0, 0.0]] * 20, model=[[3.0, 0.0]] * 20, floor=[[3.0, 4.0]])
    got = [[0.0, 8.0], [6.0, 8.0], [6.0, -8.0]] + [[0.0, 0.0]] * 17
    assert _judged(MODEL, got, answer)[:6] == [False, False, True, True, True, True]
    assert _judged(storage_model(5 / 3, because="a test"), got, answer) == [False] * 40
    assert _judged(storage_model(1.6, because="a test"), got, answer)[2:6] == [True] * 4


@pytest.mark.parametrize("rows", [1, 4, 64])
def test_rows_together_lose_what_is_likely(rows: int) -> None:
    """With slack 4, one row four times what storage and floor leave it, 64 rows 1.59 times."""
    bound = storage_model(4, because="a test")
    answer = _answer([[0.0, 0.0]] * rows, model=[[3.0, 0.0]] * rows, floor=[[4.0, 0.0]])
    most = 5 * {1: 4.0, 4: 2.625, 64: 1.59375}[rows]
    for size, bad in ((0.999 * min(most, 16), False), (1.001 * most, True)):
        assert _judged(bound, [[size, 0.0]] * rows, answer) == [bad] * 2 * rows
    half = rows // 2
    alone = [[2 * most, 0.0]] * half + [[0.0, 0.0]] * (rows - half)
    judged = bound.judge(np.asarray(alone, np.float32), answer)
    assert judged is not None
    assert judged.bad.any() == (half > 0)


@pytest.mark.parametrize(("size", "bad"), [(1.593, False), (1.595, True)])
def test_a_row_of_many_numbers_counts_as_several(size: float, bad: bool) -> None:
    """Eight rows of 128 are judged together as 64 rows of few."""
    answer = _answer(np.zeros((8, 128)), model=np.full((8, 128), 3.0), floor=4.0)
    judged = storage_model(4, because="a test").judge(np.full((8, 128), 5 * size), answer)
    assert judged is not None
    assert judged.bad.all() == bad


def test_no_row_lends_to_another() -> None:
    """What storage explains in one row does not excuse an error in the next."""
    answer = _answer([[1.0, 1.0], [1.0, 1.0]], model=[[9.0, 9.0], [1.0, 1.0]])
    assert _judged(MODEL, [[9, 9], [1, 1]], answer) == [False] * 4
    assert _judged(MODEL, [[1, 1], [1, 1 + 2**-23]], answer) == [False, False, True, True]


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_rows_are_the_leading_axes(rows: int) -> None:
    """One wrong element condemns the elements that share its leading indices, and none besides."""
    value = np.ones((2, 3, 4))
    got = np.ones((2, 3, 4), np.float32)
    got[1, 2, 3] = 2
    judged = MODEL.judge(got, _answer(value, rows=rows))
    assert judged is not None
    expected = np.zeros((2, 3, 4), dtype=bool)
    expected[(1, 2, 3)[:rows]] = True
    assert judged.bad.tolist() == expected.tolist()
    assert judged.worst == (1, 2, 3)
    assert judged.wrong == f"1 of {math.prod((2, 3, 4)[:rows])} rows"


@given(st.data())
def test_the_model_itself_is_always_inside_and_any_more_is_not(data: st.DataObject) -> None:
    """A kernel that rounds as the model does passes with slack 1; one that loses twice as much does not."""
    shape = data.draw(arrays.array_shapes(min_dims=1, max_dims=3, max_side=4))
    floats = st.floats(-(2.0**20), 2.0**20, width=32)
    value = data.draw(arrays.arrays(np.float64, shape, elements=floats))
    model = data.draw(arrays.arrays(np.float64, shape, elements=floats))
    answer = _answer(value, model, rows=data.draw(st.integers(0, len(shape))))
    judged = MODEL.judge(model, answer)
    assert judged is None or not judged.bad.any()
    judged = MODEL.judge(value + 2 * (model - value), answer)
    assert judged is not None
    assert judged.bad.any() == (model != value).any()


@pytest.mark.parametrize(
    ("got", "value", "bad"),
    [
        (math.nan, math.nan, False),
        (math.inf, math.inf, False),
        (math.nan, 1.0, True),
        (1.0, math.nan, True),
        (math.inf, 1.0, True),
        (-math.inf, math.inf, True),
        (math.nan, math.inf, True),
    ],
)
@pytest.mark.parametrize(
    "bound", [MODEL, CONTRACT, scaled_max(0.5, because="a test")], ids=lambda b: type(b).__name__
)
def test_nan_and_infinities_come_before_any_norm(
    bound: Bound, got: float, value: float, bad: bool
) -> None:
    """They must be where the exact answer has them, whatever else the norms would excuse."""
    answer = _answer([[value, 100.0]], model=[[value, 1e9]], floor=1e9)
    assert _judged(bound, [[got, 100.0]], answer) == [bad, False]


def test_an_overflow_in_the_model_excuses_nothing() -> None:
    """Where storage overflows and the exact answer does not, the kernel has to be exact or explained."""
    answer = _answer([[1.0, 1.0]], model=[[math.inf, 1.0]])
    assert _judged(MODEL, [[1, 1]], answer) == [False, False]
    assert _judged(MODEL, [[2, 1]], answer) == [True, True]
    assert _judged(MODEL, [[math.inf, 1]], answer) == [True, False]


def test_a_report_names_the_worst_row_its_element_and_the_count_of_rows() -> None:
    """The row farthest beyond its own allowance, not the largest error; the formula is printed."""
    value = np.ones((2, 2, 2))
    model = value + np.array([[[0.5, 0], [8, 0]], [[0.25, 0], [0, 0.25]]])
    got = torch.tensor([[[1.0, 1.0], [8.0, 8.0]], [[1.0, 3.0], [1.0, 1.5]]])
    finding = _found(
        got, _answer(value, model, floor=0.25, rows=2), storage_model(2, because="why")
    )
    assert finding is not None
    assert finding.index == (1, 0, 1)
    assert finding.lines[2:4] == (
        "distance  2 in norm over [1, 0, :], allowed 0.853553 (storage model, each row's error at most "
        "2 times that of its stored roundings plus the fp32 floor, all rows' together little more than "
        "once, because why)",
        "wrong     1 of 4 rows",
    )


def test_the_worst_measure_is_in_units_of_what_a_row_is_allowed() -> None:
    """What the summary of a run shows."""
    answer = _answer([[1.0], [1.0]], model=[[2.0], [5.0]])
    spec = variant(oracle=lambda tensors, params: {"y": answer}, bounds={"y": MODEL})
    outputs = {"y": torch.tensor([[1.5], [2.0]])}
    findings, worst = compare.against_oracle(spec, outputs, Inputs(tensors={}, params={}))
    assert findings == []
    assert worst == 0.5


def test_small_floats_are_read_as_numbers() -> None:
    """An output in bf16 is judged by its values, zeros without a sign."""
    got = np.array([[1.0, -0.0]], dtype=ml_dtypes.bfloat16)
    judged = MODEL.judge(got, _answer([[1.0, 0.0]]))
    assert judged is not None
    assert not judged.bad.any()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 4)])
def test_scalars_and_nothing_are_judged_too(shape: tuple[int, ...]) -> None:
    """There is nothing wrong in no elements; a scalar is a row of its own."""
    value = np.ones(shape)
    for bound in (MODEL, CONTRACT, scaled_max(0.5, because="a test")):
        for wrong in (0.0, 1.0):
            judged = bound.judge(
                (value + wrong).astype(np.float32), _answer(value, rows=len(shape))
            )
            assert (judged is not None and bool(judged.bad.any())) == (wrong > 0 and shape == ())


# --- contracts' own thresholds


def _tokens() -> tuple[np.ndarray[Any, Any], Modelled]:
    """A right kernel's output in bf16 of [10240, 4, 32] elements, and the answer it is judged by."""
    phase = np.arange(10240 * 4 * 32, dtype=np.float64).reshape(10240, 4, 32)
    value = 0.04 * math.sqrt(2) * np.cos(phase)
    got = value.astype(np.float32).astype(ml_dtypes.bfloat16)
    return got, _answer(value, got.astype(np.float64), floor=2.0**-24 * np.abs(value), rows=2)


def test_a_fault_in_one_token_of_ten_thousand_is_caught_by_rows_alone() -> None:
    """An error of 75 % in one token is 0.74 % of the whole: within 0.8 %, and far beyond its row."""
    got, answer = _tokens()
    got[7001] = (0.25 * answer.value[7001]).astype(np.float32).astype(ml_dtypes.bfloat16)
    wide = got.astype(np.float64)
    assert relative_error(wide, answer.value) == pytest.approx(0.75 / math.sqrt(10240), rel=0.05)
    judged = CONTRACT.judge(got, answer)
    assert judged is not None
    assert not judged.bad.any()
    judged = storage_model(2, because="a test").judge(got, answer)
    assert judged is not None
    assert sorted({int(token) for token in np.nonzero(judged.bad)[0]}) == [7001]
    assert judged.worst is not None
    assert judged.worst[0] == 7001
    assert judged.wrong == "4 of 40960 rows"


def test_a_small_error_in_every_token_is_caught_by_the_contract_alone() -> None:
    """1 % everywhere, where a model of coarse storage would explain 2 %: the limit still holds."""
    value = _tokens()[1].value
    got = (1.01 * value).astype(np.float32)
    answer = _answer(value, 1.02 * value, rows=2)
    assert not any(_judged(MODEL, got, answer))
    assert all(_judged(MODEL, got, dataclasses.replace(answer, limit=0.008)))
    assert not any(_judged(MODEL, got, dataclasses.replace(answer, limit=0.0101)))


def test_a_broken_limit_is_worded_as_what_it_is() -> None:
    """The relative RMS, the limit, and the element that errs most."""
    answer = _answer([[3.0, 4.0]], model=[[9.0, 9.0]], limit=0.1)
    finding = _found(torch.tensor([[3.0, 5.0]]), answer, MODEL)
    assert finding is not None
    assert finding.index == (0, 1)
    assert finding.lines[2].startswith("distance  0.2 relative RMS, allowed 0.1 (storage model, ")
    assert finding.lines[3] == "wrong     the output as a whole"


@pytest.mark.parametrize("answer", [np.array([[3.0, 4.0]]), around(np.array([[3.0, 4.0]]), 9.0)])
def test_thresholds_take_any_answer_with_an_exact_value(answer: Any) -> None:
    """A plain float64 answer, an estimate's value; 1 in 5 of the norm, 1 in 4 of the largest."""
    got = [[3.0, 5.0]]
    assert _judged(relative_rms(0.2, because="a test"), got, answer) == [False, False]
    assert _judged(relative_rms(0.19, because="a test"), got, answer) == [True, True]
    assert _judged(scaled_max(0.25, because="a test"), got, answer) == [False, False]
    assert _judged(scaled_max(0.24, because="a test"), got, answer) == [False, True]


def test_an_answer_of_zeros_asks_for_zeros() -> None:
    """There is no scale that an error could be relative to."""
    zeros = np.zeros((1, 2))
    for bound in (CONTRACT, scaled_max(1, because="a test"), MODEL):
        answer = _answer(zeros) if bound is MODEL else zeros
        assert _judged(bound, [[0, -0.0]], answer) == [False, False]
        assert any(_judged(bound, [[0, 2.0**-149]], answer))


@pytest.mark.parametrize(
    ("got", "value", "error"),
    [
        ([3.0, 5.0], [3.0, 4.0], 0.2),
        ([1.0, math.nan], [1.0, math.nan], 0.0),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([1.0], [0.0], math.inf),
        ([1.0, math.nan], [1.0, 1.0], math.inf),
        ([1.0, math.inf], [1.0, -math.inf], math.inf),
        ([], [], 0.0),
    ],
)
def test_the_relative_error_is_a_ratio_of_norms(
    got: list[float], value: list[float], error: float
) -> None:
    """Of what is finite; infinite beside an answer of zeros, and for other NaN or infinities."""
    assert relative_error(np.array(got), np.array(value)) == error


# --- several bounds


def test_all_bounds_must_hold_and_the_first_that_fails_is_worded() -> None:
    """Every formula is in the report."""
    both = all_of(scaled_max(0.5, because="a"), relative_rms(0.1, because="b"))
    answer = np.array([3.0, 4.0])
    assert _found(torch.tensor([3.0, 4.25]), answer, both) is None
    finding = _found(torch.tensor([3.0, 5.0]), answer, both)
    assert finding is not None
    assert finding.lines[2] == (
        "distance  0.2 relative RMS, allowed 0.1 "
        "(0.5 of the largest magnitude, because a; and relative RMS at most 0.1, because b)"
    )
    finding = _found(torch.tensor([3.0, 7.0]), answer, both)
    assert finding is not None
    assert finding.lines[2].startswith("distance  3 absolute, allowed 2 (")


def test_what_passes_every_bound_is_measured_by_the_tightest() -> None:
    """The worst distance of the summary is the one nearest to its limit."""
    both = all_of(scaled_max(0.5, because="a"), relative_rms(0.25, because="b"))
    judged = both.judge(np.array([3.0, 5.0], np.float32), np.array([3.0, 4.0]))
    assert judged is not None
    assert judged.ratio == pytest.approx(0.8)


def test_bounds_that_have_no_objection_leave_nothing_to_report() -> None:
    """Exact bits twice, and equal."""
    equal = np.ones(2, np.float32)
    assert all_of(exact_bits(), exact_bits()).judge(equal, equal) is None


def test_a_reason_and_a_sensible_figure_are_needed() -> None:
    """Nothing looser than exact bits comes without saying why."""
    for slack, because in ((0.9, "x"), (math.nan, "x"), (2, "")):
        with pytest.raises(
            SpecError, match="storage_model needs a slack of at least 1 and the reas"
        ):
            storage_model(slack, because=because)
    for limit, because in ((0, "x"), (math.nan, "x"), (0.1, "")):
        with pytest.raises(
            SpecError, match="relative_rms needs a positive limit and whose contrac"
        ):
            relative_rms(limit, because=because)
        with pytest.raises(SpecError, match="scaled_max needs a positive limit and whose contract"):
            scaled_max(limit, because=because)
    with pytest.raises(SpecError, match="all_of combines two or more bounds, it got 1"):
        all_of(MODEL)


def test_answers_and_bounds_have_to_fit() -> None:
    """A modelled answer has no bits and no interval, and a plain answer no model."""
    got = np.ones((1, 1), np.float32)
    for bound, said in (
        (exact_bits(), "answers with a Modelled: declare a storage_model for it"),
        (forward_error(because="x"), "needs an oracle that answers with an Estimate"),
    ):
        with pytest.raises(SpecError, match=said):
            bound.judge(got, _answer(got))
    with pytest.raises(SpecError, match="needs an oracle that answers with a Modelled"):
        MODEL.judge(got, np.ones((1, 1)))
