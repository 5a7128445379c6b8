"""Judging candidates in tests: in this process, where nothing has to be started."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bitproof.harness import lanes
from bitproof.harness.acceptance.narrowing import narrow
from bitproof.harness.acceptance.problem import make_problem
from bitproof.harness.acceptance.remote import Remote
from bitproof.harness.acceptance.trials import TRIALS, Bench, Evidence
from bitproof.harness.acceptance.worker import answering

HERE = Path(__file__).parent


class Local:
    """The candidate's process, played by this one."""

    def __init__(self, candidate: str) -> None:
        self.candidate = candidate
        self.setup = ""
        self._answer: Any = None

    def ask(self, request: Any, limit: float, *, stages: Mapping[str, float] | None = None) -> Any:
        if self._answer is None:
            self._answer = answering(self.candidate, self.setup, lanes.present())
        return self._answer({**request, "compile": False})

    def close(self) -> None:
        pass


@contextlib.contextmanager
def bench_of(candidate: str, reference: str) -> Iterator[Bench]:
    """The bench of a candidate in a file beside this one."""
    lane = lanes.present()
    problem = make_problem(str(HERE / reference), lane.device)
    process = Local(str(HERE / candidate))
    remote = Remote(process.candidate, problem, process)
    process.setup = str(remote.setup)
    try:
        yield narrow(Bench(problem=problem, remote=remote, lane=lane))
    finally:
        remote.close()


def tried(bench: Bench, *names: str, seconds: float = 4.0) -> list[Evidence]:
    """The evidence of some trials, in order, up to the first that rejects."""
    found: list[Evidence] = []
    for name in names or TRIALS:
        found.append(TRIALS[name][0](bench, seconds))
        if found[-1].outcome.is_defect:
            break
    return found
