"""The text of one failing case: what failed, where, how far, in which lane, and how to see it again."""

from __future__ import annotations

from pathlib import Path

from harness import case as cases
from harness.case import Inputs
from harness.discovery import Found
from harness.outcomes import Findings


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
    lines = [title, *findings.text.splitlines(), f"case      {_case(inputs)}", f"versions  {where}"]
    lines += [f"replay    bitproof replay {record}"]
    return "\n".join(lines)


def _case(inputs: Inputs) -> str:
    if inputs.case is None:
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in sorted(inputs.tensors.items()))
        return f"captured tensors: {shapes}"
    plain = cases.encode(inputs.case)
    return f"{type(inputs.case).__name__}({', '.join(f'{k}={v}' for k, v in plain.items())})"
