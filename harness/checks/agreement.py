"""Agreement: every output equals the oracle within its bound."""

from __future__ import annotations

import dataclasses

from bitproof.harness import exercised
from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check
from bitproof.harness.lanes.base import Lane, Variation
from bitproof.harness.outcomes import Findings, Outcome, judged
from bitproof.harness.report import compare
from bitproof.harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> Findings:
    """One launch against the oracle; measures the worst distance in units of its bound.

    In another configuration than the first, which only tuning chooses, an autotuned kernel is launched once
    more after its autotuner tried some, on the same tensors.
    """
    with exercised.collecting() as met:
        launched = lane.run(spec, inputs, Variation())
    findings, worst = compare.against_oracle(spec, launched.outputs, inputs)
    if findings and spec.program is None:
        writer = lane.run(spec, inputs, Variation(watched=True)).writer
        findings = [compare.attributed(one, writer) for one in findings] if writer else findings
    if not findings and not any(output.numel() for output in launched.outputs.values()):
        return Findings(outcome=Outcome.NOT_DEMONSTRATED, reason="its outputs are empty")
    if not findings and inputs.launch.config and met.configurations:
        tuned = lane.run(spec, inputs, Variation(tuning=True))
        found, further = compare.against_oracle(spec, tuned.outputs, inputs)
        findings = [dataclasses.replace(one, summary=f"{_TUNED}{one.summary}") for one in found]
        worst = max(worst, further)
    return judged(findings, worst=worst)


_TUNED = "after its autotuner tried other configurations on the same tensors, "


CHECK = Check(name="agreement", judge=check, launches=lambda spec: 1, far=True, tuned=True)
