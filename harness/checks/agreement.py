"""Agreement: every output equals the oracle within its bound."""

from __future__ import annotations

from dataclasses import replace

from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check
from bitproof.harness.compiling.compiler import find_refusal
from bitproof.harness.errors import Uncompilable
from bitproof.harness.lanes.base import Lane, LaunchFailed, Variation
from bitproof.harness.outcomes import Finding, Findings, Outcome, classify, judged
from bitproof.harness.report import compare
from bitproof.harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> Findings:
    """One launch against the oracle; measures the worst distance in units of its bound.

    What a lane launched without a compiler has to compile for some target.
    """
    try:
        launched = lane.run(spec, inputs, Variation())
    except LaunchFailed as failure:
        outcome = classify(failure.__cause__ or failure, spec.refuses).outcome
        if outcome in (Outcome.CRASHED, Outcome.UNSUPPORTED):
            refusal = find_refusal(failure.launches)
            if refusal:
                raise LaunchFailed(spec.name) from Uncompilable(refusal)
        raise
    refusal = find_refusal(launched.launches or ())
    if refusal:
        return judged([Finding(summary=refusal)])
    findings, worst = compare.against_oracle(spec, launched.outputs, inputs)
    if findings and spec.program is None:
        writer = lane.run(spec, inputs, Variation(watched=True)).writer
        findings = [compare.attributed(one, writer) for one in findings] if writer else findings
    if not findings and not any(output.numel() for output in launched.outputs.values()):
        return Findings(outcome=Outcome.NOT_DEMONSTRATED, reason="its outputs are empty")
    judgement = judged(findings, worst=worst)
    if launched.launches is None:
        return judgement
    return replace(judgement, counts={"a kernel launched": int(bool(launched.launches))})


CHECK = Check(
    name="agreement",
    judge=check,
    launches=lambda spec: 1,
    far=True,
    idle="no kernel was launched",
)
