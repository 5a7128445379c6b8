"""Compile cache: sizes that change from call to call, such as token counts, never add a compiled variant."""

from __future__ import annotations

from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check
from bitproof.harness.lanes.base import Lane, Variation
from bitproof.harness.outcomes import CheckResult, Finding, conclude
from bitproof.harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    """One run, then one for each of the inputs that must not recompile; variants met anew are counted."""
    assert spec.must_not_recompile is not None
    known = lane.run(spec, inputs, Variation()).variants
    if not known:  # no kernel was started: nothing is there to compile again
        return conclude([])
    shapes = {name: tuple(tensor.shape) for name, tensor in inputs.tensors.items()}
    findings = []
    for other in spec.must_not_recompile(inputs):
        more = lane.run(spec, other, Variation()).variants - known
        known |= more
        if more:
            changed = ", ".join(
                f"{name} {shapes[name]} -> {tuple(tensor.shape)}"
                for name, tensor in sorted(other.tensors.items())
                if shapes[name] != tuple(tensor.shape)
            )
            findings.append(Finding(summary=f"{len(more)} more compiled variants for {changed}"))
    return conclude(findings)


CHECK = Check(
    name="compile_cache",
    judge=check,
    launches=lambda spec: 2,
    applies=lambda spec: spec.must_not_recompile is not None,
    lacking="compiles nothing",
)
