"""Invariances: relations between two runs that hold bit for bit, such as one row alone and in a batch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from bitproof.harness import exercised
from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check, Shows
from bitproof.harness.errors import SpecError
from bitproof.harness.lanes.base import Lane, Variation, copy_outputs
from bitproof.harness.outcomes import CheckResult, Finding, Outcome, conclude
from bitproof.harness.report import compare
from bitproof.harness.spec import Invariance, KernelSpec, Tensors


def check(spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    """Run once, then as each invariance that applies asks; `counts` says which did."""
    base = _run(spec, inputs, lane)
    findings: list[Finding] = []
    counts = {f"{invariance.name} applied": 0 for invariance in spec.invariances}
    for invariance in spec.invariances:
        if invariance.configured:
            findings += _compare_configurations(spec, invariance, inputs, lane, counts)
            continue
        runs = _two(spec, invariance, inputs, base, lane)
        if runs is None:
            continue
        related, other = runs
        unknown = sorted(set(related) - set(other))
        if unknown or not related:
            named = f"{unknown[0]!r}, which is none" if unknown else "none"
            raise SpecError(
                f"spec {spec.name!r}: {invariance.name!r} relates {named} of its outputs"
            )
        counts[f"{invariance.name} applied"] = 1
        for name, expected in sorted(related.items()):
            first, second = expected, other[name]
            if not invariance.signed_zeros:
                first, second = _unsigned(first), _unsigned(second)
            first, second = _one_nan(first), _one_nan(second)
            finding = compare.same_bits(name, first, second, invariance.name)
            findings += [finding] if finding else []
    if not any(counts.values()):
        return CheckResult(
            outcome=Outcome.NOT_DEMONSTRATED, reason="no invariance applies", counts=counts
        )
    return dataclasses.replace(conclude(findings), counts=counts)


def apply(invariance: Invariance, inputs: Inputs) -> tuple[Inputs, Inputs] | None:
    """What the first and the second run take, None where the relation says nothing of these inputs."""
    begun = inputs if invariance.start is None else invariance.start(inputs)
    transformed = None if begun is None else invariance.transform(begun)
    return None if begun is None or transformed is None else (begun, transformed)


def _two(
    spec: KernelSpec, invariance: Invariance, inputs: Inputs, base: Tensors, lane: Lane
) -> tuple[Tensors, Tensors] | None:
    """What the last run must give, and what it gives; None where the invariance does not apply."""
    taken = apply(invariance, inputs)
    if taken is None:
        return None
    begun, transformed = taken
    if invariance.start is not None:
        base = _run(spec, begun, lane)
    other = _run(spec, transformed, lane)
    if invariance.carry is not None:
        other = _run(spec, invariance.carry(other, begun), lane)
    return invariance.relate(base, begun), other


def _compare_configurations(
    spec: KernelSpec, invariance: Invariance, inputs: Inputs, lane: Lane, counts: dict[str, int]
) -> list[Finding]:
    """What differs from the first configuration, with the classes of those that give equal bits."""
    begun = inputs if invariance.start is None else invariance.start(inputs)
    if begun is None:
        return []
    classes: list[tuple[Tensors, list[str]]] = []
    number, total = 0, 1
    while number < total:
        launch = dataclasses.replace(begun.launch, config=number)
        with exercised.collecting() as met:
            outputs = _run(spec, dataclasses.replace(begun, launch=launch), lane)
        known = [exercised.read_configuration(text) for text in met.configurations]
        total = max((one.number + 1 for one in known), default=0)
        ran = " and ".join(text for text, count in met.configurations.items() if count)
        _file(classes, outputs, ran)
        number += 1
    counts[f"{invariance.name} applied"] = int(number > 1)
    if len(classes) < 2:
        return []
    (first, _), *others = classes
    lines = tuple(
        f"class {place:<4}{'; '.join(names)}" for place, (_, names) in enumerate(classes, 1)
    )
    found: list[Finding] = []
    for name in sorted(first):
        differing = (_differ(name, first, other) for other, _ in others)
        finding = next(filter(None, differing), None)
        if finding is not None:
            summary = f"{name}{list(finding.index or ())}: configurations give other bits"
            told = (*finding.lines, *lines)
            found.append(dataclasses.replace(finding, summary=summary, lines=told))
    return found


def _file(classes: list[tuple[Tensors, list[str]]], outputs: Tensors, ran: str) -> None:
    """Add a run to the class of those whose bits it repeats, or to a new one."""
    for known, names in classes:
        if not any(_differ(name, known, outputs) for name in known):
            if ran not in names:
                names.append(ran)
            return
    classes.append((outputs, [ran]))


def _differ(name: str, first: Tensors, other: Tensors) -> Finding | None:
    return compare.same_bits(name, _one_nan(first[name]), _one_nan(other[name]), "another")


def _run(spec: KernelSpec, inputs: Inputs, lane: Lane) -> Tensors:
    return copy_outputs(lane.run(spec, inputs, Variation()).outputs)


def _unsigned(tensor: Tensor) -> Tensor:
    """The same values, every zero positive."""
    return torch.where(tensor == 0, torch.zeros_like(tensor), tensor)


def _one_nan(tensor: Tensor) -> Tensor:
    """The same values, every NaN the same one: its sign and payload have no meaning."""
    if not tensor.is_floating_point():
        return tensor
    nan = torch.isnan(tensor.to(torch.float32) if tensor.element_size() < 4 else tensor)
    if not bool(nan.any()):
        return tensor
    codes = bits(tensor).clone()
    codes[nan] = bits(torch.full((1,), torch.nan).to(tensor.dtype))[0].to(tensor.device)
    return codes.view(tensor.dtype)


def count_launches(spec: KernelSpec) -> int:
    """One run that all invariances share, and those of each."""
    return 1 + sum(invariance.launches for invariance in spec.invariances)


def list_wanted(spec: KernelSpec) -> Mapping[str, Shows]:
    """Each invariance has to apply somewhere, which the inputs alone tell but for configurations."""
    return {
        f"{one.name} applied": None if one.configured else functools.partial(_applies, one)
        for one in spec.invariances
    }


def _applies(invariance: Invariance, inputs: Inputs) -> bool:
    return apply(invariance, inputs) is not None


CHECK = Check(
    name="invariances",
    judge=check,
    launches=count_launches,
    applies=lambda spec: bool(spec.invariances),
    wanted=list_wanted,
)
