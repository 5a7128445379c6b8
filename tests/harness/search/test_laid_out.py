"""A default run meets every layout that a spec allows, and kernels that assume another fail there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bitproof.harness import checks, lanes
from bitproof.harness.case import build
from bitproof.harness.layouts import LAYOUTS, Layout, lay
from bitproof.harness.outcomes import Outcome
from bitproof.harness.report import failure
from bitproof.harness.search import falsify
from bitproof.harness.search.laid_out import find_laid_cases
from bitproof.harness.subjects.discovery import FoundSpec
from tests.harness import laying, plain

CPU = torch.device("cpu")
# The faults that were reported most, and the layouts of which one shows each.
FAULTS: list[tuple[Callable[..., Any], tuple[Layout, ...]]] = [
    (laying.without_last, ("transposed",)),
    (laying.without_last, ("every second element",)),
    (laying.dense_v, ("expanded",)),
    (laying.ks_for_both, ("padded rows",)),
    (laying.rows_times_columns, ("padded outer axes",)),
]
IDS = [f"{told.__name__} {names[0]}" for told, names in FAULTS]


def test_a_default_run_meets_every_layout_and_a_right_kernel_holds() -> None:
    """All layouts of both tensors are told, although the strategy draws dense tensors alone."""
    result = falsify.search(laying.spec(), "agreement", lanes.present(), max_examples=5)
    assert result.outcome is Outcome.PASSED
    assert {f"{name} {layout}" for name in "kv" for layout in LAYOUTS} - set(result.covered) == {
        "k expanded"  # no case repeats the planes of k
    }


@pytest.mark.parametrize(("told", "names"), FAULTS, ids=IDS)
def test_a_kernel_that_assumes_a_layout_is_caught(
    told: Callable[..., Any], names: tuple[Layout, ...]
) -> None:
    """Within a default run, where the spec allows the layout; dense tensors never show it."""
    lane = lanes.present()
    dense = dataclasses.replace(laying.spec(told), layouts={})
    assert falsify.search(dense, "agreement", lane, max_examples=20).outcome is Outcome.PASSED
    result = falsify.search(laying.spec(told, *names), "agreement", lane, max_examples=5)
    assert result.outcome.is_defect
    assert result.case is not None
    assert result.case.launch.layout


def test_a_drawn_layout_shrinks_away_unless_it_is_needed() -> None:
    """One case in three has one; a fault of dense tensors is shown by dense ones."""
    lane = lanes.present()
    drawn = falsify.draw_cases(laying.spec(drawn=True), 90)
    assert 15 <= sum(bool(case.launch.layout) for case in drawn) <= 45
    wrong = laying.spec(lambda k, v: ((0, 0, 0), v.stride()), drawn=True)
    found = falsify.search(wrong, "agreement", lane, max_examples=50)
    assert found.case is not None
    assert found.case.launch.layout == 0
    laid = falsify.search(
        laying.spec(laying.without_last, drawn=True), "agreement", lane, max_examples=50
    )
    assert laid.case is not None
    assert laid.case.launch.layout


def test_a_failure_tells_its_layout_in_words() -> None:
    """Tensor and layout, also where another process judged the case and no tensors came back."""
    subject = laying.spec(laying.without_last, "transposed")
    result = falsify.search(subject, "agreement", lanes.present(), max_examples=5)
    assert result.inputs is not None
    assert result.findings is not None
    found = FoundSpec(spec=subject, reference="tests.harness.laying", module="tests.harness.laying")
    told = [
        failure.describe(found, "agreement", inputs, result.findings, {}, Path("x.json"))
        for inputs in (result.inputs, dataclasses.replace(result.inputs, tensors={}))
    ]
    assert "\nlayout    " in told[0]
    assert " transposed" in told[0].split("\nlayout    ")[1].splitlines()[0]
    assert told[0] == told[1]


def test_two_tensors_lie_differently_once() -> None:
    """So that the strides of one are wrong for the other."""
    subject = laying.spec(laying.right, "padded rows")
    cases = find_laid_cases(subject, falsify.draw_cases(subject, 40))
    strides = [
        lay(subject.allowed_layouts(), case.launch.layout, build(case, CPU).tensors)
        for case in cases
    ]
    assert any(one.get("k") != one.get("v") for one in strides)


def test_a_spec_without_layouts_has_no_such_cases() -> None:
    """Nor one that only lets rows be apart: its strategy draws those."""
    cases = falsify.draw_cases(plain.SPEC, 40)
    assert find_laid_cases(plain.SPEC, cases) == []
    assert find_laid_cases(plain.variant(strided=frozenset({"x"})), cases) == []


def test_every_check_holds_under_every_layout() -> None:
    """Guards and poison in the gaps are no alarm, the inputs come back, the sanitizer stays silent."""
    subject, lane = laying.spec(), lanes.present()
    cases = find_laid_cases(subject, falsify.draw_cases(subject, 40))
    assert len(cases) >= 3
    for case in cases:
        for check in ("agreement", "memory"):
            found = checks.run(check, subject, build(case, lane.device), lane)
            assert found.outcome is Outcome.PASSED, (check, case, found)
