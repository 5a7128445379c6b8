"""Agreement: every output equals the oracle within its bound, and what is no input is refused."""

from __future__ import annotations

import dataclasses

from bitproof.harness import exercised
from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check
from bitproof.harness.compiling.compiler import find_refusal
from bitproof.harness.errors import Uncompilable, one_line
from bitproof.harness.lanes.arena import find_unwritten
from bitproof.harness.lanes.base import Lane, Launched, LaunchFailed, Variation
from bitproof.harness.outcomes import CheckResult, Finding, Outcome, classify, conclude
from bitproof.harness.report import compare
from bitproof.harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    """One launch against the oracle; measures the worst distance in units of its bound.

    What a lane launched without a compiler has to compile for some target. Where the spec makes inputs that
    are to be refused out of these, they are launched too. An autotuned kernel in another configuration than
    its first, which only tuning chooses, is launched once more after its autotuner tried some, on the same
    tensors.
    """
    with exercised.collecting() as met:
        launched = _launch(spec, inputs, lane)
    refusal = find_refusal(spec.name, launched.launches or ())
    if refusal:
        return conclude([Finding(summary=refusal)])
    widths: dict[str, int] = {}
    findings, worst = compare.against_oracle(spec, launched.outputs, inputs, widths=widths)
    if any(finding.index is not None for finding in findings):
        findings = _attributed(findings, spec, inputs, lane, launched)
    findings = _qualify(findings, spec, launched) or _not_refused(spec, inputs, lane)
    if not findings and not any(output.numel() for output in launched.outputs.values()):
        return CheckResult(outcome=Outcome.NOT_DEMONSTRATED, reason="its outputs are empty")
    if not findings and inputs.launch.config and met.configurations:
        tuned = lane.run(spec, inputs, Variation(tuning=True))
        found, further = compare.against_oracle(spec, tuned.outputs, inputs)
        findings = [dataclasses.replace(one, summary=f"{_TUNED}{one.summary}") for one in found]
        worst = max(worst, further)
    judgement = conclude(findings, worst=worst)
    if launched.launches is None:
        return dataclasses.replace(judgement, counts=widths)
    counts = {"a kernel launched": int(bool(launched.launches))}
    if launched.products:
        assumed = any(known.startswith("assumed") for known in launched.products.values())
        counts["a product's instruction assumed"] = int(assumed)
    return dataclasses.replace(judgement, counts={**counts, **widths})


def _launch(spec: KernelSpec, inputs: Inputs, lane: Lane) -> Launched:
    """One run; what a compiler refuses is told as such, whatever became of it in the lane."""
    try:
        return lane.run(spec, inputs, Variation())
    except LaunchFailed as failure:
        outcome = classify(failure.__cause__ or failure, spec.refuses).outcome
        if outcome in (Outcome.CRASHED, Outcome.UNSUPPORTED):
            refusal = find_refusal(spec.name, failure.launches)
            if refusal:
                raise LaunchFailed(spec.name) from Uncompilable(refusal)
        raise


def _qualify(findings: list[Finding], spec: KernelSpec, launched: Launched) -> list[Finding]:
    """The findings, and where exact bits are claimed, which products' instructions are not known."""
    doubts = tuple(
        f"  products  tl.dot at {file}:{line} was computed by the usual instruction, since {known[9:]}"
        for (file, line), known in sorted(launched.products.items())
        if known.startswith("assumed")
    )
    if not doubts or not spec.claims_exact_bits():
        return findings
    return [dataclasses.replace(one, lines=(*one.lines, *doubts)) for one in findings]


def _attributed(
    findings: list[Finding], spec: KernelSpec, inputs: Inputs, lane: Lane, launched: Launched
) -> list[Finding]:
    """The findings with who wrote their elements: nobody, if they hold the poison of two runs."""
    again = lane.run(spec, inputs, Variation(run=1, runs=2, watched=True))
    poisons = (launched.arena.poison, again.arena.poison)

    def writer(name: str, index: tuple[int, ...]) -> str:
        first, second = (run.outputs[name][index] for run in (launched, again))
        if bool(find_unwritten(first, second, poisons).any()):
            return compare.NOBODY
        return again.writer(name, index) if again.writer and spec.program is None else ""

    return [compare.name_writer(finding, writer) for finding in findings]


def _not_refused(spec: KernelSpec, inputs: Inputs, lane: Lane) -> list[Finding]:
    """A finding for each refusal of this very case that the launcher answers otherwise than documented."""
    documented = " or ".join(kind.__name__ for kind in spec.refuses)
    found = []
    for refusal in spec.refusals:
        if inputs.case is None or inputs.case != refusal.case:
            continue
        try:
            lane.run(spec, refusal.spoil(inputs), Variation())
        except LaunchFailed as failure:
            error = failure.__cause__ or failure
            if not isinstance(error, spec.refuses):
                came = f"it raises {type(error).__name__} ({one_line(error)})"
            elif failure.launches:
                begun = failure.launches[0].function.__name__
                came = f"it launches {begun} before it raises {type(error).__name__}"
            else:
                continue
        else:
            came = "it computes something"
        found.append(
            Finding(
                summary=f"the launcher does not refuse {refusal.name}: {came}, where its spec documents "
                f"{documented}"
            )
        )
    return found


_TUNED = "after its autotuner tried other configurations on the same tensors, "


CHECK = Check(
    name="agreement",
    judge=check,
    launches=lambda spec: 1,
    far=True,
    laid=True,
    tuned=True,
    idle=lambda counts: "no kernel was launched",
)
