"""Invariances: relations between two runs that hold bit for bit, such as one row alone and in a batch."""

from __future__ import annotations

from harness import compare
from harness.case import Inputs
from harness.lanes.base import Lane, Variation
from harness.outcomes import Finding, Findings, Outcome, judged
from harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> Findings:
    """Run once, then once for each invariance that applies to these inputs."""
    base = lane.run(spec, inputs, Variation()).outputs
    findings: list[Finding] = []
    applied = 0
    for invariance in spec.invariances:
        transformed = invariance.transform(inputs)
        if transformed is None:
            continue
        applied += 1
        other = lane.run(spec, transformed, Variation()).outputs
        for name, expected in sorted(invariance.relate(base, inputs).items()):
            finding = compare.same_bits(name, expected, other[name], invariance.name)
            findings += [finding] if finding else []
    if not applied:
        return Findings(outcome=Outcome.PASSED, measures={"applied": 0.0})
    return judged(findings, applied=float(applied))
