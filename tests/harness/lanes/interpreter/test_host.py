"""A launcher that asks about its device gets an answer on the interpreter lane, and not a crash."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import driver

from bitproof.harness import checks
from bitproof.harness.case import Inputs
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import Outcome
from tests.harness.plain import scaled_oracle, variant

X = Inputs(tensors={"x": torch.ones(2, 3)}, params={"factor": 2.0})


@triton.jit
def double(x, y):
    """y = 2 x, six elements."""
    i = tl.arange(0, 8)
    tl.store(y + i, tl.load(x + i, mask=i < 6, other=0.0) * 2.0, mask=i < 6)


def within_device(x: torch.Tensor) -> int:
    """As packages enter the device of their tensors."""
    module = getattr(torch, x.device.type)
    with module.device(x.device.index):
        return 1


QUESTIONS = {
    "torch's device": within_device,
    "current device": lambda x: driver.active.get_current_device() + 1,
    "target": lambda x: driver.active.get_current_target().arch // 90,
    "multiprocessors": lambda x: driver.active.utils.get_device_properties(0)[
        "multiprocessor_count"
    ],
    "shared memory": lambda x: int(
        driver.active.utils.get_device_properties(0)["max_shared_mem"] > 2**16
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_launcher_may_ask_about_its_device(question: str) -> None:
    """As packages do to size a grid or to stay on a tensor's card."""

    def run(tensors: Any, params: Any) -> dict[str, torch.Tensor]:
        y = torch.empty_like(tensors["x"])
        double[(min(QUESTIONS[question](y), 1),)](tensors["x"], y)
        return {"y": y}

    spec = variant(run=run, oracle=scaled_oracle)
    assert checks.run("agreement", spec, X, InterpreterLane()).outcome is Outcome.PASSED


def test_nothing_is_answered_outside_of_a_launch() -> None:
    """Torch and Triton are as they were."""
    test_a_launcher_may_ask_about_its_device("target")
    assert not hasattr(torch.cpu, "device")
    with pytest.raises(RuntimeError, match="active drivers"):
        driver.active.get_current_device()
