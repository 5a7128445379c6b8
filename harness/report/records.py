"""Records: a saved failing case, one JSON file that replays alone."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bitproof.harness import case as cases
from bitproof.harness.case import Inputs
from bitproof.harness.errors import UsageError
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.report import files
from bitproof.harness.report.files import Format
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.ownership import OURS, find_owner

__all__ = [
    "OURS",
    "Captured",
    "Record",
    "find_subject",
    "load",
    "owner_of",
    "replay_command",
    "save",
    "save_plain",
]

FORMAT = 1
FOLDER = Path(".bitproof") / "failures"
# Beneath it: failures of faults that somebody planted, which say nothing against a kernel.
PLANTED = "planted"


@dataclass(frozen=True, kw_only=True)
class Captured:
    """Where a user's own tensors lie and what they are: path, SHA-256 of the file, parameters.

    `renamed` gives the names that some of them have in the file: those of the spec by those of the file.
    """

    path: str
    sha256: str
    params: dict[str, Any]
    renamed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the file holds. `spec` is what `--spec` takes; exactly one of `case`, `captured` is set."""

    format: int
    kernel: str
    spec: str
    check: str
    outcome: Outcome
    case: dict[str, Any] | None
    captured: Captured | None
    finding: list[dict[str, Any]]
    lane: str
    versions: dict[str, str]
    replay: str
    fault: str | None = None


def save(
    found: FoundSpec,
    check: str,
    inputs: Inputs,
    findings: CheckResult,
    versions: dict[str, str],
    *,
    captured: Captured | None = None,
    folder: Path = FOLDER,
) -> Path:
    """Write the record of one failing case and return its path; the same case gives the same file.

    Those of planted faults lie in a folder of their own. EnvironmentUnfit where it cannot be written.
    """
    return save_plain(
        kernel=found.spec.name,
        spec=found.reference,
        fault=found.fault,
        check=check,
        outcome=findings.outcome,
        case=cases.encode(inputs.case) if inputs.case is not None else None,
        captured=captured,
        finding=[
            {"summary": f.summary, "lines": list(f.lines), **f.facts} for f in findings.findings
        ],
        versions=versions,
        folder=folder,
    )


def save_plain(
    *,
    kernel: str,
    spec: str,
    fault: str | None,
    check: str,
    outcome: Outcome,
    case: dict[str, Any] | None,
    finding: list[dict[str, Any]],
    versions: dict[str, str],
    captured: Captured | None = None,
    folder: Path = FOLDER,
) -> Path:
    """`save` for a case and a finding in plain values: nothing that they name is imported."""
    source = [captured.sha256, captured.params] if captured else None
    key = json.dumps([case, source, fault], sort_keys=True, default=str)
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    beneath = folder if fault is None else folder / PLANTED
    path = beneath / f"{kernel}-{check}-{digest}.json"
    record = Record(
        format=FORMAT,
        kernel=kernel,
        spec=spec,
        check=check,
        outcome=outcome,
        case=case,
        captured=captured,
        finding=finding,
        lane=versions.get("lane", ""),
        versions=versions,
        replay=replay_command(path, spec),
        fault=fault,
    )
    # JSON has no infinity: msgspec writes null, where json would write what nobody can read.
    files.save(path, msgspec.json.format(msgspec.json.encode(record, enc_hook=str)) + b"\n")
    return path


def replay_command(path: Path, spec: str) -> str:
    """What replays the record in `path`; it names `spec` where a record alone may not have that imported."""
    command = f"bitproof replay {shlex.quote(str(path))}"
    return command if find_owner(spec) else f"{command} --spec {shlex.quote(spec)}"


def load(path: Path) -> Record:
    """The record in `path`.

    Raises UsageError in one sentence for a file that is missing, damaged, foreign or of another format.
    """
    record = files.read(path, Record, what="record", form=Format(version=FORMAT, beside="kernel"))
    if (record.case is None) == (record.captured is None):
        raise UsageError(f"{path} is a damaged record: it needs either a case or captured tensors")
    return record


def owner_of(record: Record, spec: str | None = None) -> str:
    """Whose code is run to replay a record: `spec`'s, where one is named, or else what the record names.

    A record is data, and may come from anybody: the code that it names is imported only where it is this
    project's, or that of an installed distribution. UsageError for any other; nothing is imported here.
    """
    owner = f"--spec {spec}" if spec is not None else find_owner(record.spec)
    if not owner:
        raise UsageError(
            f"the record is about code in {record.spec!r:.200}, which belongs to no installed distribution: "
            "where you trust it, name it with --spec"
        )
    return owner


def find_subject(record: Record, spec: str | None = None) -> FoundSpec:
    """The spec a record is about, in `spec` or else where the record says.

    UsageError where it is not there, and what `owner_of` raises.
    """
    owner_of(record, spec)
    return find([record.spec if spec is None else spec], [record.kernel])[0]
