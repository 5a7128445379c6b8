"""The text of one failing case: what failed, where, how far, in which lane, and how to see it again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from bitproof.harness.case import Inputs
from bitproof.harness.outcomes import Findings
from bitproof.harness.subjects.discovery import Found


def failure(
    found: Found,
    check: str,
    inputs: Inputs,
    findings: Findings,
    versions: dict[str, str],
    record: Path,
    *,
    fault: str | None = None,
) -> str:
    """The whole report of one failing case, ending with the command that replays it."""
    planted = f" with planted fault {fault!r}" if fault else ""
    title = f"{found.spec.name}{planted}: {check} {findings.outcome}"
    where = "  ".join(f"{name} {value}" for name, value in versions.items() if value)
    lines = [
        title,
        *findings.text.splitlines(),
        f"case      {source(inputs)}",
        f"versions  {where}",
    ]
    lines += [f"replay    bitproof replay {record}"]
    return "\n".join(lines)


def source(inputs: Inputs) -> str:
    """What inputs were made from: their case, or the shapes of captured tensors."""
    if inputs.case is None:
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in sorted(inputs.tensors.items()))
        return f"captured tensors: {shapes}"
    return brief(inputs.case)


def brief(value: Any) -> str:
    """A dataclass as Python would build it, fields at their defaults left out."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return repr(value)
    shown = [
        f"{field.name}={brief(getattr(value, field.name))}"
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    ]
    return f"{type(value).__name__}({', '.join(shown)})"
