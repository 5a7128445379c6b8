"""Autotuned kernels: every configuration is met or told missing, compared with the others, and tuned with."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.autotuner import Autotuner

from bitproof.harness import checks, invariances
from bitproof.harness.case import Inputs, Launch
from bitproof.harness.exercised import collecting, describe_configurations
from bitproof.harness.lanes.autotune import force_config
from bitproof.harness.lanes.base import Variation
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.report import summary
from bitproof.harness.search import falsify
from bitproof.harness.spec import KernelSpec, Params, Tensors
from tests.harness import plain

LANE = InterpreterLane()
X = Inputs(tensors={"x": torch.arange(6.0).reshape(2, 3)}, params={"factor": 2.0})


def _kernel(x, y, factor, n, BLOCK: tl.constexpr, EXTRA: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * factor + EXTRA
    tl.store(y + at, value, mask=at < n)


def _part(x, y, factor, n, BLOCK: tl.constexpr, PART: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * factor
    tl.store(y + at, value, mask=at < n // PART)


def _adding(x, y, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(y + at, mask=at < n) + tl.load(x + at, mask=at < n) * factor
    tl.store(y + at, value, mask=at < n)


def _configs(*extras: float) -> list[Any]:
    return [triton.Config({"BLOCK": 64 << i, "EXTRA": extra}) for i, extra in enumerate(extras)]


def _tuned(kernel: Any, configs: list[Any], **options: Any) -> Any:
    return triton.autotune(configs, key=[], **options)(triton.jit(kernel))


def _spec(kernel: Any, **changes: Any) -> KernelSpec:
    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        x = tensors["x"]
        y = torch.zeros_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
            x, y, params["factor"], x.numel()
        )
        return {"y": y}

    return plain.variant(run=run, **changes)


def _checked(check: str, spec: KernelSpec, config: int = 0) -> CheckResult:
    return checks.run(check, spec, dataclasses.replace(X, launch=Launch(config=config)), LANE)


def test_a_search_judges_cases_in_every_configuration() -> None:
    """Its own cases launch the first one; a fault of the last one is found, and its case says which."""
    right = falsify.search(
        _spec(_tuned(_kernel, _configs(0.0, 0.0))), "agreement", LANE, max_examples=5
    )
    assert right.outcome is Outcome.PASSED
    assert right.examples == 7
    assert "  configurations of _kernel: 2 of 2 ran" in summary.lines([right.entry()])
    wrong = falsify.search(
        _spec(_tuned(_kernel, _configs(0.0, 0.0, 1.0))), "agreement", LANE, max_examples=5
    )
    assert wrong.outcome is Outcome.FAILED
    assert wrong.case is not None
    assert wrong.case.launch.config == 2


def test_configurations_that_no_case_met_are_told() -> None:
    """By number and settings; those that early pruning left nowhere are none."""

    def prune(configs: list[Any], named: Any, **_: Any) -> list[Any]:
        return configs[1:]

    whole = _spec(_tuned(_kernel, _configs(0.0, 0.0, 0.0)))
    (told,) = describe_configurations([_checked("memory", whole).configurations])
    assert told.startswith("configurations of _kernel: 1 of 3 ran, never 1 (BLOCK=128, EXTRA=0.0, ")
    assert ", 2 (BLOCK=256, " in told
    options = {"prune_configs_by": {"early_config_prune": prune}}
    pruned = _spec(_tuned(_kernel, _configs(1.0, 0.0, 0.0), **options))
    runs = [_checked("agreement", pruned, config) for config in range(3)]
    assert [run.outcome for run in runs] == [Outcome.PASSED] * 3
    told = describe_configurations(run.configurations for run in runs)
    assert told == ["configurations of _kernel: 2 of 2 ran"]


def test_configurations_that_give_other_bits_are_listed_in_classes() -> None:
    """Where all agree nothing is found, and where there is no choice the relation does not apply."""
    claim = (invariances.configurations_agree(),)
    agreeing = _spec(_tuned(_kernel, _configs(0.0, 0.0)), invariances=claim)
    assert _checked("invariances", agreeing).outcome is Outcome.PASSED
    single = _spec(_tuned(_kernel, _configs(0.0)), invariances=claim)
    assert _checked("invariances", single).outcome is Outcome.NOT_DEMONSTRATED
    differing = _spec(_tuned(_kernel, _configs(0.0, 1.0, 0.0)), invariances=claim)
    findings = _checked("invariances", differing)
    assert findings.outcome is Outcome.FAILED
    (finding,) = findings.findings
    assert finding.summary == "y[0, 0]: configurations give other bits"
    first, second = finding.lines[-2:]
    assert first.startswith("class 1   _kernel configuration 0 (BLOCK=64, ")
    assert "; _kernel configuration 2 (BLOCK=256, " in first
    assert second.startswith("class 2   _kernel configuration 1 (BLOCK=128, ")


@pytest.mark.parametrize(
    ("options", "outcome"),
    [({}, Outcome.FAILED), ({"reset_to_zero": ["y"]}, Outcome.PASSED)],
    ids=["accumulating", "reset"],
)
def test_tuning_runs_on_the_tensors_of_the_launch(options: Any, outcome: Outcome) -> None:
    """An accumulating kernel adds once for each trial unless its autotuner resets the output."""
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]
    spec = _spec(_tuned(_adding, configs, **options))
    assert _checked("agreement", spec, config=0).outcome is Outcome.PASSED
    findings = _checked("agreement", spec, config=1)
    assert findings.outcome is outcome
    if outcome is Outcome.FAILED:
        assert findings.text.startswith("after its autotuner tried other configurations ")


@pytest.mark.parametrize("half", [0, 1])
def test_a_configuration_that_writes_half_is_found_whatever_tuning_wrote_before(half: int) -> None:
    """A trial of the other one would fill its gaps: each configuration is launched alone first."""
    parts = [2 if place == half else 1 for place in range(2)]
    configs = [triton.Config({"BLOCK": 64, "PART": part}) for part in parts]
    spec = _spec(_tuned(_part, configs))
    assert _checked("agreement", spec, config=1 - half).outcome is Outcome.PASSED
    tuned = LANE.run(
        spec, dataclasses.replace(X, launch=Launch(config=half)), Variation(tuning=True)
    )
    assert torch.equal(tuned.outputs["y"], 2.0 * X.tensors["x"])
    assert _checked("agreement", spec, config=half).outcome is Outcome.FAILED


def test_tuning_restores_what_it_is_to_restore() -> None:
    """The tensors of `restore_value` hold after each trial what they held before it."""
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]
    spec = _spec(_tuned(_adding, configs, restore_value=["y"]))
    for config in range(2):
        assert _checked("agreement", spec, config=config).outcome is Outcome.PASSED


def test_on_a_device_one_configuration_is_left_and_nothing_is_timed(monkeypatch: Any) -> None:
    """The autotuner sees only the chosen configuration during the call, and all of them after it."""
    seen = []
    monkeypatch.setattr(Autotuner, "run", lambda self, *_: seen.append(list(self.configs)))
    tuner = _tuned(_kernel, _configs(0.0, 0.0))
    first, second = tuner.configs
    with force_config(3), collecting() as met:
        Autotuner.run(tuner)
    assert seen == [[second]]
    assert tuner.configs == [first, second]
    assert list(met.configurations.values()) == [0, 1]


def test_a_launch_can_ask_for_tuning() -> None:
    """One run with it and one without: only the former accumulates."""
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]
    spec = _spec(_tuned(_adding, configs))
    once, tuned = (
        LANE.run(spec, X, Variation(tuning=tuning)).outputs["y"] for tuning in (False, True)
    )
    assert torch.equal(tuned, 5 * once)
