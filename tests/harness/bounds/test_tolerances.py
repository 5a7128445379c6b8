"""A contract's own numbers, and what agreement says of those that hold nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitproof.harness.bounds.tolerances import close, row_rms
from bitproof.harness.case import build
from bitproof.harness.errors import SpecError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.report import compare
from bitproof.harness.search import falsify
from tests.harness.plain import CASE, SPEC, PlainLane, variant

WHOSE = "the customer's contract"


def test_close_allows_what_its_tolerances_say() -> None:
    """Absolute and relative ones added, and the infinity that a value rounds to."""
    bound = close(rtol=0.25, atol=1.0, because=WHOSE)
    expected = np.array([0.0, 4.0, 8.0, 1e300])
    inside = bound.judge(np.array([1.0, 6.0, 5.0, np.inf], dtype=np.float32), expected)
    assert inside is not None
    assert not inside.bad.any()
    outside = bound.judge(np.array([1.5, 6.5, np.nan, np.inf], dtype=np.float32), expected)
    assert outside is not None
    assert outside.bad.tolist() == [False, False, True, False]
    other = bound.judge(np.array([1.5, 6.5, 8.0, np.inf], dtype=np.float32), expected)
    assert other is not None
    assert other.bad.tolist() == [True, True, False, False]


def test_a_row_is_judged_by_its_own_size() -> None:
    """A fault in a small row is not lost in large ones."""
    bound = row_rms(0.1, because=WHOSE)
    expected = np.array([[1e3, 1e3], [1.0, 1.0]])
    judgement = bound.judge(np.add(expected, [[10.0, 10.0], [0.5, 0.0]]), expected)
    assert judgement is not None
    assert judgement.bad.tolist() == [[False, False], [True, True]]
    assert judgement.wrong == "1 of 2 rows"


@pytest.mark.parametrize(
    "make",
    [
        lambda: close(because=WHOSE),
        lambda: close(rtol=-1.0, atol=2.0, because=WHOSE),
        lambda: close(rtol=1.0, because=""),
        lambda: row_rms(0.0, because=WHOSE),
        lambda: row_rms(0.1, because=""),
    ],
)
def test_a_tolerance_needs_a_number_and_an_owner(make: Any) -> None:
    """Both."""
    with pytest.raises(SpecError, match="whose contract"):
        make()


def test_a_bound_that_passes_zeros_is_called_too_wide() -> None:
    """By the search that it passed: nothing was demonstrated."""
    wide = variant(bounds={"y": close(atol=1e3, because=WHOSE)})
    result = falsify.search(wide, "agreement", PlainLane(), max_examples=20)
    assert result.outcome is Outcome.NOT_DEMONSTRATED
    assert not result.holds
    assert result.undemonstrated == (
        "never told y from zeros and other rows: its bound is too wide"
    )
    narrow = variant(bounds={"y": close(rtol=1e-6, because=WHOSE)})
    assert (
        falsify.search(narrow, "agreement", PlainLane(), max_examples=20).outcome is Outcome.PASSED
    )


def test_a_derived_bound_is_as_wide_as_it_has_to_be() -> None:
    """Nothing is measured of it."""
    inputs, widths = build(CASE, PlainLane().device), dict[str, int]()
    outputs = SPEC.run(inputs.tensors, inputs.params)
    assert compare.against_oracle(SPEC, outputs, inputs, widths=widths)[0] == []
    assert widths == {}
