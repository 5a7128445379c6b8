"""`bitproof report`: the last run as a table, with the commands that replay its failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.harness.command_line import Bitproof, refused

ENTRY = {
    "kernel": "scale_add",
    "check": "agreement",
    "outcome": "passed",
    "examples": 400,
    "outcomes": {"passed": 400},
    "covered": {},
    "measures": {"worst": 0.25},
    "counts": {},
    "reasons": [],
    "seconds": 1.5,
    "report": "",
    "record": None,
}


def summary(folder: Path, *entries: dict[str, Any], **head: Any) -> Path:
    """A summary file of these entries."""
    plain = {
        "format": 1,
        "lane": "interpreter",
        "profile": "bitproof",
        "seconds": 3.0,
        "versions": {"torch": "2.13.0"},
        "entries": list(entries),
        **head,
    }
    path = folder / ".bitproof" / "summary.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(plain))
    return path


def test_report_shows_the_last_run_as_a_table(bitproof: Bitproof, tmp_path: Path) -> None:
    """A row for each kernel and check; a failure is status 1 and names its record."""
    failed = {**ENTRY, "check": "memory", "outcome": "failed", "record": "failures/a.json"}
    summary(tmp_path, ENTRY)
    result = bitproof("report")
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if "agreement" in line)
    assert [cell.strip() for cell in row.strip("│┃").split("│")] == [
        "scale_add",
        "agreement",
        "passed",
        "400",
        "0.25",
        "1.5",
    ]
    result = bitproof("report", str(summary(tmp_path, ENTRY, failed)))
    assert result.exit_code == 1
    assert "scale_add memory: bitproof replay failures/a.json" in result.stdout


def test_an_infinite_distance_is_shown(bitproof: Bitproof, tmp_path: Path) -> None:
    """The file says null, as JSON has no infinity."""
    summary(tmp_path, {**ENTRY, "measures": {"worst": None}}, {**ENTRY, "measures": {}})
    rows = [line for line in bitproof("report").stdout.splitlines() if "agreement" in line]
    assert [row.strip("│┃").split("│")[4].strip() for row in rows] == ["inf", ""]


def test_report_refuses_what_is_no_summary(bitproof: Bitproof, tmp_path: Path) -> None:
    """Absent, damaged, from another version, and with entries that are none."""
    refused(
        bitproof("report"),
        "cannot be read: No such file or directory; `pytest properties/` writes it",
    )
    path = summary(tmp_path, ENTRY)
    path.write_text(path.read_text()[:-1])
    refused(bitproof("report"), "is not a summary: it is not valid JSON")
    path.write_text("[]")
    refused(bitproof("report"), "is not a summary written by bitproof")
    summary(tmp_path, ENTRY, format=7)
    refused(bitproof("report"), "has summary format 7, this version reads 1")
    summary(tmp_path, {**ENTRY, "examples": "many"})
    refused(bitproof("report"), "is a damaged summary")
    summary(tmp_path, ENTRY, versions=3)
    refused(bitproof("report"), "is a damaged summary")
