"""An object that is built once is judged in later calls, so that what it keeps shows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bitproof.harness import lanes
from bitproof.harness.case import Launch, build
from bitproof.harness.checks import run
from bitproof.harness.objects import of_object
from bitproof.harness.outcomes import Outcome
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import with_fault
from tests.first_specs.judging import judge
from tests.harness.stateful import SPEC

lanes.choose()
LANE = lanes.present()


def _found() -> FoundSpec:
    return find(["tests.harness.stateful"])[0]


def test_a_right_object_agrees_after_warm_calls() -> None:
    """What it keeps does not show; the run's summary counts warm calls."""
    result = judge(_found(), "agreement", 30)
    assert result.outcome is Outcome.PASSED, result.findings
    assert result.covered["warm calls"]
    assert result.covered["warm calls in the same storage"]


@pytest.mark.parametrize("fault", [fault.name for fault in SPEC.faults])
def test_state_between_calls_is_caught(fault: str) -> None:
    """A workspace that is not cleared, and answers that were kept by storage or by shape."""
    assert judge(with_fault(_found(), fault), "agreement", 60).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("fault", "warm", "reuse", "caught"),
    [
        ("a workspace that is not cleared", 0, False, False),
        ("a workspace that is not cleared", 1, False, True),
        ("the first answer of a storage", 3, False, False),
        ("the first answer of a storage", 1, True, True),
    ],
)
def test_a_case_says_what_was_called_before(
    fault: str, warm: int, reuse: bool, caught: bool
) -> None:
    """The object is built anew for each run: a case fails or holds whatever ran earlier."""
    spec = with_fault(_found(), fault).spec
    kind: Any = spec.case
    case = kind(rows=2, columns=3, launch=Launch(warm=warm, reuse=reuse))
    for _ in range(2):
        result = run("agreement", spec, build(case, LANE.device), LANE)
        assert result.outcome.is_defect is caught, result.text


@pytest.mark.parametrize("reuse", [False, True])
def test_warm_calls_see_other_values_and_leave_none(reuse: bool) -> None:
    """Floats are moved round, integers stay; values come back in the same memory, and no version moves."""
    seen: list[tuple[list[float], list[int], bool]] = []
    x, n = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([7, 8])
    version = x._version

    def make(tensors: Any, params: Any) -> Any:
        def call(given: Any, params: Any) -> Any:
            same = given["x"].data_ptr() == x.data_ptr()
            seen.append((given["x"].tolist(), given["n"].tolist(), same))
            return {"y": given["x"] * 2}

        return call

    found = of_object(make)({"x": x, "n": n}, {"launch": Launch(warm=2, reuse=reuse)})
    assert found["y"].tolist() == [2.0, 4.0, 6.0]
    assert seen == [
        ([3.0, 1.0, 2.0], [7, 8], reuse),
        ([2.0, 3.0, 1.0], [7, 8], reuse),
        ([1.0, 2.0, 3.0], [7, 8], True),
    ]
    assert x._version == version
