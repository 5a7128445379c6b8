"""Both models of a tensor core give what a card gave, by digests that `tests.evidence.tensor_cores` took."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bitproof.harness.lanes.interpreter.numerics.tensor_cores import multiply_add
from bitproof.oracles.tensor_cores import FORMATS, SM_90, multiply
from tests.evidence.tensor_cores import (
    DEPTHS,
    DIGESTS,
    FIRST,
    KINDS,
    Array,
    digest,
    draw_problem,
    operands_of,
    read_as,
)

TAKEN = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {"outputs": 80_000, "digests": {}}


def compute(
    key: tuple[str, str], kind: str, depth: int, batches: int | None, *, judge: bool
) -> Array:
    """The bits of the first `batches` batches of a row's problem, by what judges or by the lane's code."""
    problem = draw_problem(key, kind, depth, TAKEN["outputs"])
    fmt, one = FORMATS[read_as(key)], SM_90[key]
    out = []
    for a, b, c in zip(problem.a[:batches], problem.b[:batches], problem.c[:batches], strict=True):
        x, y = operands_of(key, a, b.T)
        with np.errstate(all="ignore"):
            if judge:
                out.append(multiply(x, y, c, fmt, one))
            else:
                left, right = (
                    np.ascontiguousarray(each).view(fmt.numpy_dtype).astype(np.float32)
                    for each in (x, y)
                )
                out.append(multiply_add(left, right, c, fmt, one))
    return np.stack(out).view(np.uint32)


@pytest.mark.parametrize("key", sorted(SM_90), ids=[" ".join(key) for key in sorted(SM_90)])
def test_the_two_models_agree_on_what_the_card_was_given(key: tuple[str, str]) -> None:
    """One batch of every kind of operands."""
    for kind in KINDS:
        one, other = (compute(key, kind, DEPTHS[0], 1, judge=judge) for judge in (True, False))
        assert digest(one) == digest(other), kind


@pytest.mark.parametrize("row", sorted(TAKEN["digests"]))
def test_the_lane_gives_the_first_of_what_the_card_gave(row: str) -> None:
    """Some thousand outputs of each row, kind and depth."""
    key, kind, depth = _named(row)
    assert digest(compute(key, kind, depth, FIRST, judge=False)) == TAKEN["digests"][row]["first"]


@pytest.mark.slow
@pytest.mark.parametrize("row", sorted(TAKEN["digests"]))
def test_the_lane_gives_all_that_the_card_gave(row: str) -> None:
    """A million outputs of each row of the table."""
    key, kind, depth = _named(row)
    assert digest(compute(key, kind, depth, None, judge=False)) == TAKEN["digests"][row]["all"]


def _named(row: str) -> tuple[tuple[str, str], str, int]:
    key, kind, depth = row.split(", ")
    operand, _, instruction = key.partition(" ")
    return (operand, instruction), kind, int(depth)
