"""A launch that no card starts has failed, and arguments reach a kernel as they do when compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness import checks
from bitproof.harness.case import Inputs
from bitproof.harness.lanes.interpreter.configuration import options
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import CheckResult, Outcome
from tests.harness.plain import variant


@triton.jit
def double(x, y, n):
    """y = 2 x."""
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    tl.store(y + i, 2 * tl.load(x + i, i < n, other=0.0), i < n)


@triton.jit
def stride(x, y, n):
    """y = 2 x, by elements n apart: the stride in 64 bits."""
    i = tl.arange(0, 4) * n.to(tl.int64)
    tl.store(y + i, 2 * tl.load(x + i))


@triton.jit(do_not_specialize=["n"])
def stride_by_name(x, y, n):
    """The same, where a stride of 1 is no constant."""
    i = tl.arange(0, 4) * n.to(tl.int64)
    tl.store(y + i, 2 * tl.load(x + i))


@triton.jit(do_not_specialize=[2])
def stride_by_number(x, y, n):
    """The same, told by the argument's number."""
    i = tl.arange(0, 4) * n.to(tl.int64)
    tl.store(y + i, 2 * tl.load(x + i))


def judge(kernel: Any, n: int, grid: tuple[int, ...] = (1,), **named: Any) -> CheckResult:
    """What agreement makes of one launch on four ones."""

    def run(tensors: Any, params: Any) -> dict[str, torch.Tensor]:
        y = torch.zeros(4)
        kernel[grid](tensors["x"], y, n, **named)
        return {"y": y}

    return checks.run(
        "agreement",
        variant(run=run),
        Inputs(tensors={"x": torch.ones(4)}, params={"factor": 2.0}),
        InterpreterLane(),
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"grid": (1, 65536)}, "double is launched on grid (1, 65536, 1)"),
        ({"grid": (1, 1, 65536)}, "at most 65535 programs along z"),
        ({"grid": (2**31,)}, "at most 2147483647 programs along x"),
        ({"num_warps": 3}, "double is launched with num_warps=3: it has to be a power of two"),
        ({"num_warps": 0}, "num_warps=0"),
        ({"num_warps": 64}, "num_warps=64"),
        ({"num_wraps": 8}, "double is launched with num_wraps, which is neither"),
        ({"num_wraps": 8}, "did you mean num_warps?"),
    ],
)
def test_a_launch_that_no_card_starts_has_failed(changes: dict[str, Any], text: str) -> None:
    """With the kernel and the value."""
    findings = judge(double, 4, **changes)
    assert findings.outcome is Outcome.FAILED
    assert text in findings.text


def test_launches_at_the_limits_pass() -> None:
    """Also with options that only one backend has."""
    named = {"num_warps": 32, "num_stages": 1, "maxnreg": None, "waves_per_eu": 0, "debug": False}
    assert judge(double, 4, **named).outcome is Outcome.PASSED


def test_no_stages_are_what_one_stage_is() -> None:
    """Triton compiles both: see `tests/harness/lowering/test_compile.py`."""
    assert judge(double, 4, num_stages=0).outcome is Outcome.PASSED


def test_the_options_of_both_backends_are_known() -> None:
    """Those that Triton 3.6 to 3.9 share."""
    common = {"num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "debug"}
    assert {*common, "launch_cooperative_grid", "waves_per_eu", "kpack"} <= options()


def test_an_integer_of_one_is_a_constant() -> None:
    """Which has no type to convert."""
    findings = judge(stride, 1)
    assert findings.outcome is Outcome.FAILED
    assert "a constant has no .to" in findings.text
    assert f"{__file__}:" in findings.text


@pytest.mark.parametrize("kernel", [stride_by_name, stride_by_number])
def test_an_integer_of_one_is_none_where_the_kernel_says_so(kernel: Any) -> None:
    """By `do_not_specialize`."""
    assert judge(kernel, 1).outcome is Outcome.PASSED
