"""Lets Hypothesis look for a case that a check rejects, and shrinks it.

Used by the properties, by the command line and by the fault runs; knows nothing of pytest.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import FlakyFailure, HypothesisException

from bitproof.harness import case as cases
from bitproof.harness import checks
from bitproof.harness.case import Case, Inputs, Scale, build, features_of
from bitproof.harness.checks.declaration import Check
from bitproof.harness.errors import SpecError, one_line
from bitproof.harness.lanes.base import Lane
from bitproof.harness.outcomes import TRIED, CheckResult, Finding, Outcome
from bitproof.harness.report.failure import describe_layouts
from bitproof.harness.report.summary import Entry, Sample, thin
from bitproof.harness.search import descent, draws, observing, profiles
from bitproof.harness.search.configurations import find_missing_cases
from bitproof.harness.search.draws import STEADY, strategy_of
from bitproof.harness.search.far_rows import find_far_case
from bitproof.harness.search.laid_out import find_laid_cases
from bitproof.harness.spec import KernelSpec


@dataclass(kw_only=True)
class SearchResult:
    """What a search found: examples by outcome, what the cases covered, and the smallest failing one.

    `wanted` names the counts that must not be zero for its passing to mean something; `unproven` says what
    the spec itself lacks for that (`checks.unproven`).
    """

    check: str
    kernel: str
    outcomes: collections.Counter[Outcome] = field(default_factory=collections.Counter)
    covered: collections.Counter[str] = field(default_factory=collections.Counter)
    measures: dict[str, float] = field(default_factory=dict)
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    lines: collections.Counter[str] = field(default_factory=collections.Counter)
    configurations: collections.Counter[str] = field(default_factory=collections.Counter)
    samples: list[Sample] = field(default_factory=list)
    ulps: dict[str, collections.Counter[str]] = field(default_factory=dict)
    differing: dict[str, list[int]] = field(default_factory=dict)
    reasons: set[str] = field(default_factory=set)
    wanted: frozenset[str] = frozenset()
    unable: str = ""
    unproven: str = ""
    seconds: float = 0.0
    case: Case | None = None
    inputs: Inputs | None = None
    findings: CheckResult | None = None

    @property
    def examples(self) -> int:
        """Cases judged before any failure was shrunk."""
        return self.outcomes.total()

    @property
    def outcome(self) -> Outcome:
        """The verdict on the whole search: a defect if any, else passed if anything passed and means it."""
        if self.findings is not None:
            return self.findings.outcome
        if self.unable:
            return Outcome.UNSUPPORTED
        if self.undemonstrated:
            return Outcome.NOT_DEMONSTRATED
        ranking = (
            Outcome.PASSED,
            Outcome.NOT_DEMONSTRATED,
            Outcome.OUT_OF_RESOURCES,
            Outcome.UNSUPPORTED,
            Outcome.REFUSED,
        )
        return next((o for o in ranking if self.outcomes[o]), Outcome.NOT_DEMONSTRATED)

    @property
    def undemonstrated(self) -> str:
        """Why what passed shows too little, "" where it does not.

        Everything wanted has to have been seen; where nothing is named, any count at all.
        """
        if not self.outcomes[Outcome.PASSED]:
            return ""
        lost = self.outcomes[Outcome.OUT_OF_RESOURCES]
        if lost > _LOST and lost > self.examples * _LOST_SHARE:
            return f"{lost} of {self.examples} examples were out of resources"
        if not self.counts:
            return self.unproven
        tried = {name.removesuffix(TRIED) for name in self.counts if name.endswith(TRIED)}
        idle = sorted(name for name in self.wanted | tried if not self.counts[name])
        if idle:
            return f"never {idle[0]}{_TOO_WIDE if idle[0] in tried else ''}"
        others = [n for name, n in self.counts.items() if name.removesuffix(TRIED) not in tried]
        return (
            self.unproven
            if any(others) or not others
            else checks.find(self.check).idle(self.counts)
        )

    @property
    def holds(self) -> bool:
        """Whether nothing is missing but what the spec leaves out: an author's first run is no failure."""
        lacking = self.undemonstrated != "" and self.undemonstrated == self.unproven
        return self.outcome is Outcome.PASSED or (
            self.outcome is Outcome.NOT_DEMONSTRATED and lacking
        )

    def count(self, case: Case, features: Iterable[str], findings: CheckResult) -> None:
        """Add what came of one case with these features."""
        self.outcomes[findings.outcome] += 1
        self.covered.update(features)
        if findings.reason:
            self.reasons.add(findings.reason)
        for name, value in findings.measures.items():
            self.measures[name] = max(value, self.measures.get(name, value))
        self.counts.update(findings.counts)
        self.lines.update(findings.lines)
        self.configurations.update(findings.configurations)
        for output, counts in findings.ulps.items():
            self.ulps.setdefault(output, collections.Counter()).update(counts)
        for which, flags in findings.differing.items():
            before = self.differing.get(which, [0] * len(flags))
            self.differing[which] = [n + flag for n, flag in zip(before, flags, strict=True)]
        if findings.distances:
            sample = Sample(
                sizes=cases.measure(case),
                features=sorted(features),
                distances=findings.distances,
            )
            self.samples.append(sample)

    def entry(self, *, report: str = "", record: Path | None = None) -> Entry:
        """The entry of a run's summary, with the report and the record of a failure."""
        return Entry(
            kernel=self.kernel,
            check=self.check,
            outcome=str(self.outcome),
            examples=self.examples,
            outcomes={str(outcome): n for outcome, n in sorted(self.outcomes.items())},
            covered=dict(sorted(self.covered.items())),
            measures=self.measures,
            counts=dict(sorted(self.counts.items())),
            lines=dict(sorted(self.lines.items())),
            configurations=dict(sorted(self.configurations.items())),
            samples=thin(self.samples),
            ulps={name: dict(counts) for name, counts in sorted(self.ulps.items())},
            differing=self.differing,
            reasons=sorted(self.reasons),
            seconds=round(self.seconds, 3),
            report=report,
            record=str(record) if record else None,
        )


