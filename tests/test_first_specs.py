"""A spec of a few lines, without a tolerance or a planted fault, judges a stranger's kernel as it should."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bitproof.harness import lanes
from bitproof.harness.outcomes import Outcome
from tests.first_specs import specs
from tests.first_specs.edits import EDITS
from tests.first_specs.judging import found_specs, judge, judge_edits

LANE = lanes.choose()
NAMES = sorted(EDITS)


@pytest.mark.parametrize("name", NAMES)
def test_a_right_kernel_raises_no_alarm(name: str) -> None:
    """A few cases here; `python -m tests.first_specs.judging` draws thousands."""
    result = judge(found_specs()[name], "agreement", 8)
    assert result.outcome is Outcome.PASSED
    assert result.examples == 8


@pytest.mark.parametrize("name", NAMES)
def test_a_natural_edit_is_caught(name: str) -> None:
    """The first of each kernel here."""
    edit, caught, _ = next(judge_edits(found_specs()[name], 40))
    assert caught, edit


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_natural_edits_are_caught(name: str) -> None:
    """By the check that is to see them."""
    assert [edit for edit, caught, _ in judge_edits(found_specs()[name], 100) if not caught] == []


def test_a_first_spec_has_fewer_than_fifteen_lines() -> None:
    """As they are formatted."""
    tree = ast.parse(Path(specs.__file__).read_text())
    made = [
        one for one in tree.body if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)
    ]
    lengths = {ast.unparse(one.targets[0]): one.end_lineno - one.lineno + 1 for one in made}  # type: ignore[operator]
    assert len(lengths) == len(EDITS)
    assert max(lengths.values()) < 15, lengths
