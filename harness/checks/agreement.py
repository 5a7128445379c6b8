"""Agreement: every output equals the oracle within its bound."""

from __future__ import annotations

from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check
from bitproof.harness.lanes.arena import unwritten
from bitproof.harness.lanes.base import Lane, Launched, Variation
from bitproof.harness.outcomes import Finding, Findings, Outcome, judged
from bitproof.harness.report import compare
from bitproof.harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> Findings:
    """One launch against the oracle; measures the worst distance in units of its bound."""
    launched = lane.run(spec, inputs, Variation())
    findings, worst = compare.against_oracle(spec, launched.outputs, inputs)
    if any(finding.index is not None for finding in findings):
        findings = _attributed(findings, spec, inputs, lane, launched)
    if not findings and not any(output.numel() for output in launched.outputs.values()):
        return Findings(outcome=Outcome.NOT_DEMONSTRATED, reason="its outputs are empty")
    return judged(findings, worst=worst)


def _attributed(
    findings: list[Finding], spec: KernelSpec, inputs: Inputs, lane: Lane, launched: Launched
) -> list[Finding]:
    """The findings with who wrote their elements: nobody, if they hold the poison of two runs."""
    again = lane.run(spec, inputs, Variation(turn=1, turns=2, watched=True))
    poisons = (launched.arena.poison, again.arena.poison)

    def writer(name: str, index: tuple[int, ...]) -> str:
        one, other = launched.outputs[name][index], again.outputs[name][index]
        if bool(unwritten(one, other, poisons).any()):
            return compare.NOBODY
        return again.writer(name, index) if again.writer and spec.program is None else ""

    return [compare.attributed(finding, writer) for finding in findings]


CHECK = Check(name="agreement", judge=check, launches=lambda spec: 1, far=True)