_TOO_WIDE = ": its bound is too wide"

# A check that lost more cases than that to want of memory, and more than that share of them, has shown too
# little.
_LOST = 3
_LOST_SHARE = 0.1

# Seconds that a search goes on for a smaller case once it has found one.
SHRINKING = 60.0

# Further cases that are drawn, and judged if they show something wanted that none showed before.
_FURTHER = 200

# Passing cases that are judged again in each autotune configuration not met.
_RETUNED = 2

# Cases among which some are looked for that have rows to move apart, and axes to lay out otherwise.
_FAR_AMONG = 40

Execute = Callable[[Case], tuple[Inputs, CheckResult]]


class _Rejected(Exception):
    """Carries a failing case through Hypothesis."""


# Whatever the profile: a first call compiles for many seconds, so that no deadline and no judgement of
# speed makes sense; one failure is worked on, and we word it.
_ALWAYS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": (HealthCheck.too_slow, HealthCheck.data_too_large),
    "report_multiple_bugs": False,
    "print_blob": False,
    "verbosity": Verbosity.quiet,
}


def draw_cases(spec: KernelSpec, examples: int, scale: Scale = Scale()) -> list[Case]:
    """Up to `examples` cases of the spec's strategy, the simplest first: the same ones in every process.

    SpecError where the strategy cannot make any.
    """
    draws.register()
    found: list[Case] = []
    chosen = settings(
        backend=STEADY,
        database=None,
        derandomize=True,
        deadline=None,
        max_examples=examples,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )

    def draw(case: Case) -> None:
        found.append(case)

    try:
        chosen(seed(f"drawn {spec.name}")(given(strategy_of(spec, scale))(draw)))()
    except HypothesisException as error:
        raise _undrawable(spec, error) from error
    return found


def _undrawable(spec: KernelSpec, error: HypothesisException) -> SpecError:
    return SpecError(f"spec {spec.name!r}: its cases cannot be drawn: {one_line(error)}")


