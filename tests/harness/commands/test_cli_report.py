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


def test_report_begins_with_the_verdict(bitproof: Bitproof, tmp_path: Path) -> None:
    """How many checks ended how; a failure is status 1, with what was found and its replay."""
    failed = {
        **ENTRY,
        "check": "memory",
        "outcome": "failed",
        "record": "failures/a.json",
        "report": "scale_add: memory failed\nbounds: program 0 reads too far\n",
    }
    unsupported = {**ENTRY, "check": "streams", "outcome": "unsupported", "reasons": ["no streams"]}
    entries = [ENTRY, unsupported, {**unsupported, "kernel": "other"}]
    result = bitproof("report", str(summary(tmp_path, *entries)))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "held: 1 passed, 2 unsupported"
    assert "streams unsupported: no streams (2 kernels)\n" in result.stdout
    result = bitproof("report", str(summary(tmp_path, ENTRY, failed)))
    assert result.exit_code == 1
    first, _, *rest = result.stdout.splitlines()
    assert first == "fell short: 1 passed, 1 failed"
    assert rest[:2] == [
        "scale_add memory failed: bounds: program 0 reads too far",
        "  bitproof replay failures/a.json",
    ]


def test_report_says_what_is_missing_where_something_was_not_demonstrated(
    bitproof: Bitproof, tmp_path: Path
) -> None:
    """Before the table, in the words of the check."""
    report = "scale_add: reproducibility not demonstrated: its control never varied"
    idle = {**ENTRY, "check": "reproducibility", "outcome": "not demonstrated", "report": report}
    summary(tmp_path, ENTRY, idle)
    lines = bitproof("report").stdout.splitlines()
    assert lines[0] == (
        "nothing fell short, but not all was demonstrated: 1 passed, 1 not demonstrated"
    )
    assert report.replace(": rep", " rep") in lines[2]


def test_report_ends_with_a_row_a_kernel(bitproof: Bitproof, tmp_path: Path) -> None:
    """Checks that passed are counted, others named; examples and seconds are sums, distances the worst."""
    refused_one = {**ENTRY, "check": "graphs", "outcome": "refused", "measures": {}}
    summary(tmp_path, ENTRY, {**ENTRY, "check": "invariances"}, refused_one)
    (row,) = [line for line in bitproof("report").stdout.splitlines() if "scale_add" in line]
    assert [cell.strip() for cell in row.strip("│┃").split("│")] == [
        "scale_add",
        "2 passed; refused: graphs",
        "1200",
        "0.25",
        "4.5",
    ]


def test_an_infinite_distance_is_shown(bitproof: Bitproof, tmp_path: Path) -> None:
    """The file says null, as JSON has no infinity."""
    infinite = {**ENTRY, "measures": {"worst": None}}
    summary(tmp_path, infinite, {**ENTRY, "kernel": "without", "measures": {}})
    lines = bitproof("report").stdout.splitlines()
    rows = [line for line in lines if "scale_add" in line or "without" in line]
    assert [row.strip("│┃").split("│")[3].strip() for row in rows] == ["inf", ""]


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


def test_summaries_of_several_machines_are_one_report(bitproof: Bitproof, tmp_path: Path) -> None:
    """Their checks together, and what changed since the run before."""
    for name, entry in (("one", ENTRY), ("two", {**ENTRY, "check": "memory", "outcome": "failed"})):
        (tmp_path / name).mkdir()
        summary(tmp_path / name, entry, seconds=5.0)
    paths = [f"{name}/.bitproof/summary.json" for name in ("one", "two")]
    (tmp_path / "old").mkdir()
    before = str(summary(tmp_path / "old", ENTRY, {**ENTRY, "check": "memory"}))
    result = bitproof("report", *paths, "--before", before)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "fell short: 1 passed, 1 failed"
    assert "new: scale_add memory: failed, it was passed before" in result.stdout
    assert "interpreter  profile bitproof  5.0 s" in result.stdout


def test_report_writes_a_page_and_a_jobs_summary(bitproof: Bitproof, tmp_path: Path) -> None:
    """The page anew, Markdown at the end of what others wrote; one sentence where they cannot be."""
    summary(tmp_path, ENTRY)
    (tmp_path / "job.md").write_text("others\n")
    assert bitproof("report", "--html", "out/page.html", "--markdown", "job.md").exit_code == 0
    assert "held: 1 passed" in (tmp_path / "out" / "page.html").read_text()
    assert (tmp_path / "job.md").read_text().startswith("others\n## bitproof held: 1 passed\n")
    result = bitproof("report", "--markdown", "no/job.md")
    assert result.exit_code == 2
    assert "no/job.md cannot be written: No such file or directory" in result.stderr
