"""Streams: everything a launcher issues, it issues on the caller's stream, behind what is there already."""

from __future__ import annotations

from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check
from bitproof.harness.lanes.base import Lane, Variation
from bitproof.harness.outcomes import CheckResult, conclude
from bitproof.harness.report import compare
from bitproof.harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    """One run on a side stream whose producer is late, against the oracle.

    Work on any other stream meets inputs that have not arrived, or memory that is poisoned after it.
    A first run compiles and loads what the second needs: loading waits for every stream of the card,
    and would hide what this check looks for.
    """
    lane.run(spec, inputs, Variation())
    launched = lane.run(spec, inputs, Variation(delayed=True))
    findings, worst = compare.against_oracle(spec, launched.outputs, inputs)
    return conclude(findings, worst=worst)


# Waiting for a late producer takes about as long as sixteen launches.
CHECK = Check(name="streams", judge=check, launches=lambda spec: 16, lacking="has no streams")
