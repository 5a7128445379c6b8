"""Memory: every output element is written, nothing outside the outputs is, and inputs come back untouched.

Two runs under two poisons: an element that holds the poison both times was written by nobody, whatever
value the kernel may legitimately produce. Guard bands on both sides of every buffer, and the gaps
between padded rows, must keep their poison in both runs, since a trespass may write the very byte of one.
Where the lane has a sanitizer, its reports come first.
"""

from __future__ import annotations

import dataclasses

import torch

from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check
from bitproof.harness.lanes.arena import find_unwritten
from bitproof.harness.lanes.base import Lane, Launched, Variation
from bitproof.harness.outcomes import CheckResult, Finding, conclude
from bitproof.harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    """Two watched runs; findings name the buffer and the first offending byte or element."""
    first = lane.run(spec, inputs, Variation(run=0, runs=2, watched=True))
    second = lane.run(spec, inputs, Variation(run=1, runs=2, watched=True))
    findings = [
        Finding(summary=violation.text, facts=dataclasses.asdict(violation))
        for violation in first.violations or second.violations
    ]
    findings += _trespasses(first) or _trespasses(second)
    findings += _touched_inputs(spec, inputs, first)
    findings += _unwritten_outputs(first, second)
    return conclude(findings)


def _trespasses(launched: Launched) -> list[Finding]:
    names = {output.data_ptr(): name for name, output in launched.outputs.items()}
    found = []
    for name, offset in launched.arena.trespasses():
        block = next(block for block in launched.arena.blocks if block.name == name)
        shown = names.get(block.view.data_ptr(), name)
        found.append(
            Finding(
                summary=f"a write outside {shown}: the byte {offset:+d} from its first element changed",
                output=shown,
            )
        )
    return found


def _touched_inputs(spec: KernelSpec, inputs: Inputs, launched: Launched) -> list[Finding]:
    lying = {block.name: block.view for block in launched.arena.blocks}
    found = []
    for name in sorted(set(inputs.tensors) - spec.inplace):
        changed = bits(lying[name]) != bits(inputs.tensors[name])
        if bool(changed.any()):
            index = torch.nonzero(changed)[0].tolist()
            found.append(Finding(summary=f"input {name} was written at {index}", output=name))
    return found


def _unwritten_outputs(first: Launched, second: Launched) -> list[Finding]:
    poisons = (first.arena.poison, second.arena.poison)
    found = []
    for name in sorted(first.outputs):
        missing = find_unwritten(first.outputs[name], second.outputs[name], poisons)
        if bool(missing.any()):
            index = torch.nonzero(missing)[0].tolist()
            count = int(missing.sum())
            found.append(
                Finding(
                    summary=f"{name}{index} was never written ({count} of {missing.numel()} elements)",
                    output=name,
                    index=tuple(index),
                )
            )
    return found


CHECK = Check(name="memory", judge=check, launches=lambda spec: 2, laid=True)
