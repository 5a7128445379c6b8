"""Runs killed at any moment: the next one says what was under way, and goes on from what was found."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from bitproof.harness.report import records
from bitproof.harness.search import journal
from tests.door.running import ENVIRONMENT, FILES, read_summary
from tests.harness.command_line import CHECKOUT

SPECS = """
import time
from tests.harness.plain import scaled, variant
from tests.harness.starting import scaled_beside_a_kernel


def wrong(tensors, params):
    y = scaled(tensors, params)["y"]
    if y.shape[0] >= 3 and y.shape[1] >= 3:
        y[-1, -1] += 1.0
    return {"y": y}


def slow(tensors, params):
    time.sleep(0.05)
    return scaled_beside_a_kernel(tensors, params)


WRONG = variant(name="a_wrong_one", run=wrong)
SLOW = variant(name="slow", run=slow)
"""
TOLD = "a process died over one case, told by nobody"


def start(folder: Path, examples: int) -> subprocess.Popen[str]:
    """The agreement of both kernels, whose output goes to a file, in a session of its own."""
    inherited = {k: v for k, v in os.environ.items() if k not in ENVIRONMENT and "PYTEST" not in k}
    options = ("--spec", "their_specs.py", "--lane", "interpreter", "--max-examples", str(examples))
    with (folder / "out").open("w") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", FILES[0], *options],
            cwd=folder,
            env={**inherited, "PYTHONPATH": str(CHECKOUT)},
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )


def list_failures(folder: Path) -> list[str]:
    """The kernels of which there is a record, one for each."""
    return sorted(
        records.load(path).kernel for path in (folder / ".bitproof" / "failures").glob("*.json")
    )


def test_a_run_that_is_killed_loses_the_case_under_way_at_most(tmp_path: Path) -> None:
    """Killed three times, at moments that nobody chose; every next run is one of these or the last."""
    (tmp_path / "their_specs.py").write_text(SPECS)
    in_flight = tmp_path / journal.FOLDER
    moments = random.Random(os.urandom(8))
    for _ in range(3):
        run = start(tmp_path, 400)
        began = time.monotonic()
        while not any("slow" in text for text in _read_journals(in_flight)):
            assert run.poll() is None, (tmp_path / "out").read_text()
            assert time.monotonic() - began < 120
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 1))
        run.kill()
        assert run.wait() == -signal.SIGKILL
        left = [text for text in _read_journals(in_flight) if "slow" in text]
        assert len(left) <= 1
    before = list_failures(tmp_path)
    run = start(tmp_path, 20)
    assert run.wait(120) == 1
    told = (tmp_path / "out").read_text()
    # Once in the header, before anything is judged, and once at the end.
    assert told.count(TOLD) == 2 * len(left), told
    assert told.index(TOLD) < told.index("test_agreement") if left else TOLD not in told
    assert not in_flight.exists()
    entries = {entry["kernel"]: entry for entry in read_summary(tmp_path)["entries"]}
    assert entries["slow"]["outcome"] == "passed"
    # Its failure was found by the first of them, and each later one begins with it.
    assert (entries["a_wrong_one"]["outcome"], entries["a_wrong_one"]["examples"]) == ("failed", 1)
    assert "a_wrong_one" in before
    assert set(list_failures(tmp_path)) <= {"a_wrong_one", "slow"}


def _read_journals(folder: Path) -> list[str]:
    """What the journals hold at this moment; one may go while it is looked at."""
    held = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            held.append(path.read_text())
    return held
