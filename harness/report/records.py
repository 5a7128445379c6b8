"""Records: a saved failing case, one JSON file that replays alone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bitproof.harness import case as cases
from bitproof.harness.case import Inputs
from bitproof.harness.errors import UsageError
from bitproof.harness.outcomes import Findings, Outcome
from bitproof.harness.report import files
from bitproof.harness.report.files import Format
from bitproof.harness.subjects.discovery import Found, find

FORMAT = 1
FOLDER = Path(".bitproof") / "failures"
# Beneath it: failures of faults that somebody planted, which say nothing against a kernel.
PLANTED = "planted"


@dataclass(frozen=True, kw_only=True)
class Captured:
    """Where a user's own tensors lie and what they are: path, SHA-256 of the file, parameters."""

    path: str
    sha256: str
    params: dict[str, Any]


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
    found: Found,
    check: str,
    inputs: Inputs,
    findings: Findings,
    versions: dict[str, str],
    *,
    captured: Captured | None = None,
    folder: Path = FOLDER,
) -> Path:
    """Write the record of one failing case and return its path; the same case gives the same file.

    Those of planted faults lie in a folder of their own. EnvironmentUnfit where it cannot be written.
    """
    case = cases.encode(inputs.case) if inputs.case is not None else None
    source = [captured.sha256, captured.params] if captured else None
    key = json.dumps([case, source, found.fault], sort_keys=True, default=str)
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    beneath = folder if found.fault is None else folder / PLANTED
    path = beneath / f"{found.spec.name}-{check}-{digest}.json"
    record = Record(
        format=FORMAT,
        kernel=found.spec.name,
        spec=found.reference,
        check=check,
        outcome=findings.outcome,
        case=case,
        captured=captured,
        finding=[
            {"summary": f.summary, "lines": list(f.lines), **f.facts} for f in findings.findings
        ],
        lane=versions.get("lane", ""),
        versions=versions,
        replay=f"bitproof replay {path}",
        fault=found.fault,
    )
    # JSON has no infinity: msgspec writes null, where json would write what nobody can read.
    files.save(path, msgspec.json.format(msgspec.json.encode(record, enc_hook=str)) + b"\n")
    return path


def load(path: Path) -> Record:
    """The record in `path`.

    Raises UsageError in one sentence for a file that is missing, damaged, foreign or of another format.
    """
    record = files.read(path, Record, what="record", form=Format(version=FORMAT, beside="kernel"))
    if (record.case is None) == (record.captured is None):
        raise UsageError(f"{path} is a damaged record: it needs either a case or captured tensors")
    return record


def find_subject(record: Record) -> Found:
    """The spec a record is about, found where the record says; UsageError when it is not there."""
    return find([record.spec], [record.kernel])[0]
