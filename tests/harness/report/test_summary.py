"""The summary of a run: what people read at its end and what reports are built on."""

from __future__ import annotations

import collections
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from bitproof.harness.case import Inputs, Launch
from bitproof.harness.outcomes import CheckResult, Finding, Outcome
from bitproof.harness.report import failure, records, summary
from bitproof.harness.report.summary import Entry
from bitproof.harness.search.falsify import SearchResult
from bitproof.harness.subjects.discovery import FoundSpec
from tests.harness import plain


def _search(**changes: Any) -> SearchResult:
    search = SearchResult(
        check="agreement",
        kernel="scaled_rows",
        outcomes=collections.Counter({Outcome.REFUSED: 1, Outcome.PASSED: 9}),
        covered=collections.Counter({"tail": 3, "one row": 2}),
        measures={"worst": 0.5},
        seconds=1.23456,
    )
    return dataclasses.replace(search, **changes)


def test_an_entry_holds_plain_values() -> None:
    """Workers send it as such, so that it has to survive being taken apart."""
    entry = _search(reasons={"b", "a"}).entry(report="text", record=Path("x.json"))
    assert entry == Entry(
        kernel="scaled_rows",
        check="agreement",
        outcome="passed",
        examples=10,
        outcomes={"passed": 9, "refused": 1},
        covered={"one row": 2, "tail": 3},
        measures={"worst": 0.5},
        counts={},
        reasons=["a", "b"],
        seconds=1.235,
        report="text",
        record="x.json",
    )
    assert Entry(**json.loads(json.dumps(dataclasses.asdict(entry)))) == entry


def test_lines_sum_up_each_kernel() -> None:
    """Sorted, whatever order workers reported in: examples, outcomes, time, coverage, controls."""
    control = collections.Counter({"control varied: y": 4})
    entries = [
        _search(kernel="other", seconds=0.5).entry(),
        _search(check="reproducibility", counts=control).entry(),
        _search(findings=CheckResult(outcome=Outcome.FAILED)).entry(),
    ]
    expected = [
        "other: agreement 10 in 0.5 s",
        "  covered one row 2, tail 3",
        "scaled_rows: agreement 10 (failed), reproducibility 10 in 2.5 s",
        "  covered one row 4, tail 6",
        "  control varied: y on 4 of 10 cases",
    ]
    assert summary.lines(entries) == expected
    assert summary.lines(entries[::-1]) == expected
    assert summary.lines([]) == []


def test_what_nothing_exercised_is_told_over_all_kernels() -> None:
    """A line that another kernel or check executed is not; configurations are each kernel's own."""
    inner, outer = "k.py:6 (in f, if A == 'x, y')", "k.py:5-9 (in f, if A)"
    entries = [
        _search(lines=collections.Counter({outer: 0, inner: 0, "k.py:20 (in f)": 0})).entry(),
        _search(kernel="other", lines=collections.Counter({"k.py:20 (in f)": 2})).entry(),
        _search(
            check="memory",
            configurations=collections.Counter(
                {"f configuration 0 (BLOCK=4)": 1, "f configuration 1 (BLOCK=8)": 0}
            ),
        ).entry(),
    ]
    told = summary.lines(entries)
    assert told[-1] == f"never executed: {outer}"
    assert "  configurations of f: 1 of 2 ran, never 1 (BLOCK=8)" in told
    assert sum(line.startswith("never executed") for line in told) == 1


def test_lines_say_what_was_missing_where_something_was_not_demonstrated() -> None:
    """The check's own words, else the reasons it met, else that nothing was judged."""
    idle = collections.Counter({"control varied: y": 0})
    search = _search(check="reproducibility", counts=idle)
    assert search.outcome is Outcome.NOT_DEMONSTRATED
    report = "scaled_rows: reproducibility not demonstrated: its control never varied"
    told = summary.lines([search.entry(report=report)])
    assert "  reproducibility not demonstrated: its control never varied" in told
    none = _search(outcomes=collections.Counter(), seconds=0.0, covered=collections.Counter())
    assert summary.missing(none.entry()) == "no case was judged"
    assert summary.missing(
        dataclasses.replace(none, reasons={"its outputs are empty"}).entry()
    ) == ("its outputs are empty")


def test_the_file_is_sorted_strict_json(tmp_path: Path) -> None:
    """With the run's lane, profile, time and versions; a worst distance of infinity is null there."""
    entries = [
        _search(check="memory", measures={}).entry(),
        _search(measures={"worst": math.inf}).entry(),
    ]
    path = tmp_path / "deep" / "summary.json"
    written = summary.write(entries, lane="cuda", profile="p", seconds=61.26, path=path)
    assert written == path

    def foreign(constant: str) -> None:
        raise AssertionError(constant)

    read = json.loads(path.read_text(), parse_constant=foreign)
    assert {key: read[key] for key in ("format", "lane", "profile", "seconds")} == {
        "format": 1,
        "lane": "cuda",
        "profile": "p",
        "seconds": 61.3,
    }
    assert [entry["check"] for entry in read["entries"]] == ["agreement", "memory"]
    assert read["entries"][0]["measures"] == {"worst": None}
    assert {"python", "torch", "triton", "numpy", "machine"} <= set(read["versions"])


FOUND = FoundSpec(spec=plain.SPEC, reference="tests.harness.plain", module=plain)
FINDINGS = CheckResult(
    outcome=Outcome.FAILED, findings=(Finding(summary="y[0] is 1, expected 2", lines=("got 1",)),)
)


def test_a_report_can_be_acted_on() -> None:
    """What failed, where, the case as it is written, lane and versions, and how to see it again."""
    case = plain.RowsCase(rows=3, launch=Launch(block=64))
    inputs = Inputs(tensors={}, params={}, case=case)
    text = failure.describe(
        FOUND, "agreement", inputs, FINDINGS, {"lane": "cuda", "card": ""}, Path("r.json")
    )
    assert text.splitlines() == [
        "scaled_rows: agreement failed",
        "y[0] is 1, expected 2",
        "  got 1",
        "case      RowsCase(rows=3, launch=Launch(block=64))",
        "versions  lane cuda",
        f"replay    {records.replay_command(Path('r.json'), FOUND.reference)}",
    ]


def test_a_report_says_what_was_planted_or_captured() -> None:
    """A fault in the title; the shapes of a user's own tensors in the place of a case."""
    inputs = plain.cases.build(plain.CASE, plain.PlainLane().device).replace()
    faulty = dataclasses.replace(FOUND, fault="off by a factor")
    text = failure.describe(faulty, "memory", inputs, FINDINGS, {}, Path("r.json"))
    assert text.splitlines()[0] == (
        "scaled_rows with planted fault 'off by a factor': memory failed"
    )
    assert "case      captured tensors: x (2, 3)" in text.splitlines()
