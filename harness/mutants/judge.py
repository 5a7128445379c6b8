"""Judges one mutant: proofs that it is no fault, then a few cases of every check, then whole searches."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import settings

from bitproof.harness import checks, exercised, lanes
from bitproof.harness.case import Case, Inputs, build
from bitproof.harness.checks.reproducibility import _differs
from bitproof.harness.errors import SpecError, one_line
from bitproof.harness.lanes.base import LaunchFailed, Variation
from bitproof.harness.mutants import memory_faults as memory
from bitproof.harness.mutants import proof
from bitproof.harness.mutants.bench import Bench
from bitproof.harness.mutants.generation import Mutant
from bitproof.harness.mutants.operators import named
from bitproof.harness.mutants.reached import comes_to
from bitproof.harness.mutants.verdicts import ARGUED, CODE, LANE, SWEEP, Fate, Verdict
from bitproof.harness.outcomes import CheckResult, Finding, Outcome
from bitproof.harness.processes.serve import stage
from bitproof.harness.search import falsify, profiles
from bitproof.harness.spec import KernelSpec
from bitproof.harness.subjects.planting import edit, plant_source
from bitproof.harness.sweep import sweep

# Seconds that the search for a smaller case goes on.
SHRINKING = 20.0
# Cases of each check that are judged before any check's whole search, by the check's launches.
_FIRST = 8
# As many times what the slowest case took is a case given, and at least that many seconds.
_PATIENCE, _PATIENCE_LEAST = 30.0, 60.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """limit: seconds for one mutant, proofs apart; shrink: whether to look for a smaller case that kills;
    every_check: whether the other checks judge a killed mutant too; sweep: whether to try a survivor of an
    elementwise kernel on every fp32 value; max_examples: cases of each check, None for the default number."""

    limit: float = 120.0
    shrink: bool = False
    every_check: bool = False
    sweep: bool = False
    max_examples: int | None = None


class _Late(BaseException):
    """A case takes too long: no launcher can mistake it for an error of its own."""


def prove(bench: Bench, mutant: Mutant) -> Verdict | None:
    """The verdict on a mutant that no search has to judge, None for the others.

    SpecError for an argued equivalent of the spec whose anchor does not apply.
    """
    began = time.perf_counter()
    spec, found = bench.found.spec, bench.found

    def verdict(fate: Fate, *, kind: str = "", because: str) -> Verdict:
        return Verdict(
            kernel=spec.name,
            mutant=mutant.name,
            fate=fate,
            proof=kind,
            because=because,
            seconds=time.perf_counter() - began,
        )

    module = importlib.import_module(mutant.module)
    try:
        mutated = plant_source(found, module, mutant.after, name=mutant.name)
    except SpecError as error:
        return verdict(Fate.INVALID, because=one_line(error))
    with stage("proving"):
        compared = proof.compare(
            spec,
            mutated,
            bench.launches(),
            lambda kernel: (
                not _is_of_function(mutant) or comes_to(kernel, mutant.module, mutant.within)
            ),
        )
    if compared.refused:
        return verdict(Fate.INVALID, because=f"does not compile: {compared.refused}")
    if compared.equal and _is_of_function(mutant):
        because = f"in all {compared.equal} specialisations that its cases reach"
        return verdict(Fate.EQUIVALENT, kind=CODE, because=because)
    argued = find_argued(spec, mutant, found.module.__name__)
    if argued:
        return verdict(Fate.EQUIVALENT, kind=ARGUED, because=argued)
    return None


def _is_of_function(mutant: Mutant) -> bool:
    """Constants may be read by the launcher too, which compares nothing."""
    return not mutant.within.isupper()


def find_argued(spec: KernelSpec, mutant: Mutant, home: str) -> str:
    """Why a person says that a mutant is no fault, "" where nobody does."""
    for one in spec.equivalents:
        if (one.module or home) != mutant.module:
            continue
        if edit(mutant.source.text, one.as_fault(), where=f"spec {spec.name!r}") == mutant.after:
            return one.because
    return ""


def judge(bench: Bench, mutant: Mutant, options: Options) -> Verdict:
    """Search for a case that shows the mutant, with every check that its lane can run."""
    search = _Search(bench, mutant, options)
    with stage("judging"):
        return search.run()


class _Search:
    """One mutant's way through the checks, and what was seen on it."""

    def __init__(self, bench: Bench, mutant: Mutant, options: Options) -> None:
        """Plants it; SpecError where that fails."""
        self._bench, self._mutant, self._options = bench, mutant, options
        module = importlib.import_module(mutant.module)
        planted = plant_source(bench.found, module, mutant.after, name=mutant.name)
        self._spec = bench.with_answers(planted)
        lane = bench.lane
        self._checks = [
            name for name in checks.names(planted) if not checks.unable(name, planted, lane)
        ]
        # What judges numbers comes first: it is quick, and catches most.
        self._checks.sort(key=lambda name: (name != "agreement", name != "memory", name))
        self._began = time.perf_counter()
        self._slowest = 0.0
        self._examples = 0
        self._lines: dict[str, int] = {}
        self._noticed: dict[str, bool] = {}
        self._kill: tuple[str, Case, CheckResult] | None = None
        self._examples_to_kill = 0

    def run(self) -> Verdict:
        """The verdict."""
        for name in self._checks:
            self._try_first(name)
            if self._is_done():
                break
        if self._kill is None and self._is_idle():
            return self._uncovered(cut=False)
        for name in self._checks:
            if self._is_done() or self._is_late():
                break
            if not self._noticed.get(name):
                self._search(name)
        if self._kill is not None:
            return self._killed()
        cut = self._is_late()
        if self._runs_lines() and not self._is_executed():
            if not cut:
                self._bench.idle.add(self._part())
            return self._uncovered(cut=cut)
        return (
            self._swept()
            or self._unseen()
            or self._verdict(Fate.SURVIVED, because="no check noticed it", cut=cut)
        )

    # --- judging

    def _is_done(self) -> bool:
        return self._kill is not None and not self._options.every_check

    def _is_late(self) -> bool:
        return time.perf_counter() - self._began > self._options.limit

    def _try_first(self, check: str) -> None:
        """A few of the shared cases."""
        count = max(1, _FIRST // checks.find(check).launches(self._spec))
        with stage(check):
            for case in self._bench.cases[:count]:
                if self._is_late():
                    return
                _, result = self._judge(check, case)
                self._noticed.setdefault(check, False)
                if result.outcome.is_defect:
                    self._note(check, case, result)
                    return

    def _search(self, check: str) -> None:
        """As a property does, with the cases of the profile that is the same everywhere."""
        profile = profiles.CI
        lane = self._bench.lane
        examples = self._options.max_examples or profiles.examples(
            self._spec, check, lane.name, profile
        )
        left = self._options.limit - (time.perf_counter() - self._began)
        with stage(check):
            result = falsify.search(
                self._spec,
                check,
                lane,
                max_examples=examples,
                shrink=False,
                base=settings.get_profile(profile),
                execute=lambda case: self._judge(check, case),
                seconds=left,
            )
        if result.findings is not None and result.case is not None:
            self._note(check, result.case, result.findings)

    def _judge(self, check: str, case: Case) -> tuple[Inputs, CheckResult]:
        began = time.perf_counter()
        inputs = build(case, self._bench.lane.device)
        self._examples += 1
        try:
            with _alarm(max(_PATIENCE * self._slowest, _PATIENCE_LEAST)):
                result = checks.run(check, self._spec, inputs, self._bench.lane)
        except _Late:
            summary = "the launch gave no answer in time"
            result = CheckResult(outcome=Outcome.HUNG, findings=(Finding(summary=summary),))
        else:
            self._slowest = max(self._slowest, time.perf_counter() - began)
        for line, count in result.lines.items():
            self._lines[line] = self._lines.get(line, 0) + count
        return inputs, result

    def _note(self, check: str, case: Case, result: CheckResult) -> None:
        self._noticed[check] = True
        if self._kill is None:
            self._kill = check, case, result
            self._examples_to_kill = self._examples

    def _killed(self) -> Verdict:
        assert self._kill is not None
        check, case, result = self._kill
        shrunk = self._shrink(check) if self._options.shrink else None
        findings = result.findings
        return self._verdict(
            Fate.KILLED,
            check=check,
            outcome=str(result.outcome),
            examples=self._examples_to_kill,
            size=size(case),
            shrunk=shrunk,
            because=findings[0].summary if findings else result.reason,
        )

    def _shrink(self, check: str) -> int | None:
        """The size of the smallest case found that the check rejects, None where none was found again."""
        lane = self._bench.lane
        result = falsify.search(
            self._spec,
            check,
            lane,
            max_examples=self._options.max_examples
            or profiles.examples(self._spec, check, lane.name, profiles.CI),
            base=settings.get_profile(profiles.CI),
            execute=lambda case: self._judge(check, case),
            shrinking=SHRINKING,
        )
        return None if result.case is None else size(result.case)

    # --- what was not noticed

    def _runs_lines(self) -> bool:
        """Whether the lane tells which lines of a function ran."""
        return (
            lanes.family(self._bench.lane.name) == "interpreter"
            and not self._mutant.within.isupper()
        )

    def _passages(self) -> list[tuple[exercised.Passage, int]]:
        """The passages of the mutated function that hold the mutant's line, the innermost last."""
        found = []
        for text, count in self._lines.items():
            passage = exercised.read_passage(text)
            if (
                "bitproof_fault_" in passage.file
                and passage.function == self._mutant.within
                and passage.first <= self._mutant.line <= passage.last
            ):
                found.append((passage, count))
        return sorted(found, key=lambda one: (one[0].first, -one[0].last))

    def _is_executed(self) -> bool:
        passages = self._passages()
        return bool(passages) and passages[-1][1] > 0

    def _part(self) -> str:
        """What names the innermost passage in reports, the same for every mutant of it."""
        passages = self._passages()
        condition = passages[-1][0].condition if passages else "never called"
        return f"{self._mutant.module}.{self._mutant.within}, {condition or 'all of it'}"

    def _uncovered(self, *, cut: bool) -> Verdict:
        because = f"no case executes its line: {self._part()}"
        return self._verdict(Fate.UNCOVERED, because=because, cut=cut)

    def _is_idle(self) -> bool:
        return self._runs_lines() and not self._is_executed() and self._part() in self._bench.idle

    def _swept(self) -> Verdict | None:
        """Where every fp32 value comes out right, a fault of numbers alone has nothing left to change.

        Other types of input, tails and layouts the searches before have judged.
        """
        of_numbers = named(self._mutant.operator).find.__module__ != memory.__name__
        if not (self._options.sweep and of_numbers and self._spec.elementwise is not None):
            return None
        found = dataclasses.replace(self._bench.found, spec=self._spec)
        with stage("sweeping"):
            census = sweep.sweep(found, self._bench.lane)
        if census.wrong:
            return None
        return self._verdict(
            Fate.EQUIVALENT, kind=SWEEP, because="all 2^32 fp32 values come out right"
        )

    def _unseen(self) -> Verdict | None:
        """A fault of an operator that changes nothing on this lane, where that is what it was seen to do."""
        family = lanes.family(self._bench.lane.name)
        reason = named(self._mutant.operator).unseen.get(family)
        if not reason:
            return None
        for number in range(len(self._bench.cases)):
            first = self._bench.outputs(number)
            try:
                inputs = self._bench.inputs(number)
                other = self._bench.lane.run(self._spec, inputs, Variation()).outputs
            except LaunchFailed:
                if first is not None:
                    return None
                continue
            if first is None or any(bool(_differs(first[n], other[n])) for n in first):
                return None
        because = f"{reason}; {len(self._bench.cases)} cases give equal bits"
        return self._verdict(Fate.EQUIVALENT, kind=LANE, because=because)

    def _verdict(self, fate: Fate, *, kind: str = "", **told: Any) -> Verdict:
        told.setdefault("examples", self._examples)
        return Verdict(
            kernel=self._spec.name,
            mutant=self._mutant.name,
            fate=fate,
            proof=kind,
            checks=dict(self._noticed),
            seconds=time.perf_counter() - self._began,
            **told,
        )


def size(case: Case) -> int:
    """How many elements the input tensors of a case have together."""
    return sum(tensor.numel() for tensor in case.tensors(torch.device("cpu")).values())


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """While active, raise _Late after that many seconds; nothing happens but in a process's main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
