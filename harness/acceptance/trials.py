"""What is tried of a candidate, each trial with its evidence in a sentence."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import settings

from bitproof.harness import layouts
from bitproof.harness.acceptance.around import AroundCase, same_bits, vary, with_layout
from bitproof.harness.acceptance.problem import Problem
from bitproof.harness.acceptance.remote import Remote, layouts_of
from bitproof.harness.case import Case, Inputs, build, encode
from bitproof.harness.lanes.base import Lane
from bitproof.harness.outcomes import CheckResult, Finding, Outcome, conclude
from bitproof.harness.search import falsify, profiles

# Powers of two that each input is times, in turn.
LADDER = (-12, -8, -4, -2, 0, 2, 4, 8, 12)
# A step of the ladder by which the error over its bound grows at least so much is told as a cliff.
_CLIFF = 8.0
_CASES = 400


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one trial showed: a sentence, numbers for machines, the failing case where there is one."""

    trial: str
    outcome: Outcome
    sentence: str
    lines: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    case: AroundCase | None = None


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What trials work with."""

    problem: Problem
    remote: Remote
    lane: Lane

    def inputs(self, case: Case) -> Inputs:
        """The inputs of a case where the reference answers."""
        return build(case, self.lane.device)

    def judge(self, case: Case) -> tuple[Inputs, CheckResult]:
        """One case: run there, answered here."""
        inputs = self.inputs(case)
        answer = self.remote.run(inputs)
        if answer.failed is not None:
            return inputs, answer.failed
        result = self.problem.judge(self._placed(answer.outputs), inputs)
        counts = {"a kernel was started": int(bool(answer.told["starts"]))}
        return inputs, dataclasses.replace(result, counts=counts)

    def _placed(self, outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: one.to(self.lane.device) for name, one in outputs.items()}

    def against(self, outputs: Mapping[str, torch.Tensor], inputs: Inputs) -> CheckResult:
        """Outputs that came from there against the answer."""
        return self.problem.judge(self._placed(outputs), inputs)


Trial = Callable[[Bench, float], Evidence]


def try_launches(bench: Bench, seconds: float) -> Evidence:
    """Whether a Triton kernel is started that compiles, and whether outputs change where none runs."""
    case = bench.problem.around.filled("ordinary")
    inputs = bench.inputs(case)
    answer = bench.remote.run(inputs, compile=True)
    if answer.failed is not None:
        return _fail("launches", answer.failed, case)
    if answer.told["refusal"]:
        refusal = conclude([Finding(summary=answer.told["refusal"])])
        return _fail("launches", refusal, case)
    starts, operations = answer.told["starts"], answer.told["operations"]
    facts = {"starts": starts, "torch_operations": operations}
    computed = ", ".join(f"{name} {count}" for name, count in sorted(operations.items())) or "none"
    wrong = ""
    if not starts:
        wrong = f"no Triton kernel is started; torch computes: {computed}"
    elif not _matter(bench, inputs, answer.outputs):
        wrong = (
            "the outputs are the same where its kernels do not run: they do not matter; torch computes: "
            f"{computed}"
        )
    kernels = ", ".join(f"{name} {count}" for name, count in sorted(starts.items()))
    sentence = f"starts {kernels}; without them the outputs change; torch operations: {computed}"
    return Evidence(
        trial="launches",
        outcome=Outcome.FAILED if wrong else Outcome.PASSED,
        sentence=wrong or sentence,
        facts=facts,
    )


def _matter(bench: Bench, inputs: Inputs, outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether outputs differ where no kernel runs; memory holds another byte each time."""
    void = [bench.remote.run(inputs, void=True, turn=turn) for turn in (0, 1)]
    return all(one.failed is not None or not same_bits(one.outputs, outputs) for one in void)


