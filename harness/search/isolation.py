"""Cases in a process of their own: a crash or a hang costs one case, never the run.

`Careful` judges in a copy of this process, warm and there in milliseconds, which goes on from case to case;
on a card the copy alone opens the device, since a context cannot be copied. Where importing a spec has
opened it here already, a new process judges instead. One that dies, falls silent or loses its device over a
case is replaced, and what it last wrote to its output is told with the case.

`python -m bitproof.harness.search.isolation` is the new process; `harness.processes` starts and asks it.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch

from bitproof.harness import case as cases
from bitproof.harness import checks, lanes
from bitproof.harness.case import Case, Inputs, Launch, build
from bitproof.harness.errors import (
    BitproofError,
    EnvironmentUnfit,
    SpecError,
    describe,
)
from bitproof.harness.lanes.base import Lane
from bitproof.harness.outcomes import CheckResult, Finding, Outcome, conclude
from bitproof.harness.processes.child import STARTING, Child, Died, Lost, signal_name
from bitproof.harness.processes.serve import serve, stage
from bitproof.harness.search.journal import Journal, Request
from bitproof.harness.spec import KernelSpec
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import with_fault

TIMEOUT = 300.0
_MODULE = "bitproof.harness.search.isolation"
# Once a case has hung, as many times what the slowest other one took is allowed, and at least that many
# seconds: to shrink a hang is to wait for each smaller one.
_PATIENCE = 20.0
_PATIENCE_LEAST = 5.0


@functools.cache  # planting anew for each case would compile anew as well
def _find(spec: str, kernel: str, fault: str | None, runs: int) -> FoundSpec:
    return with_fault(find([spec], [kernel])[0], fault).with_runs(runs)


def without_tensors(case: Case) -> Inputs:
    """Inputs that carry a case without building its tensors, for reports on what ran elsewhere."""
    try:
        return Inputs(tensors={}, params=case.params(), launch=case.launch, case=case)
    except Exception as error:
        raise SpecError(f"the case {type(case).__name__} raised {describe(error)}") from error


OPENING = "opening the device"
# Seconds that a judging process may spend on what is no launch, by the stage that it announces.
_STAGES = {"compiling": 600.0, OPENING: 120.0}
# What a judging process is asked before any case.
_VERSIONS: dict[str, Any] = {"versions": True}


@dataclass(kw_only=True)
class Careful:
    """Judges cases where what a launch does to its process costs that case alone.

    lane      where kernels run
    copies    whether the other process is a copy of this one, which must not have opened the lane's device
    timeout   the seconds that another process has for one case
    journal   names the case being judged, for whoever finds this process dead
    known     kernels that a copy need not look for
    """

    lane: Lane
    copies: bool = False
    timeout: float = TIMEOUT
    journal: Journal | None = None
    known: Sequence[FoundSpec] = ()
    _child: Child = field(init=False, repr=False)
    _versions: dict[str, str] | None = field(default=None, init=False, repr=False)
    _slowest: float = field(default=0.0, init=False, repr=False)
    _hung: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        """Nothing is started before it is needed."""
        self._child = self._make_child()

    def _make_child(self) -> Child:
        if self.copies:
            return Child(answer=lambda request: answer(request, self.lane, self.known))
        return Child(module=_MODULE)

    @classmethod
    def on(
        cls,
        lane: Lane,
        *,
        known: Sequence[FoundSpec],
        journal: Journal | None = None,
        timeout: float | None = None,
    ) -> Careful:
        """As a run on `lane` judges: in another process, a copy where that can be."""
        return cls(
            lane=lane,
            copies=lane.device.type != "cuda" or not torch.cuda.is_initialized(),  # type: ignore[no-untyped-call]
            timeout=timeout or TIMEOUT,
            journal=journal,
            known=known,
        )

    def versions(self) -> dict[str, str]:
        """Lane, device and libraries, as whoever judges sees them; EnvironmentUnfit where nobody can."""
        if self._versions is None:
            self._versions = self._put(_VERSIONS)
        return self._versions

    def __call__(self, found: FoundSpec, check: str, case: Case) -> tuple[Inputs, CheckResult]:
        """The inputs, without the tensors that are the other process's, and the findings of one case.

        A case that was out of resources is judged once more, alone in a fresh process; where its spec says
        that such a launch must fit, it failed. Raises what checks raise there, and EnvironmentUnfit
        where no process can be started.
        """
        request = _request(found, check, case)
        if self.journal is not None:
            self.journal.write(request)
        inputs, findings = without_tensors(case), self._ask(request)
        if findings.outcome is Outcome.OUT_OF_RESOURCES:
            self._child.close()
            findings = self._ask(request)
            self._child.close()
            if findings.outcome is Outcome.OUT_OF_RESOURCES and must_fit(found.spec, case.launch):
                findings = conclude([Finding(summary=f"it must fit, but: {findings.reason}")])
        if self.journal is not None:
            self.journal.write(None)
        return inputs, findings

    def _ask(self, request: dict[str, Any]) -> CheckResult:
        self.versions()  # so that no case pays for, or is blamed for, the start
        began = time.monotonic()
        try:
            told = self._put(request)
        except Lost as lost:
            self._hung |= not isinstance(lost, Died)
            return _blame(lost)
        self._slowest = max(self._slowest, time.monotonic() - began)
        if not told["usable"]:
            self._child.close()  # or the next case would meet the device that this one broke
        return msgspec.convert(told["findings"], type=CheckResult)

    def _put(self, request: dict[str, Any]) -> dict[str, Any]:
        """The other process's answer; Lost over a case, EnvironmentUnfit where none can be started."""
        try:
            answered: dict[str, Any] = self._child.ask(request, self._limit(), stages=_STAGES)
        except Lost as lost:
            if lost.stage not in (STARTING, OPENING) and request is not _VERSIONS:
                raise
            if not self.copies or lost.stage == STARTING:
                raise EnvironmentUnfit(
                    f"no process can be started to judge cases in, it {lost}: {lost.telling}"
                ) from lost
        except EnvironmentUnfit:
            if not self.copies:
                raise
        else:
            return answered
        # Something opened the device here in a way that nobody can ask about: a copy cannot use it.
        self._child.close()
        self.copies = False
        self._child = self._make_child()
        return self._put(request)

    def _limit(self) -> float:
        """Seconds for the next case."""
        if not self._hung:
            return self.timeout
        return min(self.timeout, max(_PATIENCE * self._slowest, _PATIENCE_LEAST))

    def close(self) -> None:
        """End the other process, if there is one; nothing is in flight any more."""
        self._child.close()
        if self.journal is not None:
            self.journal.close()


