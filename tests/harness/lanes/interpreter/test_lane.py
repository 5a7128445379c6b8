"""The interpreter lane as checks use it: what a spec and a case can ask of a launch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness import checks
from bitproof.harness.case import Inputs, Launch
from bitproof.harness.lanes.base import Variation
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.spec import KernelSpec, Params, Tensors, Tolerated
from tests.harness import plain

LANE = InterpreterLane()
X = Inputs(tensors={"x": torch.arange(6.0).reshape(2, 3)}, params={"factor": 2.0})


@triton.jit
def _rows(x, y, factor, columns, wrong, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside) * factor
    tl.store(y + row * columns + column, value + tl.where(row == 1, wrong, 0.0), mask=inside)


@triton.jit
def _first_row(x, y, factor, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + column, mask=inside) * factor
    tl.store(y + column, value + tl.program_id(0), mask=inside)


@triton.jit
def _wild(x, y, factor, offset, inside, KIND: tl.constexpr):
    column = tl.arange(0, 8)
    mask = column < 6
    tl.store(y + column, tl.load(x + column, mask=mask) * factor, mask=mask)
    far = column.to(tl.int64) * offset
    if KIND == "reads":
        tl.load(x + far, mask=column < inside)
    elif KIND == "writes":
        tl.store(y + far, tl.load(x + far, mask=column < 1) * factor, mask=column < inside)
    else:
        tl.atomic_add(y + far, 0.0, mask=column < inside)


@triton.jit
def _either(x, y, factor, elsewhere):
    column = tl.arange(0, 8)
    # Where Python lies low in memory, an address fits 32 bits and arrives as such.
    other = elsewhere.to(tl.int64).to(tl.pointer_type(tl.float32)) + column
    value = tl.load(tl.where(column % 2 == 0, x + column, other), mask=column < 6)
    tl.store(y + column, value * factor, mask=column < 6)


@triton.autotune([triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=[])
@triton.jit
def _block(y, BLOCK: tl.constexpr):
    tl.store(y, BLOCK)


def _spec(launch: Any, **changes: Any) -> KernelSpec:
    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = torch.empty_like(tensors["x"])
        launch(tensors["x"], y, params["factor"])
        return {"y": y}

    return plain.variant(run=run, **changes)


def _racing(x: Tensor, y: Tensor, factor: float) -> None:
    _first_row[(2,)](x, y, factor, x.shape[1], BLOCK=4)


def test_a_wrong_element_names_the_program_that_wrote_it() -> None:
    """Where a spec says nothing of its programs, the sanitizer's record of writers does."""
    spec = _spec(lambda x, y, factor: _rows[(2,)](x, y, factor, 3, 0.5, BLOCK=4))
    findings = checks.run("agreement", spec, X, LANE)
    assert findings.outcome is Outcome.FAILED
    assert findings.findings[0].index == (1, 0)
    assert "written by program (1, 0, 0)" in findings.findings[0].lines


def test_an_element_that_no_program_wrote_is_said_to_be_unwritten() -> None:
    """Whatever the spec knows of its programs: the element still holds what fresh memory is filled with."""
    spec = _spec(
        lambda x, y, factor: _rows[(1,)](x, y, factor, 3, 0.5, BLOCK=4),
        program=lambda name, index, inputs: f"program {index[0]}",
    )
    finding = checks.run("agreement", spec, X, LANE).findings[0]
    assert finding.index == (1, 0)
    assert "no program wrote it" in finding.lines
    assert not any(line.startswith("written by") for line in finding.lines)


def test_a_crash_names_file_line_and_kernel() -> None:
    """An error inside a kernel is reported where it arose."""
    spec = _spec(lambda x, y, factor: _rows[(2,)](x, y, factor, 3, 0.5, BLOCK=3))
    crashed = checks.run("memory", spec, X, LANE)
    assert crashed.outcome is Outcome.CRASHED
    line = _rows.fn.__code__.co_firstlineno + 3
    told = f"the launch raised ValueError at {__file__}:{line} in kernel _rows: arange"
    assert crashed.findings[0].summary.startswith(told)


def test_an_access_that_a_spec_tolerates_is_not_reported() -> None:
    """A race is a finding, and none where the spec declares it with its reason."""
    racing = checks.run("memory", _spec(_racing), X, LANE)
    assert any(finding.summary.startswith("race: ") for finding in racing.findings)
    meant = Tolerated(kind="race", tensor="y", because="the test is about the declaration")
    tolerant = checks.run("memory", _spec(_racing, tolerates=(meant,)), X, LANE)
    assert not any(finding.summary.startswith("race: ") for finding in tolerant.findings)


@pytest.mark.parametrize("offset", [10**12, -(10**12), -(10**15)])
@pytest.mark.parametrize("kind", ["reads", "writes", "atomically changes"])
def test_a_wild_access_costs_the_launch_and_not_the_process(kind: str, offset: int) -> None:
    """Wherever nobody watches; lanes that a mask turns off may point anywhere."""

    def outcome(inside: int) -> CheckResult:
        spec = _spec(lambda x, y, factor: _wild[(1,)](x, y, factor, offset, inside, KIND=kind))
        return checks.run("agreement", spec, X, LANE)

    assert outcome(1).outcome is Outcome.PASSED
    wild = outcome(2)
    assert wild.outcome is Outcome.CRASHED
    summary = wild.findings[0].summary
    assert summary.startswith(f"the launch raised IllegalAccess at {__file__}:")
    assert summary.endswith(f" in kernel _wild: {kind} an address in no tensor of the launch")


def test_memory_that_no_argument_names_is_reached_where_a_spec_tolerates_it() -> None:
    """A block of pointers may address several tensors, but not one that nobody here knows of."""
    elsewhere = torch.arange(6.0)

    def judged(hidden: Callable[[Tensor], Tensor], **changes: Any) -> Outcome:
        def launch(x: Tensor, y: Tensor, factor: float) -> None:
            held = hidden(x)
            _either[(1,)](x, y, factor, held.data_ptr())

        return checks.run("agreement", _spec(launch, **changes), X, LANE).outcome

    meant = Tolerated(kind="bounds", tensor="", because="the test is about the declaration")
    assert judged(torch.clone) is Outcome.PASSED
    assert judged(lambda x: elsewhere) is Outcome.CRASHED
    assert judged(lambda x: elsewhere, tolerates=(meant,)) is Outcome.PASSED


def test_a_case_picks_an_autotuned_kernel_s_configuration() -> None:
    """The launch's `config` counts through the configurations, in the interpreter and on a device."""

    def written(config: int) -> float:
        inputs = dataclasses.replace(X, launch=Launch(config=config))
        spec = _spec(lambda x, y, factor: _block[(1,)](y))
        return float(LANE.run(spec, inputs, Variation()).outputs["y"][0, 0])

    assert [written(config) for config in range(3)] == [4.0, 8.0, 4.0]