def try_agreement(bench: Bench, seconds: float) -> Evidence:
    """The corners, then drawn cases, against the answer; a failing one is shrunk."""
    profiles.register()
    corners = collections.Counter[Outcome]()
    failing: tuple[Case, CheckResult] | None = None
    worst = 0.0
    for case in bench.problem.corners:
        _, judged_so = bench.judge(case)
        corners[judged_so.outcome] += 1
        worst = max(worst, judged_so.measures.get("worst", 0.0))
        if judged_so.outcome.is_defect:
            failing = (case, judged_so)
            break
    raising = []
    for name in bench.problem.around.empty if failing is None else ():
        case = bench.problem.around.simplest(**{name: 0})
        _, judged_so = bench.judge(case)
        if judged_so.outcome is Outcome.FAILED:
            failing = (case, judged_so)
            break
        raising += [name] * judged_so.outcome.is_defect
    result = falsify.search(
        bench.problem.spec,
        "agreement",
        bench.lane,
        max_examples=_CASES,
        base=settings(settings.get_profile(profiles.default()), database=None, derandomize=True),
        execute=bench.judge,
        seconds=max(1, int(seconds * 0.6)),
        shrinking=seconds * 0.4,
    )
    result.outcomes.update(corners)
    result.measures["worst"] = max(worst, result.measures.get("worst", 0.0))
    if failing is not None and result.findings is None:
        result.case, result.findings = failing
    outcomes = {str(outcome): count for outcome, count in sorted(result.outcomes.items())}
    facts = {
        "cases": outcomes,
        "covered": dict(sorted(result.covered.items())),
        "worst_over_bound": result.measures.get("worst", 0.0),
        "cases_with_a_kernel": result.counts["a kernel was started"],
        "raises_where_empty": raising,
    }
    if result.findings is not None:
        return _fail("agreement", result.findings, result.case, facts)
    good, refused = result.outcomes[Outcome.PASSED], result.outcomes[Outcome.REFUSED]
    counted = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    sentence = f"{result.examples} cases: {counted}; worst error {facts['worst_over_bound']:.2g} of its bound"
    if raising:
        sentence += f"; it raises where {' or '.join(raising)} is 0"
    if not good or refused > good:
        reasons = "; ".join(sorted(result.reasons)[:2])
        return Evidence(
            trial="agreement",
            outcome=Outcome.NOT_DEMONSTRATED,
            sentence=f"{sentence}: {reasons}",
            facts=facts,
        )
    without = good - corners[Outcome.PASSED] - result.counts["a kernel was started"]
    if without > 0:
        sentence = f"{sentence}; in {without} of them no kernel was started"
        return Evidence(
            trial="agreement", outcome=Outcome.NOT_DEMONSTRATED, sentence=sentence, facts=facts
        )
    return Evidence(trial="agreement", outcome=Outcome.PASSED, sentence=sentence, facts=facts)


def find_cliffs(ratios: Mapping[str, float]) -> list[str]:
    """Where error over bound jumps from one power of two to the next; `ratios` are in ascending order.

    No error at all is no foot of a cliff: there an input has underflowed, or answers are exact.
    """
    found = []
    for low, high in itertools.pairwise(ratios):
        one, other = sorted((ratios[low], ratios[high]))
        if one > 0 and other > 1 / _CLIFF and other > _CLIFF * max(one, 1e-3):
            found.append(f"between 2^{low} and 2^{high}, from {one:.2g} to {other:.2g}")
    return found


def try_scalings(bench: Bench, seconds: float) -> Evidence:
    """Error over bound where each input in turn is times powers of two: a cliff is told with its place."""
    around = bench.problem.around
    found: dict[str, dict[str, float]] = {}
    cliffs = []
    until = time.monotonic() + seconds
    for name in around.scalable:
        ratios = found.setdefault(name, {})
        for k in LADDER:
            if time.monotonic() > until:
                break
            case = around.filled("ordinary", k, name)
            _, result = bench.judge(case)
            if result.outcome.is_defect:
                return _fail(f"{name} times 2^{k}", result, case, {"ratios": found}, "scalings")
            ratios[str(k)] = result.measures.get("worst", 0.0)
        cliffs += [f"{name} {cliff}" for cliff in find_cliffs(ratios)]
    told = (
        f"each of {', '.join(around.scalable) or 'no input'} times 2^{LADDER[0]} to 2^{LADDER[-1]}"
    )
    sentence = f"{told}: inside the bound" + (f"; cliffs: {'; '.join(cliffs)}" if cliffs else "")
    outcome = Outcome.PASSED if found else Outcome.NOT_DEMONSTRATED
    if not found:
        sentence = "every input has one sign or is no float, so that none was scaled"
    return Evidence(
        trial="scalings",
        outcome=outcome,
        sentence=sentence,
        facts={"ratios": found, "cliffs": cliffs},
    )


STALE = (
    "new values in the same storage",
    "the same values in new storage",
    "new values after twenty calls on the same storage",
    "the same call after one of another shape",
    "a call on another stream",
)


