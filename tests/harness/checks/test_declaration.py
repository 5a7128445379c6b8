"""Each check is one declaration, which everything that knows of checks goes by."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from bitproof.harness import checks, vocabulary
from bitproof.harness.checks.declaration import Check
from bitproof.harness.errors import UsageError
from bitproof.harness.outcomes import CheckResult, Finding, Outcome, conclude
from bitproof.harness.search import falsify
from tests.harness.plain import CASE, PlainLane, checked, variant

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", vocabulary.CHECKS)
def test_a_checks_module_declares_it_by_its_name(name: str) -> None:
    """So that the table of names is the only other place to edit."""
    assert checks.find(name).name == name


def test_an_unknown_check_is_named_with_those_there_are() -> None:
    """In one sentence."""
    with pytest.raises(UsageError, match="unknown check 'speed': there are agreement, "):
        checks.find("speed")


@pytest.mark.parametrize("name", vocabulary.CHECKS)
def test_each_check_has_its_property(name: str) -> None:
    """A file of its own, with a test of its name."""
    text = (CHECKOUT / "properties" / f"test_{name}.py").read_text(encoding="utf-8")
    assert f"def test_{name}(" in text


def test_a_new_check_is_its_module_and_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed, judged and searched for what it wants to see, without another edit."""
    module = types.ModuleType("bitproof.harness.checks.rows")
    module.CHECK = Check(  # type: ignore[attr-defined]
        name="rows",
        judge=lambda spec, inputs, lane: conclude(
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


def test_a_check_words_what_passing_lacks_where_it_saw_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search knows no check by name: a control, for one, is the reproducibility check's."""
    module = types.ModuleType("bitproof.harness.checks.rows")
    module.CHECK = Check(  # type: ignore[attr-defined]
        name="rows",
        judge=lambda spec, inputs, lane: CheckResult(outcome=Outcome.PASSED, counts={"seen": 0}),
        launches=lambda spec: 1,
        idle=lambda counts: "no case had a hundred rows",
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(checks, "CHECKS", (*checks.CHECKS, "rows"))
    result = falsify.search(variant(), "rows", PlainLane(), max_examples=3)
    assert result.outcome is Outcome.NOT_DEMONSTRATED
    assert result.undemonstrated == "no case had a hundred rows"


NEW_CHECK = """
from bitproof.harness.checks.declaration import Check
from bitproof.harness.outcomes import Finding, CheckResult, Outcome, conclude


def check(spec, inputs, lane):
    rows = len(inputs.tensors["x"])
    found = [Finding(summary=f"{rows} rows are too many")] if rows > 6 else []
    return CheckResult(outcome=conclude(found).outcome, findings=tuple(found), counts={"odd": rows % 2})


CHECK = Check(
    name="rows",
    judge=check,
    launches=lambda spec: 100,
    applies=lambda spec: spec.name == "counted",
    wanted=lambda spec: {"odd": None},
)
"""
NEW_PROPERTY = """
from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.suite import Judge


def test_rows(judge: Judge, kernel: FoundSpec) -> None:
    judge("rows", kernel)
"""
ITS_SPECS = """
import dataclasses

from tests.harness.plain import FAULTS, variant

fault = dataclasses.replace(FAULTS[0], caught_by="rows")
SPECS = [variant(name="counted", faults=(fault, *FAULTS[1:])), variant(name="other")]
"""


def test_a_new_check_touches_its_file_one_name_and_its_property(tmp_path: Path) -> None:
    """In a copy of the checkout: specs may name it in a fault, the suite and the command line run it."""
    for folder in ("bitproof", "harness", "kernels", "oracles", "properties", "tests/harness"):
        shutil.copytree(
            CHECKOUT / folder,
            tmp_path / folder,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    (tmp_path / "harness" / "checks" / "rows.py").write_text(NEW_CHECK)
    table = tmp_path / "harness" / "vocabulary.py"
    table.write_text(table.read_text().replace('    "streams",\n', '    "rows",\n    "streams",\n'))
    (tmp_path / "properties" / "test_rows.py").write_text(NEW_PROPERTY)
    (tmp_path / "specs.py").write_text(ITS_SPECS)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *arguments, "--spec", "specs.py", "--lane", "interpreter"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    property_run = run("pytest", "properties/test_rows.py", "--hypothesis-profile", "bitproof-ci")
    assert property_run.returncode == 1, property_run.stdout + property_run.stderr
    assert "test_rows[counted]" in property_run.stdout
    assert "test_rows[other]" not in property_run.stdout
    assert "7 rows are too many" in property_run.stdout
    checked = run("bitproof", "check", "counted", "--check", "rows", "--max-examples", "1")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "rows" in checked.stdout
