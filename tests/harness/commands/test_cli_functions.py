"""`bitproof functions`: rows are measured once, kept, merged and written as a page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bitproof.harness.commands import functions
from bitproof.harness.sweep.errors import Errors
from bitproof.harness.sweep.functions import Row
from tests.harness.command_line import Bitproof, refused

ROWS = ("fp16 to bf16", "e5m2 to bf16", "e4m3 to e5m2")


@pytest.fixture
def measured(bitproof: Bitproof, tmp_path: Path) -> Path:
    """A file of three rows: one with an error, one that loses a NaN, one that compiles nowhere."""
    data = tmp_path / "held.json"
    result = bitproof("functions", *ROWS, "--lane", "interpreter", "--data", data)
    assert result.exit_code == 0, result.stderr
    return data


def rows(data: Path) -> dict[str, Any]:
    """The rows of the file's only run."""
    (run,) = json.loads(data.read_text())["runs"]
    return dict(run["rows"])


def test_rows_are_kept_and_told_on_a_page(
    bitproof: Bitproof, measured: Path, tmp_path: Path
) -> None:
    """Nothing is measured a second time: the command that only writes the page prints no row."""
    page = tmp_path / "page.md"
    again = bitproof(
        *("functions", *ROWS, "--lane", "interpreter", "--data", measured, "--markdown", page),
    )
    assert (again.exit_code, again.stdout) == (0, "")
    assert set(rows(measured)) == set(ROWS)
    text = page.read_text()
    assert "| fp16 to bf16 | all | 0.5 |" in text
    assert "infinity gives another number | 6 lost, first at `0x7d` |" in text
    assert "* e4m3 to e5m2: no target compiles a conversion of fp8e4nv to fp8e5" in text
    assert str(tmp_path) not in text


def test_files_of_two_machines_become_one(
    bitproof: Bitproof, measured: Path, tmp_path: Path
) -> None:
    """A lane of another card is a run of its own; a row that both have is taken from the file added."""
    other = json.loads(measured.read_text())
    other["runs"][0]["versions"]["card"] = "another card"
    added = tmp_path / "added.json"
    added.write_text(json.dumps(other))
    result = bitproof("functions", "--data", measured, "--add", added)
    assert result.exit_code == 0, result.stderr
    cards = [run["versions"].get("card") for run in json.loads(measured.read_text())["runs"]]
    assert cards == [None, "another card"]


def test_rows_that_no_time_was_left_for_are_counted(bitproof: Bitproof, tmp_path: Path) -> None:
    """One row is begun at once; the fp64 sample takes more than a second, so that the other is left."""
    data = tmp_path / "held.json"
    result = bitproof(
        *("functions", "fp64 to bf16", "fp64 to fp16", "fp16 to bf16", "--seconds", "1"),
        *("--lane", "interpreter", "--data", data),
    )
    left = 3 - len(rows(data))
    assert left >= 1
    assert result.exit_code == 1
    assert f"{left} rows are left" in result.stdout


def test_a_name_that_there_is_not_is_told_with_those_there_are(bitproof: Bitproof) -> None:
    """In one sentence."""
    result = bitproof("functions", "sinc")
    refused(result, "there is no function or conversion 'sinc': choose from exp, exp2")


def test_a_damaged_file_is_told_in_one_sentence(bitproof: Bitproof, tmp_path: Path) -> None:
    """Before anything is measured."""
    data = tmp_path / "held.json"
    data.write_text('{"format": 1, "runs": 3}')
    refused(bitproof("functions", "--data", data), "is a damaged table of functions")


def test_a_row_that_ended_the_process_is_passed_over_by_the_next_command(
    bitproof: Bitproof, tmp_path: Path
) -> None:
    """As a compiler's assertion does; --fresh measures it again."""
    data = tmp_path / "held.json"
    command = ("functions", "e5m2 to fp16", "--lane", "interpreter", "--data", str(data))
    killed = (
        "import os; from bitproof.harness.commands.cli import main\n"
        "from bitproof.harness.commands import functions\n"
        "functions.measure = lambda *_, **__: os._exit(6)\n"
        f"main({list(command)!r})"
    )
    done = subprocess.run([sys.executable, "-c", killed], cwd=tmp_path, check=False)
    assert done.returncode == 6
    assert bitproof(*command).exit_code == 0
    assert rows(data)["e5m2 to fp16"]["lacking"].startswith("the process ended")
    assert "0 ulp" in bitproof(*command, "--fresh").stdout


def test_an_interrupted_row_is_measured_by_the_next_command(
    bitproof: Bitproof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were done before stay."""
    data = tmp_path / "held.json"
    command = ("functions", "--lane", "interpreter", "--data", str(data))
    original = functions.measure

    def interrupt(row: Row, *args: Any, **kwargs: Any) -> Errors:
        if row.name == "e4m3 to fp16":
            raise KeyboardInterrupt
        return original(row, *args, **kwargs)

    monkeypatch.setattr(functions, "measure", interrupt)
    interrupted = bitproof(*command[:1], "e5m2 to fp16", "e4m3 to fp16", *command[1:])
    assert interrupted.exit_code == 130
    assert set(rows(data)) == {"e5m2 to fp16"}
