"""`bitproof replay`: a saved failing case, once more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bitproof.harness import case as cases
from bitproof.harness import checks, lanes
from bitproof.harness.case import Inputs
from bitproof.harness.commands import captured
from bitproof.harness.commands.subject import exit_status
from bitproof.harness.errors import UsageError
from bitproof.harness.outcomes import CheckResult
from bitproof.harness.report import failure, records
from bitproof.harness.report.records import Record
from bitproof.harness.search.isolation import Careful
from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.harness.subjects.planting import with_fault


def run(
    file: Path,
    *,
    lane: str | None,
    spec: str | None,
    hang_limit: int | None,
    tensors: Path | None = None,
    params: str | None = None,
    renames: Sequence[str] = (),
) -> int:
    """Print the report where the case still fails, or that it holds now; first whose code that runs.

    With `tensors`, the record's check and its planted fault are run on those in place of its case, with the
    parameters of its case where `params` gives no others. What fails there has a record of its own.
    """
    if tensors is None and (params is not None or renames):
        raise UsageError(
            "--params and --rename are for captured tensors: give --tensors FILE as well"
        )
    record = records.load(file)
    lanes.choose(lane or record.lane or None)
    owner = records.owner_of(record, spec)
    if owner != records.OURS:
        click.echo(f"bitproof: replaying runs the code of {owner}", err=True)
    found = with_fault(records.find_subject(record, spec), record.fault)
    if tensors is not None:
        return _judge_captured(found, record, tensors, params, renames)
    inputs, findings, versions = _judge(found, record, file, hang_limit)
    changed = [
        f"{name} {record.versions[name]} then, {versions.get(name, 'absent')} now"
        for name in sorted(record.versions)
        if record.versions[name] != versions.get(name)
    ]
    if findings.outcome.is_defect:
        click.echo(failure.describe(found, record.check, inputs, findings, versions, file))
    else:
        reason = f": {findings.reason}" if findings.reason else ""
        click.echo(
            f"{record.kernel}: {record.check} {findings.outcome}{reason} "
            f"(it {record.outcome} when it was recorded)"
        )
    for change in changed:
        click.echo(f"changed   {change}")
    return exit_status([findings.outcome])


def _judge_captured(
    found: FoundSpec, record: Record, path: Path, params: str | None, renames: Sequence[str]
) -> int:
    """The record's check on captured tensors; the status says whether it holds."""
    here = lanes.present()
    plain = {**_params_of(record, found), **captured.object_of(params)}
    renamed = captured.parse_renames(renames)
    if not renamed and record.captured is not None:
        renamed = captured.present_in(path, record.captured.renamed)
    inputs, source = captured.load(path, found.spec, here.device, plain, renamed)
    findings = checks.run(record.check, found.spec, inputs, here)
    if findings.outcome.is_defect:
        failing = (found, record.check, inputs, findings, here.versions())
        saved = records.save(*failing, captured=source)
        click.echo(f"{failure.describe(*failing, saved)}\nrecord    {saved}")
    else:
        reason = f": {findings.reason}" if findings.reason else ""
        click.echo(f"{record.kernel}: {record.check} {findings.outcome}{reason} on {path}")
    return exit_status([findings.outcome])


def _params_of(record: Record, found: FoundSpec) -> dict[str, Any]:
    """The parameters of a record's inputs, its launch among them."""
    if record.captured is not None:
        return record.captured.params
    case = cases.decode(found.spec.case, record.case)
    return {**case.params(), "launch": cases.encode(case.launch)}


def _judge(
    found: FoundSpec, record: Record, file: Path, hang_limit: int | None
) -> tuple[Inputs, CheckResult, dict[str, str]]:
    """The record's check on the record's inputs, and the versions it ran with; a case in another process."""
    lane = lanes.present()
    if record.captured is not None:
        inputs = captured.restore(record.captured, found.spec, lane.device, beside=file.parent)
        return inputs, checks.run(record.check, found.spec, inputs, lane), lane.versions()
    case = cases.decode(found.spec.case, record.case)
    careful = Careful.on(lane, known=[found], timeout=hang_limit)
    try:
        return *careful(found, record.check, case), careful.versions()
    finally:
        careful.close()
