"""The command line: what it costs to start, on which lane it runs, and with which status it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bitproof.harness import lanes
from bitproof.harness.commands.subject import exit_status
from bitproof.harness.outcomes import Outcome
from tests.harness.command_line import EXAMPLES, FEW, PAIR, Bitproof, refused, scripts


def test_help_imports_nothing_heavy() -> None:
    """torch, hypothesis and triton are imported by the commands that need them, not by the parser."""
    code = (
        "import sys; from bitproof.harness.commands.cli import main\n"
        "try: main(['check', '--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'triton', 'hypothesis', 'numpy', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--tensors FILE" in done.stdout


def test_the_lane_is_chosen_before_triton_is_imported(tmp_path: Path) -> None:
    """In a fresh process with nothing set, and through the installed command."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TRITON_INTERPRET", "BITPROOF_LANE")
    }
    done = subprocess.run(
        ["bitproof", "check", "scale_add", "--spec", PAIR, "--lane", "interpreter", *FEW],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(EXAMPLES), "PATH": scripts()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "lane interpreter" in done.stdout


def test_a_lane_that_cannot_be_had_is_one_sentence(
    bitproof: Bitproof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown name, and cuda where there is no GPU."""
    refused(bitproof("list", "--lane", "tpu"), "unknown lane 'tpu'")
    monkeypatch.setattr(lanes, "gpus", lambda: 0)
    refused(bitproof("check", "scale_add", "--lane", "cuda"), "no GPU for lane cuda")


def test_interrupting_a_check_is_status_130(
    bitproof: Bitproof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, no traceback."""

    def stop(*_arguments: Any, **_options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bitproof.harness.search.falsify.search", stop)
    result = bitproof("check", "scale_add", "--spec", PAIR)
    assert (result.exit_code, result.stderr) == (130, "bitproof: interrupted\n")


def test_the_status_says_whether_every_claim_holds() -> None:
    """A defect or a claim not shown able to fail is 1, nothing judged at all is 2."""
    assert exit_status([Outcome.PASSED, Outcome.UNSUPPORTED]) == 0
    assert exit_status([Outcome.PASSED, Outcome.CRASHED]) == 1
    assert exit_status([Outcome.PASSED, Outcome.NOT_DEMONSTRATED]) == 1
    assert exit_status([Outcome.UNSUPPORTED, Outcome.REFUSED]) == 2
