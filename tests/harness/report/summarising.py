"""Summaries to report on: one that has everything, with names that would be markup."""

from __future__ import annotations

from typing import Any

from bitproof.harness.report.summary import Entry, Sample, Summary

HOSTILE = "<script>alert('x')</script> & \"quoted\" `tick`"


def entry(kernel: str = "cast", check: str = "agreement", **changes: Any) -> Entry:
    """One that passed."""
    plain: dict[str, Any] = {
        "kernel": kernel,
        "check": check,
        "outcome": "passed",
        "examples": 100,
        "outcomes": {"passed": 100},
        "covered": {},
        "measures": {"worst": 0.25},
        "counts": {},
        "reasons": [],
        "seconds": 10.0,
        "report": "",
        "record": None,
    }
    return Entry(**{**plain, **changes})


def samples(output: str = "y") -> list[Sample]:
    """Ten cases, one of them infinitely far off."""
    return [
        Sample(
            sizes={"rows": rows, "launch.block": 64},
            features=["tail"],
            distances={output: None if rows == 9 else rows / 10, "exact": 0.0},
        )
        for rows in range(10)
    ]


def summary(*entries: Entry) -> Summary:
    """A run that came to these."""
    return Summary(
        format=1,
        lane="interpreter",
        profile="bitproof",
        seconds=12.5,
        versions={"torch": "2.13.0", "triton": "3.9.0"},
        entries=list(entries),
    )


FULL = summary(
    entry(
        samples=samples(HOSTILE),
        ulps={HOSTILE: {"0": 5, "-0.5": 40, "+2": 1, "+inf": 1}, "exact": {"0": 10}},
        covered={HOSTILE: 3, "tail": 4},
        lines={"k.py:5-9 (in f, if A)": 0},
        configurations={"f configuration 0 (BLOCK=4)": 1, "f configuration 1 (BLOCK=8)": 0},
    ),
    entry(
        check="memory",
        outcome="failed",
        report=f"cast: memory failed\n{HOSTILE}\nreplay    bitproof replay a.json --spec b",
        record="a.json",
    ),
    entry(
        check="reproducibility",
        measures={"runs": 3.0},
        differing={"kernel": [0, 0, 0], "control": [0, 7, 100]},
    ),
    entry(kernel=HOSTILE, check="streams", outcome="unsupported", reasons=[HOSTILE], measures={}),
    entry(
        check="invariances",
        outcome="not demonstrated",
        report="cast: invariances not demonstrated: never on a Sunday applied",
    ),
    entry(check="lowering for sm_80", outcome="passed", measures={}),
    entry(check="lowering for sm_90", outcome="failed", report=HOSTILE, reasons=["contraction"]),
)