def must_fit(spec: KernelSpec, launch: Launch) -> bool:
    """Whether a spec promises that `launch` is never out of resources; SpecError where it cannot say."""
    try:
        return spec.must_fit is not None and bool(spec.must_fit(launch))
    except Exception as error:
        raise SpecError(f"spec {spec.name!r}: must_fit raised {describe(error)}") from error


def _request(found: FoundSpec, check: str, case: Case) -> dict[str, Any]:
    request = Request(
        spec=found.reference,
        kernel=found.spec.name,
        fault=found.fault,
        check=check,
        runs=_runs(found.spec),
        case=cases.encode(case),
    )
    plain: dict[str, Any] = msgspec.to_builtins(request)
    return plain


def _blame(lost: Lost) -> CheckResult:
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
    return CheckResult(
        outcome=outcome, findings=(Finding(summary=summary, lines=words, facts=facts),)
    )


def answer(request: dict[str, Any], lane: Lane, known: Sequence[FoundSpec] = ()) -> dict[str, Any]:
    """Judge one requested case in this process: {"findings", "usable"}, the latter of the lane after it.

    The kernel is among `known`, or where the request says. An error that no launch caused is raised as it
    is where it is ours, else as the spec's; EnvironmentUnfit where this process cannot use the device.
    """
    _open(lane)
    if request == _VERSIONS:
        return lane.versions()
    try:
        asked = msgspec.convert(request, type=Request)
        found = _find_known(asked, known) or _find(
            asked.spec, asked.kernel, asked.fault, asked.runs
        )
        case = cases.decode(found.spec.case, asked.case)
        findings = checks.run(asked.check, found.spec, build(case, lane.device), lane)
    except BitproofError:
        raise
    except Exception as error:
        raise SpecError(f"judging a case raised {describe(error)}") from error
    usable = findings.outcome is not Outcome.CRASHED or lane.usable()
    return {"findings": msgspec.to_builtins(findings, enc_hook=str), "usable": usable}


# The processes that have opened the lane's device: a copy begins with its parent's.
_opened: set[int] = set()


def _open(lane: Lane) -> None:
    """Have this process open its device, which takes a second on a card and belongs to no case."""
    if os.getpid() in _opened:
        return
    _opened.add(os.getpid())
    with stage(OPENING):
        if not lane.usable():
            raise EnvironmentUnfit(
                f"lane {lane.name}: this process cannot use {lane.device}: look at the card with nvidia-smi"
            )


def _runs(spec: KernelSpec) -> int:
    """The runs of the bitwise claim, 0 where none is made."""
    return spec.bitwise.runs if spec.bitwise else 0


def _find_known(asked: Request, known: Sequence[FoundSpec]) -> FoundSpec | None:
    wanted = (asked.spec, asked.kernel, asked.fault, asked.runs)
    for found in known:
        spec = found.spec
        if (found.reference, spec.name, found.fault, _runs(spec)) == wanted:
            return found
    return None


def main() -> None:
    """The child: answer requests until there are no more."""
    lanes.choose()
    lane = lanes.present()
    serve(lambda request: answer(request, lane))


if __name__ == "__main__":
    main()
