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
from bitproof.harness.layouts import LAYOUTS, SHARINGS, Layout, Sharing, lay
from bitproof.harness.outcomes import Outcome
from bitproof.harness.report import failure
from bitproof.harness.search import falsify
from bitproof.harness.search.laid_out import find_laid_cases
from bitproof.harness.spec import Params, Tensors
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
    assert {f"{name} {layout}" for name in "kv" for layout in LAYOUTS} <= set(result.covered)


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


def test_memory_meets_every_layout_too() -> None:
    """So that a kernel which writes between the rows of a tensor that it may change is caught there."""

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        k = tensors["k"]
        outputs = laying.added(tensors, params, told=laying.right)
        if k.numel() > 1 and not k.is_contiguous():
            k.as_strided((1,), (1,), k.storage_offset() + 1).zero_()
        return outputs

    lane, right = lanes.present(), laying.spec(laying.right, "every second element")
    result = falsify.search(right, "memory", lane, max_examples=5)
    assert result.outcome is Outcome.PASSED
    assert {"k every second element", "v every second element"} <= set(result.covered)
    wrong = dataclasses.replace(right, run=run)
    assert falsify.search(wrong, "agreement", lane, max_examples=5).outcome is Outcome.PASSED
    found = falsify.search(wrong, "memory", lane, max_examples=5)
    assert found.outcome is Outcome.FAILED
    assert found.findings is not None
    assert "a write outside k" in found.findings.text


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


@pytest.mark.parametrize("how", SHARINGS)
def test_tensors_that_share_memory_are_judged_and_a_right_kernel_holds(how: Sharing) -> None:
    """Under agreement and under the sanitizer: neither a guard nor a neighbour's element is an alarm."""
    subject, lane = laying.spec(together=how), lanes.present()
    result = falsify.search(subject, "agreement", lane, max_examples=5)
    assert result.outcome is Outcome.PASSED
    assert f"k, v {how}" in result.covered
    (case,) = find_laid_cases(subject, falsify.draw_cases(subject, 40))
    assert checks.run("memory", subject, build(case, CPU), lane).outcome is Outcome.PASSED


def test_a_kernel_that_takes_a_view_into_a_fused_product_for_dense_is_caught() -> None:
    """Values are wrong, and memory names the element between whose rows the neighbour lies."""
    subject, lane = laying.spec(laying.dense_v, together="side by side"), lanes.present()
    result = falsify.search(subject, "agreement", lane, max_examples=5)
    assert result.outcome is Outcome.FAILED
    assert result.case is not None
    found = checks.run("memory", subject, build(result.case, CPU), lane)
    assert found.outcome is Outcome.FAILED
    assert "v" in found.text


def test_a_kernel_that_writes_one_of_two_inputs_that_are_one_is_caught() -> None:
    """It reads v after it has changed k: right for two tensors, and for no dense ones in one."""

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        k, v = tensors["k"], tensors["v"]
        saved = k.clone()
        y = saved + v
        k.zero_()
        y.copy_(saved + v)
        k.copy_(saved)
        return {"y": y}

    lane = lanes.present()
    apart = dataclasses.replace(laying.spec(together="one tensor"), run=run, shared={})
    assert falsify.search(apart, "memory", lane, max_examples=10).outcome is Outcome.PASSED
    one = dataclasses.replace(apart, shared={("k", "v"): ("one tensor",)})
    found = falsify.search(one, "agreement", lane, max_examples=10)
    assert found.outcome is Outcome.FAILED


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
