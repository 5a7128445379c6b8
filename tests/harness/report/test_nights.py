"""A night is compared with the one before."""

from __future__ import annotations

from typing import Any

import pytest

from bitproof.harness.report.nights import compare
from tests.harness.report.summarising import entry

WORSE = {"worst": 0.8}


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({}, {}, []),
        ({}, {"outcome": "hung"}, [("new", "hung, it was passed before")]),
        ({"outcome": "failed"}, {"outcome": "crashed"}, []),
        ({"outcome": "failed"}, {}, [("gone", "passed, it failed before")]),
        ({}, {"outcome": "unsupported"}, [("gone", "unsupported, it passed before")]),
        ({}, {"seconds": 20.0}, [("slower", "0.2 s an example, 0.1 s before")]),
        ({}, {"seconds": 20.0, "examples": 200}, []),
        ({"seconds": 1.0}, {"seconds": 3.0}, []),
        ({}, {"examples": 0, "seconds": 0.0}, []),
        ({}, {"measures": WORSE}, [("nearer to its bound", "0.8 of its bound, 0.25 before")]),
        ({"measures": WORSE}, {"measures": {"worst": 0.85}}, []),
        ({"measures": {"worst": 0.1}}, {"measures": {"worst": 0.3}}, []),
        (
            {"measures": WORSE},
            {"measures": {"worst": None}, "outcome": "failed"},
            [("new", "failed, it was passed before")],
        ),
    ],
)
def test_a_change_is_told(
    before: dict[str, Any], now: dict[str, Any], told: list[tuple[str, str]]
) -> None:
    """New and gone failures, half as slow again, and a larger part of a bound; nothing else."""
    changes = compare([entry(**before)], [entry(**now)])
    assert [(change.kind, change.text) for change in changes] == told


def test_checks_come_and_go() -> None:
    """Those that only one of the nights judged are told, what is new first."""
    changes = compare([entry(check="old"), entry()], [entry(), entry(check="recent")])
    assert [(change.kind, change.check) for change in changes] == [
        ("new", "recent"),
        ("gone", "old"),
    ]
