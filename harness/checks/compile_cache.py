"""Compile cache: sizes that change from call to call, such as token counts, never add a compiled variant."""

from __future__ import annotations

from torch import Tensor

from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check
from bitproof.harness.compiling.description import Undescribable, identify_variant
from bitproof.harness.errors import Unsupported
from bitproof.harness.lanes.base import Lane, Launched, Variation
from bitproof.harness.outcomes import CheckResult, Finding, conclude
from bitproof.harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    """One run, then one for each of the inputs that must not recompile; variants met anew are counted."""
    assert spec.must_not_recompile is not None
    known = _variants(lane.run(spec, inputs, Variation()))
    if not known:  # no kernel was started: nothing is there to compile again
        return conclude([])
    findings = []
    for other in spec.must_not_recompile(inputs):
        more = _variants(lane.run(spec, other, Variation())) - known
        known |= more
        if more:
            changed = _tell_change(inputs, other)
            findings.append(Finding(summary=f"{len(more)} more compiled variants for {changed}"))
    return conclude(findings)


def _variants(launched: Launched) -> frozenset[str]:
    """What compiled code has run, or where kernels are interpreted what would have.

    Unsupported where a launch that is interpreted cannot be told from others.
    """
    if launched.launches is None:
        return launched.variants
    try:
        return frozenset(identify_variant(launch) for launch in launched.launches)
    except Undescribable as error:
        raise Unsupported(
            f"the lane cannot tell which variant a launch compiles: {error}"
        ) from error


def _tell_change(inputs: Inputs, other: Inputs) -> str:
    """The tensors whose shape changed, or if none's did whose strides."""
    before = inputs.tensors
    for told in ("shape", "stride"):
        sizes = {
            name: (_sizes(before[name], told), _sizes(tensor, told))
            for name, tensor in sorted(other.tensors.items())
        }
        changed = [f"{name} {old} -> {new}" for name, (old, new) in sizes.items() if old != new]
        if changed:
            return ", ".join(changed) if told == "shape" else f"strides of {', '.join(changed)}"
    return "other numbers of the same shapes"


def _sizes(tensor: Tensor, what: str) -> tuple[int, ...]:
    return tuple(tensor.shape if what == "shape" else tensor.stride())


CHECK = Check(
    name="compile_cache",
    judge=check,
    launches=lambda spec: 8,
    applies=lambda spec: spec.must_not_recompile is not None,
)
