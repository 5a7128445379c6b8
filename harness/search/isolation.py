"""Cases in a process of their own: a crash or a hang costs one case, never the run.

`Careful` starts out in this process, which is faster, and moves every later case to a child once a
launch has left this process's device unusable, as an illegal memory access on a GPU does. A child that
dies or falls silent is replaced, and what it last wrote to its output is told with the case.

`python -m bitproof.harness.search.isolation` is the child; `harness.processes` starts and asks it.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bitproof.harness import case as cases
from bitproof.harness import checks, lanes
from bitproof.harness.case import Case, Inputs, build
from bitproof.harness.errors import (
    BitproofError,
    EnvironmentUnfit,
    SpecError,
    UsageError,
    describe,
)
from bitproof.harness.lanes.base import Lane
from bitproof.harness.outcomes import Finding, Findings, Outcome
from bitproof.harness.processes.child import STARTING, Child, Died, Lost, signal_name
from bitproof.harness.processes.serve import serve
from bitproof.harness.report import files, records
from bitproof.harness.subjects.discovery import Found, find
from bitproof.harness.subjects.planting import with_fault

TIMEOUT = 300.0
JOURNALS = Path(".bitproof") / "in-flight"
_MODULE = "bitproof.harness.search.isolation"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One case to judge, in plain JSON values: what a child is sent, and what a journal holds."""

    spec: str
    kernel: str
    fault: str | None
    check: str
    runs: int
    case: dict[str, Any]

    def found(self) -> Found:
        """The kernel, with its fault planted."""
        return _find(self.spec, self.kernel, self.fault).with_runs(self.runs)


@functools.cache  # planting anew for each case would compile anew as well
def _find(spec: str, kernel: str, fault: str | None) -> Found:
    return with_fault(find([spec], [kernel])[0], fault)


def without_tensors(case: Case) -> Inputs:
    """Inputs that carry a case without building its tensors, for reports on what ran elsewhere."""
    return Inputs(tensors={}, params=case.params(), launch=case.launch, case=case)


@dataclass(kw_only=True)
class Careful:
    """Judges cases in this process until its device breaks, then in a child.

    `timeout` is the seconds that a child has for one case; `journal` is a file that holds the case being
    judged, for whoever finds this process dead.
    """

    lane: Lane
    isolate: bool = False
    timeout: float = TIMEOUT
    journal: Path | None = None
    _child: Child = field(default_factory=lambda: Child(module=_MODULE), init=False, repr=False)

    def __call__(self, found: Found, check: str, case: Case) -> tuple[Inputs, Findings]:
        """The inputs (see `without_tensors` for those of a child) and the findings of one case.

        Raises what checks raise, in a child too, and EnvironmentUnfit where no child can be started.
        """
        if self.journal is not None:
            files.save(self.journal, json.dumps(_request(found, check, case)).encode())
        if not self.isolate:
            inputs = build(case, self.lane.device)
            findings = checks.run(check, found.spec, inputs, self.lane)
            if findings.outcome is not Outcome.CRASHED or self.lane.usable():
                return inputs, findings
            self.isolate = True
            return without_tensors(case), findings
        return without_tensors(case), self._ask(_request(found, check, case))

    def _ask(self, request: dict[str, Any]) -> Findings:
        try:
            told = self._child.ask(request, self.timeout)
        except Lost as lost:
            if lost.stage == STARTING:
                raise EnvironmentUnfit(
                    f"no process can be started to judge cases in, it {lost}: {lost.telling}"
                ) from lost
            return _blame(lost)
        if not told["usable"]:
            self._child.close()  # or the next case would meet the device that this one broke
        return msgspec.convert(told["findings"], type=Findings)

    def close(self) -> None:
        """End the child, if there is one."""
        self._child.close()


def _request(found: Found, check: str, case: Case) -> dict[str, Any]:
    request = Request(
        spec=found.reference,
        kernel=found.spec.name,
        fault=found.fault,
        check=check,
        runs=found.spec.reproducible.runs,
        case=cases.encode(case),
    )
    plain: dict[str, Any] = msgspec.to_builtins(request)
    return plain


def _blame(lost: Lost) -> Findings:
    """A child that died or hung over a case, as what was found of that case."""
    if isinstance(lost, Died):
        outcome = Outcome.CRASHED
        code = lost.code
        facts = {"signal": signal_name(-code)} if code < 0 else {"exit_code": code}
    else:
        outcome, facts = Outcome.HUNG, {}
    words = tuple(
        f"{'printed' if not place else '':<10}{word}" for place, word in enumerate(lost.words)
    )
    summary = f"the launch {outcome}: the process {lost}"
    return Findings(outcome=outcome, findings=(Finding(summary=summary, lines=words, facts=facts),))


def bury(journal: Path, lane: str) -> Path | None:
    """The record of the case a dead process left in its journal, None where it left none."""
    try:
        request = files.read(journal, Request, what="case in flight")
    except UsageError:
        return None
    found = request.found()
    case = cases.decode(found.spec.case, request.case)
    died = Finding(summary="the launch crashed: the process that ran it died")
    findings = Findings(outcome=Outcome.CRASHED, findings=(died,))
    return records.save(found, request.check, without_tensors(case), findings, {"lane": lane})


def answer(request: dict[str, Any], lane: Lane) -> dict[str, Any]:
    """Judge one requested case in this process: {"findings", "usable"}, the latter of the lane after it.

    An error that no launch caused is raised as it is where it is ours, else as the spec's.
    """
    try:
        asked = msgspec.convert(request, type=Request)
        found = asked.found()
        case = cases.decode(found.spec.case, asked.case)
        findings = checks.run(asked.check, found.spec, build(case, lane.device), lane)
    except BitproofError:
        raise
    except Exception as error:
        raise SpecError(f"judging a case raised {describe(error)}") from error
    usable = findings.outcome is not Outcome.CRASHED or lane.usable()
    return {"findings": msgspec.to_builtins(findings, enc_hook=str), "usable": usable}


def main() -> None:
    """The child: answer requests until there are no more."""
    lanes.choose()
    lane = lanes.present()
    serve(lambda request: answer(request, lane))


if __name__ == "__main__":
    main()
