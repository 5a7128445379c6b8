"""Graphs: a launch captured as a CUDA graph, replayed on other values, gives the bits of an eager launch."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check
from bitproof.harness.errors import describe
from bitproof.harness.lanes.base import Lane, Uncapturable, Variation, copy_outputs
from bitproof.harness.outcomes import CheckResult, Finding, Outcome, conclude
from bitproof.harness.report import compare
from bitproof.harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    """Capture once, replay on the same values in reverse and then as they were, against eager launches.

    Compares the outputs that the bitwise claim is about. Where both inputs give the same outputs, a replay
    that reads nothing would pass, and nothing is shown.
    """
    turned = reverse(inputs)
    first = _select_claimed(spec, copy_outputs(lane.run(spec, inputs, Variation()).outputs))
    other = _select_claimed(spec, copy_outputs(lane.run(spec, turned, Variation()).outputs))
    try:
        graph = lane.capture(spec, inputs)
    except Uncapturable as failure:
        cause = failure.__cause__ or failure
        return conclude([Finding(summary=f"no graph can hold this launch: {describe(cause)}")])
    findings = []
    for values, eager, on in (
        (turned, other, "values in reverse"),
        (inputs, first, "first values"),
    ):
        replayed = graph.replay(values)
        for name, expected in sorted(eager.items()):
            what = f"its graph, replayed on the {on},"
            finding = compare.same_bits(name, expected, replayed[name], what)
            findings += [finding] if finding else []
    if not findings and all(compare.same_bits(n, first[n], other[n], "") is None for n in first):
        reason = "its outputs are the same on its values in reverse"
        return CheckResult(outcome=Outcome.NOT_DEMONSTRATED, reason=reason)
    return conclude(findings)


def reverse(inputs: Inputs) -> Inputs:
    """The elements of every floating-point tensor in reverse; other tensors may hold indices or lengths."""
    changed = {
        name: bits(tensor).flatten().flip(0).reshape(tensor.shape).view(tensor.dtype)
        for name, tensor in inputs.tensors.items()
        if tensor.is_floating_point()
    }
    return inputs.replace(**changed)


def _select_claimed(spec: KernelSpec, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    claim = spec.bitwise.outputs if spec.bitwise else frozenset()
    return {name: output for name, output in outputs.items() if not claim or name in claim}


# Capturing a graph takes about as long as sixteen launches.
CHECK = Check(
    name="graphs",
    judge=check,
    launches=lambda spec: 16,
    applies=lambda spec: spec.capturable and spec.bitwise is not None,
    lacking="has no graphs",
)
