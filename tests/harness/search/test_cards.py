"""On a card: what kills or holds it costs one case, in every way of running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bitproof.harness import lanes
from tests.harness.command_line import CHECKOUT

SPECS = Path(__file__).with_name("dying_on_a_card.py")
FEW = ("--lane", "cuda", "--max-examples", "10", "--hang-limit", "8")
DYING = {"stores_far": "crashed", "asserts": "crashed", "never_ends": "hung"}

pytestmark = pytest.mark.skipif(not lanes.gpus(), reason="needs a GPU: a card is what is lost here")


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
        # Not the lane that these tests run on.
        env={
            name: value
            for name, value in os.environ.items()
            if name not in ("BITPROOF_LANE", "TRITON_INTERPRET")
        },
    )


def _rows(record: str, folder: Path) -> int:
    """The rows of the case that a record holds."""
    rows: int = json.loads((folder / record).read_text())["case"]["rows"]
    return rows


@pytest.mark.parametrize("workers", ["0", "5"])
def test_a_lost_card_costs_one_failure_of_pytest(workers: str, tmp_path: Path) -> None:
    """Each kernel ends as what it is, shrunk and on disk; the sound one passes, before or after."""
    properties = str(CHECKOUT / "properties" / "test_agreement.py")
    ran = _run(tmp_path, "pytest", properties, "--spec", str(SPECS), "-n", workers, *FEW)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    summary = json.loads((tmp_path / ".bitproof" / "summary.json").read_text())
    entries = {entry["kernel"]: entry for entry in summary["entries"]}
    outcomes = {name: entry["outcome"] for name, entry in entries.items()}
    assert outcomes == {
        **DYING,
        "is_sound": "passed",
        "wants_more": "passed",
    }, ran.stdout + ran.stderr
    assert entries["wants_more"]["outcomes"]["out of resources"] >= 1
    for name in DYING:
        assert _rows(entries[name]["record"], tmp_path) == 50
    assert "3 failed, 2 passed" in ran.stdout


@pytest.mark.parametrize("kernel", [*DYING, "wants_more"])
def test_a_lost_card_costs_one_failure_of_check(kernel: str, tmp_path: Path) -> None:
    """As by pytest; the record replays."""
    ran = _run(
        tmp_path, "bitproof", "check", kernel, "--spec", str(SPECS), "--check", "agreement", *FEW
    )
    if kernel == "wants_more":
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "of them out of resources" in ran.stdout
        return
    assert ran.returncode == 1, ran.stdout + ran.stderr
    records = list((tmp_path / ".bitproof" / "failures").glob("*.json"))
    assert [_rows(str(record), tmp_path) for record in records] == [50]
    again = _run(
        tmp_path, "bitproof", "replay", str(records[0]), "--spec", str(SPECS), "--hang-limit", "8"
    )
    assert again.returncode == 1
    assert DYING[kernel] in again.stdout
