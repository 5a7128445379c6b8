"""Reproducibility: the same inputs give the same bits, over runs that are made to differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check, Shows
from bitproof.harness.data import bits
from bitproof.harness.errors import SpecError
from bitproof.harness.lanes.base import Lane, Variation, kept
from bitproof.harness.outcomes import CheckResult, Finding, judged
from bitproof.harness.report import compare
from bitproof.harness.spec import KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    """The claim's number of runs with one synchronisation at the end; bit patterns are compared.

    Every run gets fresh memory under another poison, and whatever else the lane varies. Where the spec
    names a control, it runs on the same inputs; `counts` says for which outputs it varied.
    """
    claim = spec.reproducible
    runs, varied, turns = _repeat(spec, inputs, lane)
    findings: list[Finding] = []
    for name, turn in varied.items():
        if claim.outputs and name not in claim.outputs:
            continue
        finding = compare.same_bits(name, runs[0][name], runs[turn][name], f"run {turn + 1}")
        assert finding is not None
        findings.append(finding)
    verdict = judged(findings, runs=float(len(runs)))
    verdict = dataclasses.replace(verdict, turns={"kernel": turns})
    if claim.control is None:
        return verdict
    _, wavered, turned = _repeat(dataclasses.replace(spec, run=claim.control), inputs, lane)
    judged_by = claim.varies or claim.outputs or set(runs[0])
    counts = {f"control varied: {name}": int(name in wavered) for name in sorted(judged_by)}
    return dataclasses.replace(verdict, counts=counts, turns={"kernel": turns, "control": turned})


def _repeat(
    spec: KernelSpec, inputs: Inputs, lane: Lane
) -> tuple[list[dict[str, Tensor]], dict[str, int], tuple[bool, ...]]:
    """The outputs of every run, for each output that varied the first run that differs, and which runs do."""
    turns = spec.reproducible.runs
    runs = [
        kept(lane.run(spec, inputs, Variation(turn=turn, turns=turns)).outputs)
        for turn in range(turns)
    ]
    for turn, run in enumerate(runs):
        if set(run) != set(runs[0]):
            raise SpecError(
                f"spec {spec.name!r}: its launcher names its outputs otherwise from run to run: "
                f"{sorted(runs[0])}, then {sorted(run)} in run {turn + 1}"
            )
    varied: dict[str, int] = {}
    differing = [False] * turns
    for name in sorted(runs[0]):
        flags = torch.stack([_differs(runs[0][name], run[name]) for run in runs[1:]]).tolist()
        if any(flags):
            varied[name] = flags.index(True) + 1
        differing = [one or other for one, other in zip(differing, (False, *flags), strict=True)]
    return runs, varied, tuple(differing)


def _differs(first: Tensor, other: Tensor) -> Tensor:
    """A boolean scalar that stays on the device, so that all comparisons of an output wait once."""
    if first.shape != other.shape or first.dtype != other.dtype:
        return torch.tensor(True, device=first.device)
    return (bits(first) != bits(other)).any()


def count_launches(spec: KernelSpec) -> int:
    """The claim's runs, and as many of its control."""
    claim = spec.reproducible
    return claim.runs * (1 if claim.control is None else 2)


def list_wanted(spec: KernelSpec) -> Mapping[str, Shows]:
    """The outputs of which the claim says that its control varies: only running it tells."""
    return {f"control varied: {name}": None for name in spec.reproducible.varies}


CHECK = Check(
    name="reproducibility",
    judge=check,
    launches=count_launches,
    wanted=list_wanted,
    idle="its control never varied",
)
