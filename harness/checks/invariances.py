"""Invariances: relations between two runs that hold bit for bit, such as one row alone and in a batch."""

from __future__ import annotations

import dataclasses

from harness import compare
from harness.case import Inputs
from harness.errors import SpecError
from harness.lanes.base import Lane, Variation, kept
from harness.outcomes import Finding, Findings, Outcome, judged
from harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> Findings:
    """Run once, then once for each invariance that applies to these inputs; `counts` says which did."""
    base = kept(lane.run(spec, inputs, Variation()).outputs)
    findings: list[Finding] = []
    counts = {f"{invariance.name} applied": 0 for invariance in spec.invariances}
    for invariance in spec.invariances:
        transformed = invariance.transform(inputs)
        if transformed is None:
            continue
        other = lane.run(spec, transformed, Variation()).outputs
        related = invariance.relate(base, inputs)
        unknown = sorted(set(related) - set(other))
        if unknown or not related:
            named = f"{unknown[0]!r}, which is none" if unknown else "none"
            raise SpecError(
                f"spec {spec.name!r}: {invariance.name!r} relates {named} of its outputs"
            )
        counts[f"{invariance.name} applied"] = 1
        for name, expected in sorted(related.items()):
            finding = compare.same_bits(name, expected, other[name], invariance.name)
            findings += [finding] if finding else []
    if not any(counts.values()):
        return Findings(
            outcome=Outcome.NOT_DEMONSTRATED, reason="no invariance applies", counts=counts
        )
    return dataclasses.replace(judged(findings), counts=counts)
