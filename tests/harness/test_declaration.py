"""Each check is one declaration, which everything that knows of checks goes by."""

from __future__ import annotations

import sys
import types

import pytest

from bitproof.harness import checks, vocabulary
from bitproof.harness.checks.declaration import Check
from bitproof.harness.errors import UsageError
from bitproof.harness.outcomes import Finding, Outcome, judged
from bitproof.harness.search import falsify
from tests.harness.plain import CASE, PlainLane, checked, variant


@pytest.mark.parametrize("name", vocabulary.CHECKS)
def test_a_checks_module_declares_it_by_its_name(name: str) -> None:
    """So that the table of names is the only other place to edit."""
    assert checks.find(name).name == name


def test_an_unknown_check_is_named_with_those_there_are() -> None:
    """In one sentence."""
    with pytest.raises(UsageError, match="unknown check 'speed': there are agreement, "):
        checks.find("speed")


def test_a_new_check_is_its_module_and_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed, judged and searched for what it wants to see, without another edit."""
    module = types.ModuleType("bitproof.harness.checks.rows")
    module.CHECK = Check(  # type: ignore[attr-defined]
        name="rows",
        judge=lambda spec, inputs, lane: judged(
            [Finding(summary="too many rows")] if len(inputs.tensors["x"]) > 6 else []
        ),
        launches=lambda spec: 1,
        wanted=lambda spec: {"three rows": lambda inputs: len(inputs.tensors["x"]) == 3},
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(checks, "CHECKS", (*checks.CHECKS, "rows"))
    assert "rows" in checks.names(variant())
    assert checked("rows", variant(), CASE).outcome is Outcome.PASSED
    found = falsify.search(variant(), "rows", PlainLane(), max_examples=200)
    assert found.case is not None
    assert found.case.rows == 7
