"""The interpreter lane notes which passages of a kernel's source its launches execute."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness import checks, exercised
from bitproof.harness.case import Inputs
from bitproof.harness.exercised import read_passage
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.spec import Params, Tensors
from tests.harness import plain

LANE = InterpreterLane()
X = Inputs(tensors={"x": torch.arange(6.0)}, params={"factor": 2.0})


@triton.jit
def _epilogue(value, QUANTISED: tl.constexpr):
    """Negate in one mode only."""
    if QUANTISED:
        value = -value
        for _ in tl.static_range(3):
            value = -value  # within
    return value


@triton.jit
def _kernel(x, y, factor, n, MODE: tl.constexpr, QUANTISED: tl.constexpr):
    tl.static_assert(MODE < 3)
    at = tl.arange(0, 8)
    value = tl.load(x + at, mask=at < n)
    if MODE == 0:
        value = _epilogue(value * factor, QUANTISED)
    elif MODE == 1:
        value = _epilogue(factor * value, QUANTISED)
    else:
        tl.static_assert(False, "no such mode")
    for _ in range(n):
        value += 0.0
    tl.store(y + at, value, mask=at < n)


@triton.jit
def _leaving(x, y, factor, n, EARLY: tl.constexpr):
    at = tl.arange(0, 8)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)
    if EARLY:
        return
    tl.store(y, 0.0)  # after a return
    tl.store(y, 1.0)


def _run(kernel: Any, n: int = 6, **constants: Any) -> CheckResult:
    """The findings of one guarded launch, which has to be right."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = torch.empty_like(tensors["x"])
        kernel[(1,)](tensors["x"], y, params["factor"], n, **constants)
        return {"y": y}

    findings = checks.run("agreement", plain.variant(run=run), X, LANE)
    assert findings.outcome is Outcome.PASSED
    return findings


def _line(text: str) -> int:
    """The number of the line of this file that holds `text` and is not this call's."""
    lines = inspect.getsource(inspect.getmodule(_line)).splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def _told(*runs: CheckResult) -> list[tuple[int, int, str, str]]:
    told = map(read_passage, exercised.never_executed(run.lines for run in runs))
    return [(one.first, one.last, one.function, one.condition) for one in told]


def test_what_no_launch_executes_is_told_with_its_condition() -> None:
    """In nested calls too, outermost first; what only asserts that control never gets there is left out."""
    branch = _line("value = -value")
    other = _line("_epilogue(factor * value")
    assert _told(_run(_kernel, MODE=0, QUANTISED=False)) == [
        (branch, branch + 2, "_epilogue", "if QUANTISED"),
        (other, other, "_kernel", "if MODE == 1"),
    ]


def test_launches_add_up() -> None:
    """A passage that one of them executed is not told, whichever check it was for."""
    runs = [_run(_kernel, MODE=mode, QUANTISED=False) for mode in (0, 1)]
    branch = _line("value = -value")
    assert _told(*runs) == [(branch, branch + 2, "_epilogue", "if QUANTISED")]
    assert _told(*runs, _run(_kernel, MODE=0, QUANTISED=True)) == []


def test_what_follows_a_way_out_is_a_passage_of_its_own() -> None:
    """A `return` may leave what stands after it in the same suite."""
    after = _line("# after a return")
    assert _told(_run(_leaving, EARLY=True)) == [(after, after + 1, "_leaving", "")]


def test_a_file_below_the_working_directory_is_named_from_there() -> None:
    """As a person would open it."""
    lines = _run(_kernel, MODE=0, QUANTISED=False).lines
    assert {read_passage(text).file for text in lines} <= {
        "tests/harness/lanes/interpreter/test_passages.py",
        __file__,
    }
    assert sum(lines.values()) < len(lines)
