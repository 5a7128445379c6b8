"""Invariances of a case and its transformed inputs: those that apply are counted, a violated one is named."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import SpecError
from harness.outcomes import Outcome
from harness.spec import Invariance
from tests.harness.erring import after, alone, kernel, negated
from tests.harness.plain import RowsCase, checked, variant


def test_invariances_hold_for_a_right_kernel() -> None:
    """Each that applies is counted."""
    spec = variant(invariances=(alone(), negated()))
    findings = checked("invariances", spec)
    assert findings.outcome is Outcome.PASSED
    assert findings.counts == {"last row alone applied": 1, "sign symmetry applied": 1}
    findings = checked("invariances", spec, RowsCase(rows=1, columns=3))
    assert findings.counts == {"last row alone applied": 0, "sign symmetry applied": 1}


def test_a_violated_invariance_is_named() -> None:
    """A kernel that leaks from row to row, and one with a preferred sign."""
    leaking = kernel(after(lambda x, y: y[1:].add_(y[:-1])), invariances=(alone(), negated()))
    findings = checked("invariances", leaking)
    assert findings.outcome is Outcome.FAILED
    assert [f.summary for f in findings.findings] == ["y[0, 0]: last row alone gives other bits"]
    signed = kernel(after(lambda x, y: y.add_(y.abs())), invariances=(alone(), negated()))
    findings = checked("invariances", signed)
    assert "sign symmetry gives other bits" in findings.text
    assert "last row alone" not in findings.text


def test_an_invariance_that_does_not_apply_shows_nothing() -> None:
    """A case on which none applies is not demonstrated, rather than passed."""
    findings = checked("invariances", variant(invariances=(alone(),)), RowsCase(rows=1, columns=3))
    assert findings.outcome is Outcome.NOT_DEMONSTRATED
    assert findings.reason == "no invariance applies"


@pytest.mark.parametrize(("related", "message"), [({}, "relates none"), ({"z": 0}, "relates 'z'")])
def test_an_invariance_relates_outputs(related: dict[str, Any], message: str) -> None:
    """One that relates nothing, or what is no output, is the spec's mistake."""
    invariance = Invariance(name="odd", transform=lambda i: i, relate=lambda o, i: related)
    with pytest.raises(SpecError, match=message):
        checked("invariances", variant(invariances=(invariance,)))
