"""What no target compiles has failed without a GPU, and what one compiles is asked for once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness import checks
from bitproof.harness.case import Inputs
from bitproof.harness.compiling import compiler
from bitproof.harness.compiling.launch import KernelLaunch
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import CheckResult, Outcome
from tests.harness.plain import variant

FACTOR = tl.constexpr(2.0)
UNDECLARED = 2.0


@triton.jit
def scale(x, factor):
    """A function that kernels call."""
    return x * factor


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    """y = 2 x, by a global constant and a function."""
    i = tl.arange(0, BLOCK)
    tl.store(y + i, scale(tl.load(x + i, i < n, other=0.0), FACTOR), i < n)


@triton.jit
def use_global(x, y, n, BLOCK: tl.constexpr):
    """A global number that is no constant."""
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) * UNDECLARED)


@triton.jit
def widen(x, y, n, BLOCK: tl.constexpr):
    """An accumulator in bf16 becomes one in fp32."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.bfloat16)
    for _ in range(n):
        total = total + tl.load(x + i) * 0.5
    tl.store(y + i, total)


@triton.jit
def leave(x, y, n, BLOCK: tl.constexpr):
    """A loop with `break`."""
    i = tl.arange(0, BLOCK)
    for k in range(n):
        tl.store(y + i, 2 * tl.load(x + i))
        if k == 3:
            break


@triton.jit
def attempt(x, y, n, BLOCK: tl.constexpr):
    """`try` in a kernel."""
    i = tl.arange(0, BLOCK)
    try:
        tl.store(y + i, 2 * tl.load(x + i))
    finally:
        pass


@triton.jit
def count(x, y, n, BLOCK: tl.constexpr):
    """An integer that becomes a float in a loop."""
    i = tl.arange(0, BLOCK)
    factor = 0
    for _ in range(n):
        factor = factor + 0.5
    tl.store(y + i, factor * tl.load(x + i))


@triton.jit
def divide(x, y, n, BLOCK: tl.constexpr):
    """A block as long as a float says."""
    i = tl.arange(0, BLOCK)
    j = tl.arange(0, BLOCK // 2 * 2)
    tl.store(y + i, 2 * tl.load(x + j).to(tl.float32) + 0 * tl.zeros((BLOCK / 1,), tl.float32))


def judge(kernel: Any) -> CheckResult:
    """What agreement makes of a launcher of `kernel` on four ones."""

    def run(tensors: Any, params: Any) -> dict[str, torch.Tensor]:
        y = torch.zeros(4)
        kernel[(1,)](tensors["x"], y, 4, BLOCK=4)
        return {"y": y}

    inputs = Inputs(tensors={"x": torch.ones(4)}, params={"factor": 2.0})
    return checks.run("agreement", variant(run=run), inputs, InterpreterLane())


def test_what_compiles_passes() -> None:
    """With functions and constants that it finds outside of itself."""
    assert judge(double).outcome is Outcome.PASSED


@pytest.mark.parametrize("kernel", [widen, leave, attempt, count, divide, use_global])
def test_what_no_target_compiles_has_failed(kernel: Any) -> None:
    """With the kernel, and the line where the compiler names one."""
    findings = judge(kernel)
    assert findings.outcome is Outcome.FAILED, findings
    assert kernel.fn.__name__ in findings.text
    assert f"{__file__}:" in findings.text


def launch(kernel: Any, **arguments: Any) -> KernelLaunch:
    """As the lane records it."""
    return KernelLaunch(function=kernel.fn, declared={}, arguments=arguments, options={})


def test_integers_that_compile_alike_are_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of others no more than a few."""
    asked: list[str] = []

    def ask(name: str, request: str) -> dict[str, str]:
        asked.append(request)
        return {"refused": "", "unknown": ""}

    monkeypatch.setattr(compiler, "ask", ask)
    monkeypatch.setattr(compiler, "FOLDER", tmp_path)
    monkeypatch.setattr(compiler, "_answers", {})
    monkeypatch.setattr(compiler, "_met", type(compiler._met)())
    x = torch.ones(4)
    for n in (3, 5, 7, 2**31 - 1):
        compiler.find_refusal("plain", [launch(double, x=x, y=x, n=n, BLOCK=4)])
    assert len(asked) == 1
    for n in (1, 16, 2**40 + 1, 2**40, 2**63):
        compiler.find_refusal("plain", [launch(double, x=x, y=x, n=n, BLOCK=4)])
    assert len(asked) == compiler.MOST
    monkeypatch.setattr(compiler, "_answers", {})
    monkeypatch.setattr(compiler, "_met", type(compiler._met)())
    compiler.find_refusal("plain", [launch(double, x=x, y=x, n=3, BLOCK=4)])
    assert len(asked) == compiler.MOST


def test_what_another_process_was_answered_holds_beyond_the_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a case which failed does not pass where a new process judges it after others."""
    refused = {"refused": "not this", "unknown": ""}
    monkeypatch.setattr(compiler, "ask", lambda *_: refused)
    monkeypatch.setattr(compiler, "FOLDER", tmp_path)
    monkeypatch.setattr(compiler, "_answers", {})
    monkeypatch.setattr(compiler, "_met", type(compiler._met)())
    x = torch.ones(4)
    last = launch(double, x=x, y=x, n=2**63, BLOCK=4)
    assert "not this" in compiler.find_refusal("plain", [last])
    monkeypatch.setattr(compiler, "_answers", {})
    monkeypatch.setattr(compiler, "_met", type(compiler._met)())
    for n in (3, 1, 16, 2**40 + 1, 2**40):
        compiler.find_refusal("plain", [launch(double, x=x, y=x, n=n, BLOCK=4)])
    assert sum(compiler._met.values()) == compiler.MOST
    assert "not this" in compiler.find_refusal("plain", [last])


def test_another_target_s_word_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel is refused where every target refuses it."""
    monkeypatch.setattr(compiler, "FOLDER", tmp_path)
    refusing = {"sm_90", "gfx942"}
    monkeypatch.setattr(
        compiler,
        "ask",
        lambda name, _: {"refused": f"not {name}" if name in refusing else "", "unknown": ""},
    )
    assert compiler._ask_targets("{}") == ("", True)
    refusing |= set(compiler.TARGETS)
    assert compiler._ask_targets("{}") == ("not sm_90", True)
