"""Each way in which a launch ends or stops its process is one failure with the smallest case for it."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
from collections.abc import Callable

import pytest
import torch
import triton
from hypothesis import settings

from bitproof.harness import lanes
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify
from bitproof.harness.search.isolation import Careful
from bitproof.harness.spec import Params, Tensors
from bitproof.harness.subjects.discovery import FoundSpec
from tests.harness import plain
from tests.harness.plain import RowsCase, scaled, variant


@triton.jit
def endless(rows):
    """Ends for one row alone."""
    turns = 0
    while rows > 1:
        turns = 1 - turns


def exits() -> None:
    """Leaves without a word."""
    os._exit(1)


def reads_nowhere() -> None:
    """A wild pointer on the host."""
    ctypes.string_at(0)


def divides_by_zero() -> None:
    """What an integer division by zero in machine code is."""
    os.kill(os.getpid(), signal.SIGFPE)


def is_killed() -> None:
    """What the system does where memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def loops_on_the_host() -> None:
    """Never returns."""
    while True:
        pass


def loops_in_a_kernel() -> None:
    """Never returns, interpreted."""
    endless[(1,)](2)


@pytest.mark.parametrize(
    ("deed", "outcome", "said"),
    [
        (exits, Outcome.CRASHED, "ended with exit code 1"),
        (reads_nowhere, Outcome.CRASHED, "died of SIGSEGV"),
        (divides_by_zero, Outcome.CRASHED, "died of SIGFPE"),
        (is_killed, Outcome.CRASHED, "died of SIGKILL"),
        (loops_on_the_host, Outcome.HUNG, "gave no answer within 0.5 s"),
        (loops_in_a_kernel, Outcome.HUNG, "gave no answer within 0.5 s"),
    ],
)
def test_a_deadly_launch_is_one_failure_with_its_smallest_case(
    deed: Callable[[], None], outcome: Outcome, said: str
) -> None:
    """What launches before it passed, and the process that draws cases lives on."""

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        if len(tensors["x"]) > 1:
            deed()
        return scaled(tensors, params)

    found = FoundSpec(spec=variant(run=run), reference="tests.harness.plain", module=plain)
    judge = Careful.on(lanes.present(), known=[found], timeout=0.5)
    search = functools.partial(
        falsify.search,
        found.spec,
        "memory",
        lanes.present(),
        max_examples=20,
        base=settings(derandomize=True, database=None),
        execute=functools.partial(judge, found, "memory"),
    )
    try:
        result = search()
        after = judge(found, "memory", RowsCase())[1].outcome
    finally:
        judge.close()
    assert (result.outcome, result.case) == (outcome, RowsCase(rows=2))
    assert result.outcomes == {Outcome.PASSED: result.examples - 1, outcome: 1}
    assert result.findings is not None
    assert f"the launch {outcome}: the process {said}" in result.findings.text
    assert after is Outcome.PASSED
