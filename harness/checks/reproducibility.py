"""Reproducibility: the same inputs give the same bits, over runs that are made to differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check, Shows
from bitproof.harness.errors import SpecError
from bitproof.harness.lanes.base import Lane, Variation, copy_outputs
from bitproof.harness.outcomes import CheckResult, Finding, conclude
from bitproof.harness.report import compare
from bitproof.harness.spec import Bitwise, KernelSpec


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    """The claim's number of runs with one synchronisation at the end; bit patterns are compared.

    Every run gets fresh memory under another poison, and whatever else the lane varies. Where the spec
    names a control, it runs on the same inputs; `counts` says for which outputs it varied. Where it names
    none and the kernel adds floats, one more run adds them in another order.
    """
    claim = _claim(spec)
    repeated = _repeat(spec, inputs, lane)
    runs = repeated.runs
    findings: list[Finding] = []
    for name, number in repeated.varied.items():
        if claim.outputs and name not in claim.outputs:
            continue
        finding = compare.same_bits(name, runs[0][name], runs[number][name], f"run {number + 1}")
        assert finding is not None
        findings.append(finding)
    verdict = conclude(findings, runs=float(len(runs)))
    verdict = dataclasses.replace(verdict, differing={"kernel": repeated.differing})
    judged_by = sorted(claim.varies or claim.outputs or set(runs[0]))
    if claim.control is not None:
        control = _repeat(dataclasses.replace(spec, run=claim.control), inputs, lane)
        counts = {f"control varied: {name}": int(name in control.varied) for name in judged_by}
        differing = {**verdict.differing, "control": control.differing}
        return dataclasses.replace(verdict, counts=counts, differing=differing)
    if findings or not adds_in_another_order(repeated.sums):
        return verdict
    reordered = lane.run(spec, inputs, Variation(reordered=True))
    if not reordered.sums:
        return verdict
    judged_by = [name for name in judged_by if name in runs[0]]
    moved = {name: _compare_orders(name, runs[0], reordered.outputs) for name in judged_by}
    if not claim.any_order:
        counts = {f"{_OTHER_ORDER} of {name}": int(moved[name] is not None) for name in judged_by}
        return dataclasses.replace(verdict, counts=counts)
    found = [
        dataclasses.replace(one, summary=f"{one.summary}, though none should: {claim.any_order}")
        for one in moved.values()
        if one is not None
    ]
    return dataclasses.replace(conclude(found, **verdict.measures), differing=verdict.differing)


def adds_in_another_order(sums: int) -> bool:
    """Whether one more run is worth its time, after one that made so many sums of floats."""
    return sums > 0


_OTHER_ORDER = "another order of sums changed bits"


def _compare_orders(
    name: str, run: Mapping[str, Tensor], other: Mapping[str, Tensor]
) -> Finding | None:
    return compare.same_bits(name, run[name], other[name], "another order of its sums")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Repeated:
    """The outputs of every run, and what differs among them.

    varied      for each output that varied, the first run that differs from run 0
    differing   whether each run differs from run 0 in any output
    sums        the additions of floats whose order could matter, in the run that has most
    """

    runs: list[dict[str, Tensor]]
    varied: dict[str, int]
    differing: tuple[bool, ...]
    sums: int


def _repeat(spec: KernelSpec, inputs: Inputs, lane: Lane) -> _Repeated:
    count = _claim(spec).runs
    runs, sums = [], 0
    for number in range(count):
        launched = lane.run(spec, inputs, Variation(run=number, runs=count))
        runs.append(copy_outputs(launched.outputs))
        sums = max(sums, launched.sums)
    for number, run in enumerate(runs):
        if set(run) != set(runs[0]):
            raise SpecError(
                f"spec {spec.name!r}: its launcher names its outputs otherwise from run to run: "
                f"{sorted(runs[0])}, then {sorted(run)} in run {number + 1}"
            )
    varied: dict[str, int] = {}
    differing = [False] * count
    for name in sorted(runs[0]):
        flags = torch.stack([_differs(runs[0][name], run[name]) for run in runs[1:]]).tolist()
        if any(flags):
            varied[name] = flags.index(True) + 1
        differing = [one or other for one, other in zip(differing, (False, *flags), strict=True)]
    return _Repeated(runs=runs, varied=varied, differing=tuple(differing), sums=sums)


def _differs(first: Tensor, other: Tensor) -> Tensor:
    """A boolean scalar that stays on the device, so that all comparisons of an output wait once."""
    if first.shape != other.shape or first.dtype != other.dtype:
        return torch.tensor(True, device=first.device)
    return (bits(first) != bits(other)).any()


def _claim(spec: KernelSpec) -> Bitwise:
    """What a spec claims, or what it would claim if it made a claim."""
    return spec.bitwise or Bitwise()


def count_launches(spec: KernelSpec) -> int:
    """The claim's runs, and as many of its control; without one, a run that adds in another order."""
    claim = _claim(spec)
    return claim.runs * 2 if claim.control is not None else claim.runs + 1


def _explain_idle(counts: Collection[str]) -> str:
    if any(name.startswith(_OTHER_ORDER) for name in counts):
        return (
            "its sums gave the same bits in another order: draw values with full mantissas, more of them, or "
            "say in any_order why no order matters"
        )
    return "its control never varied"


def list_wanted(spec: KernelSpec) -> Mapping[str, Shows]:
    """The outputs of which the claim says that its control varies: only running it tells."""
    return {f"control varied: {name}": None for name in _claim(spec).varies}


CHECK = Check(
    name="reproducibility",
    judge=check,
    launches=count_launches,
    applies=lambda spec: spec.bitwise is not None,
    wanted=list_wanted,
    idle=_explain_idle,
)
