"""`bitproof replay`: a saved failing case, once more."""

from __future__ import annotations

from pathlib import Path

import click

from bitproof.harness import case as cases
from bitproof.harness import checks, lanes
from bitproof.harness.case import Inputs, build
from bitproof.harness.commands import captured
from bitproof.harness.commands.subject import planted, status
from bitproof.harness.outcomes import Findings, Outcome
from bitproof.harness.report import failure as reports
from bitproof.harness.report import records
from bitproof.harness.report.records import Record
from bitproof.harness.search.isolation import Careful
from bitproof.harness.subjects.discovery import Found


def run(file: Path, *, lane: str | None) -> int:
    """Print the report where the case still fails, or that it holds now."""
    record = records.load(file)
    lanes.choose(lane or record.lane or None)
    found = planted(records.subject(record), record.fault)
    inputs, findings = _judge(found, record, file)
    versions = lanes.present().versions()
    changed = [
        f"{name} {record.versions[name]} then, {versions.get(name, 'absent')} now"
        for name in sorted(record.versions)
        if record.versions[name] != versions.get(name)
    ]
    if findings.outcome.is_defect:
        click.echo(
            reports.failure(
                found, record.check, inputs, findings, versions, file, fault=record.fault
            )
        )
    else:
        reason = f": {findings.reason}" if findings.reason else ""
        click.echo(
            f"{record.kernel}: {record.check} {findings.outcome}{reason} "
            f"(it {record.outcome} when it was recorded)"
        )
    for change in changed:
        click.echo(f"changed   {change}")
    return status([findings.outcome])


def _judge(found: Found, record: Record, file: Path) -> tuple[Inputs, Findings]:
    """The record's check on the record's inputs, in a child process where it took one down."""
    lane = lanes.present()
    if record.captured is not None:
        inputs = captured.restore(record.captured, found.spec, lane.device, beside=file.parent)
    else:
        case = cases.decode(found.spec.case, record.case)
        # A child process finds the spec by name and would judge it without the planted fault.
        if record.outcome in (Outcome.CRASHED, Outcome.HUNG) and record.fault is None:
            return Careful(lane=lane, isolate=True)(found, record.check, case)
        inputs = build(case, lane.device)
    return inputs, checks.run(record.check, found.spec, inputs, lane)