def search(
    spec: KernelSpec,
    check: str,
    lane: Lane,
    *,
    max_examples: int,
    shrink: bool = True,
    base: settings | None = None,
    execute: Execute | None = None,
    seconds: float | None = None,
    scale: Scale | None = None,
    shrinking: float = SHRINKING,
) -> SearchResult:
    """Judge up to `max_examples` drawn cases; stop at the first defect, shrunk unless told otherwise.

    Where the check still wants to see something then, cases that show it are looked for among some more.
    After `seconds` no further case is begun, the first apart; a defect is shrunk all the same, for
    `shrinking` seconds. Where `base`
    is derandomised, the cases are the same ones in every process. A failure that does not repeat is a finding
    too: the kernel gave two answers to one case. `execute` judges one case; by default that happens here, see
    `isolation` for elsewhere. `scale` is by default that of a run on `lane` under the profile that is loaded.
    """
    draws.register()
    wanted = checks.find(check).wanted(spec)
    result = SearchResult(
        check=check,
        kernel=spec.name,
        wanted=frozenset(wanted),
        unproven=checks.unproven(check, spec),
    )
    began = time.perf_counter()

    def here(case: Case) -> tuple[Inputs, CheckResult]:
        inputs = build(case, lane.device)
        return inputs, checks.run(check, spec, inputs, lane)

    execute = execute or here
    result.unable = checks.unable(check, spec, lane)
    if result.unable:
        result.reasons.add(result.unable)
        return result

    def missing() -> list[Callable[[Inputs], bool]]:
        """Ways to tell inputs that show what is wanted and was not seen."""
        return [
            shows for name, shows in wanted.items() if shows is not None and not result.counts[name]
        ]

    passed: collections.deque[Case] = collections.deque(maxlen=_RETUNED)
    found_at = began  # when the first defect was found
    further = False  # whether only cases that show what is missing are judged

    def judge(case: Case) -> None:
        nonlocal found_at
        if result.findings is not None and time.perf_counter() - found_at > shrinking:
            # Nor can it be told to shrink no more: only the smallest case so far counts as failing.
            if case == result.case:
                raise _Rejected
            return
        late = seconds is not None and time.perf_counter() - began > seconds
        if late and result.examples and result.findings is None:
            return  # Hypothesis cannot be told to draw no more, but drawing costs a millisecond
        if further and result.findings is None:
            inputs = build(case, torch.device("cpu"))
            if not any(shows(inputs) for shows in missing()):
                return
        inputs, findings = execute(case)
        features = features_of(case)
        if case.launch.layout:
            features |= set(describe_layouts(spec, inputs))
        observing.note(case, sorted(features), findings)
        if result.findings is None:
            result.count(case, features, findings)
            if findings.outcome is Outcome.PASSED:
                passed.append(case)
        if findings.outcome.is_defect:
            if result.findings is None:
                found_at = time.perf_counter()
            result.case, result.inputs, result.findings = case, inputs, findings
            raise _Rejected

    def judge_undrawn(case: Case) -> None:
        try:
            judge(case)
        except _Rejected:
            if shrink and all(case != refusal.case for refusal in spec.refusals):
                descent.shrink(case, draw_cases(spec, _FAR_AMONG), is_smaller)
            raise

    def is_smaller(case: Case) -> bool:
        assert result.findings is not None
        if time.perf_counter() - found_at > shrinking:
            return False
        inputs, findings = execute(case)
        if descent.describe_failure(findings) != descent.describe_failure(result.findings):
            return False
        result.case, result.inputs, result.findings = case, inputs, findings
        return True

    observing.name(judge, spec.name, check)
    identity = f"{check} {spec.name}"
    # As Hypothesis' pytest plugin does for each test: examples are kept for each kernel and check apart.
    judge._hypothesis_internal_add_digest = identity.encode()  # type: ignore[attr-defined]
    phases = (Phase.reuse, Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    base = base or settings()
    backend = STEADY if base.derandomize else base.backend
    strategy = strategy_of(spec, scale or profiles.scale(lane.name))

    def look(examples: int, purpose: str) -> None:
        chosen = settings(base, max_examples=examples, phases=phases, backend=backend, **_ALWAYS)
        drawing = given(strategy)(judge)
        if base.derandomize:  # Hypothesis would derive a seed from the very text of `judge`
            drawing = seed(purpose)(drawing)
        chosen(drawing)()

    try:
        look(max_examples, identity)
        for case in _find_further_cases(spec, checks.find(check)):
            judge_undrawn(case)
        if checks.find(check).tuned:
            for case in find_missing_cases(result.configurations, list(passed)):
                judge_undrawn(case)
        if missing():
            further = True
            look(_FURTHER, f"{identity} further")
    except _Rejected:
        _narrow(result, execute)
    except FlakyFailure as error:
        for mistake in error.exceptions:  # a strategy that raises at one time and not at another
            if isinstance(mistake, SpecError):
                raise mistake from error
        if result.findings is None:
            raise
        result.findings = _unsteady(result.findings)
    except HypothesisException as error:
        raise _undrawable(spec, error) from error
    result.seconds = time.perf_counter() - began
    return result


def _find_further_cases(spec: KernelSpec, check: Check) -> Iterator[Case]:
    """What a check judges beside drawn cases.

    The spec's corners, its refusals' cases and one with rows far apart; some for layouts that it allows.
    """
    if check.far:
        cases = list(spec.corners)
        cases += [refusal.case for refusal in spec.refusals if refusal.case not in cases]
        yield from (case for place, case in enumerate(cases) if case not in cases[:place])
    if (check.laid and (spec.layouts or spec.shared)) or (check.far and spec.strided):
        found = draw_cases(spec, _FAR_AMONG)
        if check.laid:
            yield from find_laid_cases(spec, found)
        far = find_far_case(spec, found) if check.far else None
        if far is not None:
            yield far


def _narrow(result: SearchResult, execute: Execute) -> None:
    """Try the case that holds only the offending element's inputs, where the case knows how."""
    narrow = getattr(result.case, "narrow", None)
    if narrow is None or result.findings is None:
        return
    for finding in result.findings.findings:
        smaller = narrow(finding.output, finding.index) if finding.index is not None else None
        if smaller is None:
            continue
        inputs, findings = execute(smaller)
        if findings.outcome is result.findings.outcome:
            result.case, result.inputs, result.findings = smaller, inputs, findings
            return


def _unsteady(findings: CheckResult) -> CheckResult:
    note = Finding(
        summary="the same case passed when it was judged again: the kernel is not steady"
    )
    return CheckResult(
        outcome=findings.outcome,
        findings=(*findings.findings, note),
        measures=findings.measures,
    )
