"""The text of one failing case: what failed, where, how far, in which lane, and how to see it again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from bitproof.harness import layouts
from bitproof.harness.case import Inputs, build
from bitproof.harness.outcomes import CheckResult
from bitproof.harness.report.records import replay_command
from bitproof.harness.spec import KernelSpec
from bitproof.harness.subjects.discovery import FoundSpec


def describe(
    found: FoundSpec,
    check: str,
    inputs: Inputs,
    findings: CheckResult,
    versions: dict[str, str],
    record: Path,
) -> str:
    """The whole report of one failing case, ending with the command that replays it."""
    planted = f" with planted fault {found.fault!r}" if found.fault else ""
    title = f"{found.spec.name}{planted}: {check} {findings.outcome}"
    laid = describe_layouts(found.spec, inputs)
    where = "  ".join(f"{name} {value}" for name, value in versions.items() if value)
    lines = [
        title,
        *findings.text.splitlines(),
        f"case      {describe_inputs(inputs)}",
        *([f"layout    {', '.join(laid)}"] if laid else []),
        f"versions  {where}",
        f"replay    {replay_command(record, found.reference)}",
    ]
    return "\n".join(lines)


def describe_inputs(inputs: Inputs) -> str:
    """What inputs were made from: their case, or the shapes of captured tensors."""
    if inputs.case is None:
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in sorted(inputs.tensors.items()))
        return f"captured tensors: {shapes}"
    return abridge(inputs.case)


def describe_layouts(spec: KernelSpec, inputs: Inputs) -> tuple[str, ...]:
    """The layouts of inputs in words; of those judged in another process, built once more."""
    if not inputs.launch.layout:
        return ()
    tensors = inputs.tensors
    if not tensors and inputs.case is not None:
        tensors = build(inputs.case, torch.device("cpu")).tensors
    number, allowed = inputs.launch.layout, spec.allowed_layouts()
    tensors = layouts.impose(allowed, spec.shared, number, tensors)
    return layouts.describe(allowed, number, tensors, spec.shared)


def abridge(value: Any) -> str:
    """A dataclass as Python would build it, fields at their defaults left out."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return repr(value)
    shown = [
        f"{field.name}={abridge(getattr(value, field.name))}"
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    ]
    return f"{type(value).__name__}({', '.join(shown)})"
