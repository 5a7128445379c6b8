"""A claim of equal bits over float sums is shown to hang on their order, or is not demonstrated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness import checks, generators
from bitproof.harness.case import Inputs
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.search.falsify import SearchResult
from bitproof.harness.spec import Bitwise, Params, Tensors
from tests.harness.plain import SPEC

ROWS, COLUMNS = 4, 32
OTHER = "another order of sums changed bits of y"


@triton.jit
def _add_product(decay, value, next_decay, next_value):
    return decay * next_decay, value * next_decay + next_value


@triton.jit
def _greatest(a, b):
    return tl.maximum(a, b)


@triton.jit
def _summing(x, y, OP: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    a = tl.load(x + row * N + i)
    if OP == "sum":
        r = tl.sum(a, 0)
    elif OP == "product":
        r = tl.reduce(a + 1.5, 0, _multiply)
    elif OP == "scan":
        r = tl.sum(tl.where(i == N - 1, tl.cumsum(a, 0), 0.0), 0)
    elif OP == "affine":
        _, s = tl.associative_scan((a * 0 + 0.7, a), 0, _add_product)
        r = tl.max(tl.where(i == N - 1, s, float("-inf")), 0)
    elif OP == "maximum":
        r = tl.max(a, 0)
    elif OP == "own maximum":
        r = tl.reduce(a, 0, _greatest)
    elif OP == "one of them":
        r = tl.sum(tl.where(i == 3, a, 0.0), 0)
    elif OP == "two of them":
        r = tl.sum(tl.where(i < 2, a, 0.0), 0)
    elif OP == "count":
        r = tl.sum((a > 0).to(tl.float32), 0)
    tl.store(y + row, r)


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def _into_one(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(y + i * 0, tl.load(x + i))


@triton.jit
def _apart(x, y, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.atomic_add(y + i, tl.load(x + i))


@triton.jit
def _in_turn(x, y, N: tl.constexpr):
    tl.atomic_add(y, tl.sum(tl.load(x + tl.program_id(0) * N + tl.arange(0, N)), 0))


@triton.jit
def _square(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i[:, None] * N + i)
    tl.store(y + i[:, None] * N + i, tl.dot(a, a, input_precision="ieee"))


Run = Callable[[Tensors, Params], dict[str, Tensor]]


def _rows(op: str) -> Run:
    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = torch.empty(ROWS)
        _summing[(ROWS,)](tensors["x"], y, OP=op, N=COLUMNS)
        return {"y": y}

    return run


def _atomics(kernel: Any, programs: int, outputs: int, columns: int = COLUMNS) -> Run:
    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = torch.zeros(outputs)
        kernel[(programs,)](tensors["x"], y, N=columns)
        return {"y": y}

    return run


def _product(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    y = torch.empty(32, 32)
    _square[(1,)](tensors["x"], y, N=32)
    return {"y": y}


def judge(
    run: Run, *, full: bool = True, shape: Any = (ROWS, COLUMNS), **claim: Any
) -> CheckResult:
    """What reproducibility says of a launcher on one case, of values with full mantissas or of integers."""
    words = generators.hash_words(7, 0, shape[0] * shape[1], torch.device("cpu"))
    x = generators.gaussian(words) if full else (words % 16).to(torch.float32)
    lane = InterpreterLane()
    bitwise = Bitwise(runs=3, shown_by="reads fresh memory", **claim)
    spec = dataclasses.replace(SPEC, run=run, reproducible=bitwise)
    return checks.run(
        "reproducibility", spec, Inputs(tensors={"x": x.reshape(shape)}, params={}), lane
    )


@pytest.mark.parametrize("op", ["sum", "product", "scan", "affine"])
def test_sums_within_a_program_take_another_order(op: str) -> None:
    """Reductions and scans, of the language and of a kernel's own."""
    found = judge(_rows(op))
    assert (found.outcome, found.counts) == (Outcome.PASSED, {OTHER: 1})


def test_lanes_that_meet_in_one_atomic_addition_take_another_order() -> None:
    """Within a program the hardware promises no order either."""
    assert judge(_atomics(_into_one, 1, 1)).counts == {OTHER: 1}


def test_a_product_of_matrices_takes_another_order() -> None:
    """Its halves along K one after the other."""
    assert judge(_product, shape=(32, 32)).counts == {OTHER: 1}


@pytest.mark.parametrize("run", [_rows("sum"), _atomics(_into_one, 1, 1)])
def test_exact_sums_show_nothing(run: Run) -> None:
    """Their bits hide which order was taken, so that the claim is not demonstrated."""
    found = judge(run, full=False)
    assert found.counts == {OTHER: 0}
    result = SearchResult(check="reproducibility", kernel="sums")
    result.outcomes[found.outcome] += 1
    result.counts.update(found.counts)
    assert result.outcome is Outcome.NOT_DEMONSTRATED
    assert "its sums gave the same bits in another order" in result.undemonstrated


def test_two_programs_that_add_into_one_element_show_nothing() -> None:
    """An addition commutes, so that two contributions cannot vary."""
    assert judge(_atomics(_in_turn, 2, 1, 2), shape=(2, 2)).counts == {OTHER: 0}
    assert judge(_atomics(_in_turn, 8, 1, 4)).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "run",
    [
        *map(_rows, ("maximum", "own maximum", "one of them", "two of them")),
        _atomics(_apart, ROWS, ROWS * COLUMNS),
    ],
)
def test_what_no_order_can_change_needs_no_control(run: Run) -> None:
    """Maxima, sums with at most two terms, additions that never meet."""
    found = judge(run)
    assert (found.outcome, found.counts) == (Outcome.PASSED, {})


def test_a_reason_why_no_order_matters_is_held_to() -> None:
    """Counts are exact; a sum of full mantissas is not, whatever its spec says."""
    because = "counts below 2^24 are exact"
    assert judge(_rows("count")).counts == {OTHER: 0}
    kept = judge(_rows("count"), any_order=because)
    assert (kept.outcome, kept.counts) == (Outcome.PASSED, {})
    broken = judge(_rows("sum"), any_order=because)
    assert broken.outcome is Outcome.FAILED
    assert broken.findings[0].summary.endswith(
        f"another order of its sums gives other bits, though none should: {because}"
    )
