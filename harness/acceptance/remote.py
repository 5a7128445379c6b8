"""The candidate's process, asked: files of inputs go there, files of outputs come back."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from bitproof.harness.acceptance.problem import Problem
from bitproof.harness.case import Inputs
from bitproof.harness.errors import EnvironmentUnfit
from bitproof.harness.layouts import Layout
from bitproof.harness.outcomes import CheckResult, Finding, Outcome
from bitproof.harness.processes.child import STARTING, Child, Died, Lost

# Seconds for one trial, and for what a compiler takes besides.
_PATIENCE = 60.0
_STAGES = {"compiling": 600.0}
# How inputs are laid out besides dense, where that is tried.
LAYOUTS: tuple[Layout, ...] = (
    *("padded rows", "padded outer axes", "every second element"),
    *("transposed", "expanded"),
)
_MODULE = "bitproof.harness.acceptance.worker"


def layouts_of(problem: Problem) -> dict[str, tuple[Layout, ...]]:
    """The layouts in which each input is tried: elements that share memory cannot be written."""
    shared = tuple(layout for layout in LAYOUTS if layout != "expanded")
    names = problem.around.case.declaration.inputs
    return {name: shared if name in problem.inplace else LAYOUTS for name in names}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a trial gave: outputs, on the CPU, and what was told beside them; or how it failed."""

    outputs: Any = None
    told: Mapping[str, Any] = field(default_factory=dict)
    failed: CheckResult | None = None


class Process(Protocol):
    """Whom a candidate's trials are asked of."""

    def ask(self, request: Any, limit: float, *, stages: Mapping[str, float] | None = None) -> Any:
        """The answer to a request, both plain JSON values."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Remote:
    """A candidate in a process of its own, which is started anew when it dies or hangs."""

    def __init__(self, candidate: str, problem: Problem, process: Process | None = None) -> None:
        """Nothing is started before the first trial, nor where `process` is one already."""
        self._folder = Path(tempfile.mkdtemp(prefix="bitproof-accept-"))
        setup = self._folder / "setup.pt"
        torch.save(
            {
                "arguments": problem.arguments,
                "state": dict(problem.state),
                "names": list(problem.names),
                "layouts": layouts_of(problem),
                "inplace": sorted(problem.inplace),
            },
            setup,
        )
        self.setup = setup
        self._child = process or Child(module=_MODULE, arguments=(candidate, str(setup)))
        self.trials = 0

    def run(self, inputs: Inputs, **asked: Any) -> Answer:
        """One call of the candidate: `void` where nothing that it starts is to run."""
        return self._ask({"trial": "run", "inputs": self._write("inputs", inputs), **asked})

    def check(self, name: str, inputs: Inputs) -> CheckResult:
        """One of the harness's checks that needs no answer."""
        asked = {"trial": "check", "inputs": self._write("inputs", inputs), "check": name}
        answer = self._ask(asked)
        if answer.failed is not None:
            return answer.failed
        return msgspec.convert(answer.told["result"], type=CheckResult)

    def stale(self, a: Inputs, b: Inputs, c: Inputs) -> Answer:
        """The sequence of calls of `worker.Candidate.try_stale`."""
        named = {"a": a, "b": b, "c": c}
        files = {name: self._write(name, inputs) for name, inputs in named.items()}
        return self._ask({"trial": "stale", **files})

    def _ask(self, request: dict[str, Any]) -> Answer:
        self.trials += 1
        at = self._folder / "outputs.pt"
        at.unlink(missing_ok=True)
        try:
            told = self._child.ask({**request, "outputs": str(at)}, _PATIENCE, stages=_STAGES)
        except Lost as lost:
            if lost.stage == STARTING:
                raise EnvironmentUnfit(f"the candidate's process {lost}: {lost.telling}") from lost
            outcome = Outcome.CRASHED if isinstance(lost, Died) else Outcome.HUNG
            finding = Finding(summary=f"the call {outcome}: the process {lost}", lines=lost.words)
            return Answer(failed=CheckResult(outcome=outcome, findings=(finding,)))
        if "failed" in told:
            return Answer(failed=msgspec.convert(told["failed"], type=CheckResult))
        outputs = torch.load(at, weights_only=True) if at.exists() else None
        return Answer(outputs=outputs, told=told)

    def _write(self, name: str, inputs: Inputs) -> str:
        at = self._folder / f"{name}.pt"
        tensors: dict[str, Tensor] = {n: t.cpu() for n, t in inputs.tensors.items()}
        launch = dataclasses.asdict(inputs.launch)
        told = {"tensors": tensors, "params": dict(inputs.params), "launch": launch}
        torch.save({**told, "seed": inputs.seed}, at)
        return str(at)

    def close(self) -> None:
        """End the process and remove its files."""
        self._child.close()
        shutil.rmtree(self._folder, ignore_errors=True)