def try_stale(bench: Bench, seconds: float) -> Evidence:
    """Whether answers are of the call's own inputs, whatever was called before."""
    around = bench.problem.around
    a, b = (vary(around.filled("ordinary"), seed=seed) for seed in (1, 2))
    free = [name for name in around.sizes if name not in around.fixed]
    smaller = {name: max(1, getattr(a, name) // 2) for name in free}
    c = vary(a, **smaller, seed=3)
    inputs = {name: bench.inputs(case) for name, case in (("a", a), ("b", b), ("c", c))}
    answer = bench.remote.stale(inputs["a"], inputs["b"], inputs["c"])
    if answer.failed is not None:
        return _fail("stale answers", answer.failed, a)
    expected = ("a", "b", "b", "a", "a", "b")
    said = ("the first call", *STALE)
    for outputs, which, what in zip(answer.outputs, expected, said, strict=False):
        result = bench.against(outputs, inputs[which])
        case = a if which == "a" else b
        if result.outcome.is_defect and what == said[0]:
            return Evidence(
                trial="stale answers",
                outcome=Outcome.NOT_DEMONSTRATED,
                sentence="the very first call is wrong",
            )
        if result.outcome.is_defect:
            return _fail(f"wrong on {what}", result, case, trial="stale answers")
    if answer.told["changed"]:
        changed = ", ".join(answer.told["changed"])
        finding = Finding(summary=f"{changed} of the first call was changed by later ones")
        return _fail("an answer that does not last", conclude([finding]), a, trial="stale answers")
    told = ", ".join(said[1 : len(answer.outputs)])
    return Evidence(
        trial="stale answers",
        outcome=Outcome.PASSED,
        sentence=f"right on {told}",
    )


def try_layouts(bench: Bench, seconds: float) -> Evidence:
    """Each input alone in each layout beyond dense."""
    around = bench.problem.around
    allowed = layouts_of(bench.problem)
    dense = around.filled("ordinary")
    inputs = bench.inputs(dense)
    taken, refused = [], []
    wanted = {(name, layout) for name, every in allowed.items() for layout in every}
    until = time.monotonic() + seconds
    for number in range(1, 200):
        laid = set(layouts.lay(allowed, number, inputs.tensors))
        chosen = {(name, layouts.choose(allowed, number, name)) for name in laid} & wanted
        if not chosen or time.monotonic() > until:
            continue
        wanted -= chosen
        case = with_layout(dense, number)
        told = ", ".join(f"{name} {layout}" for name, layout in sorted(chosen))
        _, result = bench.judge(case)
        if result.outcome is Outcome.REFUSED:
            refused.append(told)
        elif result.outcome.is_defect:
            return _fail(told, result, case, trial="layouts")
        else:
            taken.append(told)
    if not taken:
        sentence = f"refuses every layout tried but dense: {'; '.join(refused[:3])}"
        return Evidence(trial="layouts", outcome=Outcome.REFUSED, sentence=sentence)
    sentence = f"{len(taken)} layouts right" + (f", {len(refused)} refused" if refused else "")
    facts = {"right": taken, "refused": refused}
    return Evidence(trial="layouts", outcome=Outcome.PASSED, sentence=sentence, facts=facts)


def try_memory(bench: Bench, seconds: float) -> Evidence:
    """Every element written, nothing else, nothing read that nobody wrote, inputs untouched."""
    return _try_check(bench, "memory", "memory")


def try_reproducibility(bench: Bench, seconds: float) -> Evidence:
    """Equal inputs give equal bits, over runs that are made to differ."""
    return _try_check(bench, "reproducibility", "reproducibility")


def _try_check(bench: Bench, check: str, trial: str) -> Evidence:
    around = bench.problem.around
    cases = [around.filled("ordinary"), around.filled("sparse")]
    cases += [vary(case, seed=7, **_odd(bench)) for case in cases[:1]]
    for case in cases:
        result = bench.remote.check(check, bench.inputs(case))
        if result.outcome.is_defect:
            return _fail(trial, result, case, trial=trial)
    sentence = {
        "memory": "every element is written, nothing outside, nothing undefined is used, inputs untouched",
        "reproducibility": "the same bits over runs in other orders and other fresh memory",
    }[check]
    return Evidence(
        trial=trial, outcome=Outcome.PASSED, sentence=f"{sentence} ({len(cases)} cases)"
    )


def _odd(bench: Bench) -> dict[str, int]:
    """Sizes that no tile divides, where they may be others than listed."""
    around = bench.problem.around
    return {name: min(size, 17) for name, size in around.sizes.items() if name not in around.fixed}


def _fail(
    what: str,
    result: CheckResult,
    case: Case | None,
    facts: Mapping[str, Any] | None = None,
    trial: str = "",
) -> Evidence:
    lines = tuple(result.text.splitlines())
    described = {**(facts or {}), "outcome": str(result.outcome)}
    if case is not None:
        described["case"] = encode(case)
    sentence = lines[0] if lines else str(result.outcome)
    held: Any = case
    return Evidence(
        trial=trial or what,
        outcome=result.outcome if result.outcome.is_defect else Outcome.NOT_DEMONSTRATED,
        sentence=f"{what}: {sentence}" if trial and trial != what else sentence,
        lines=lines[1:],
        facts=described,
        case=held,
    )


# In the order in which they are run, each with its share of the time.
TRIALS: Mapping[str, tuple[Trial, float]] = {
    "launches": (try_launches, 0.05),
    "stale answers": (try_stale, 0.05),
    "agreement": (try_agreement, 0.5),
    "scalings": (try_scalings, 0.15),
    "memory": (try_memory, 0.1),
    "reproducibility": (try_reproducibility, 0.05),
    "layouts": (try_layouts, 0.1),
}
