"""`bitproof sweep`: the whole census is told and recorded, however often it was interrupted."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bitproof.harness import lanes
from tests.harness.command_line import (
    CHECKOUT,
    NARROWING,
    PAIR,
    Bitproof,
    record_of,
    refused,
    scripts,
)


def test_sweep_tells_the_census_and_leaves_a_record(bitproof: Bitproof, tmp_path: Path) -> None:
    """The binade of 1 has 4 * 8191 values that round twice; a record of the first ones replays."""
    options = ("sweep", "narrowed", "--spec", NARROWING, "--bits", "0x3f800000:0x40000000")
    right = bitproof(*options)
    assert (right.exit_code, right.stderr) == (0, "")
    assert "0 wrong of 8,388,608" in right.stdout
    wrong = bitproof(*options, "--fault", "rounds through fp16")
    assert wrong.exit_code == 1
    assert "32,764 wrong of 8,388,608, all toward zero" in wrong.stdout
    assert "0x3f880001 (1.0625001192092896)  got 0x38 (1.0)  expected 0x39 (1.125)" in wrong.stdout
    assert bitproof("replay", record_of(wrong)).exit_code == 1
    left = sorted((tmp_path / ".bitproof" / "sweeps").iterdir())
    assert [file.name.split(".", 1)[1] for file in left] == ["census.json", "census.json"]
    assert sorted(json.loads(file.read_text())["wrong"] for file in left) == [0, 32764]


def test_sweep_as_json_has_every_count(bitproof: Bitproof) -> None:
    """For scripts: the census, what it is against, and where it was made."""
    options = ("sweep", "narrowed", "--spec", NARROWING, "--bits", "0x3f800000:0x3f8a0000")
    result = bitproof(*options, "--fault", "rounds through fp16", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert {name: told[name] for name in ("wrong", "toward_zero", "largest_ulps", "tried")} == {
        "wrong": 8191,
        "toward_zero": 8191,
        "largest_ulps": 1,
        "tried": 0xA0000,
    }
    assert told["first"][0]["input"] == "0x3f880001"
    assert (told["format"], told["mode"], told["overflow"]) == ("e4m3", "rne", "saturate")
    assert told["versions"]["lane"] == lanes.present().name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["narrowed", "--bits", "1"], "--bits 1 is no range of bit patterns: write LO:HI"),
        (["narrowed", "--bits", "a:b"], "--bits a:b is no range"),
        (["narrowed", "--bits", "0:0x100000001"], "no bit patterns in 0x0:0x100000001"),
        (["narrow"], "unknown kernel 'narrow': there are narrowed"),
        (["narrowed", "--fault", "f"], "has no fault 'f'"),
    ],
)
def test_sweep_names_what_it_cannot_do(bitproof: Bitproof, arguments: list[str], said: str) -> None:
    """Ranges, kernels and faults."""
    refused(bitproof("sweep", *arguments, "--spec", NARROWING), said)


def test_a_kernel_that_is_no_cast_is_not_swept(bitproof: Bitproof) -> None:
    """The sentence says what its spec lacks."""
    refused(bitproof("sweep", "scale_add", "--spec", PAIR), "declares no `elementwise` cast")


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    """Ctrl-C ends it with status 130 and its state; the same command then tells the whole census."""
    slow = (
        tmp_path / "slow"
    )  # while it is there, a launch takes so long that the signal comes in time
    slow.touch()
    spec = tmp_path / "narrowing.py"
    pause = f"    import os, time\n    time.sleep(0.2 * os.path.exists({str(slow)!r}))\n"
    kernel = 'saturating: the kernel."""\n'
    spec.write_text(Path(NARROWING).read_text().replace(kernel, kernel + pause))
    command = ["bitproof", "sweep", "narrowed", "--spec", str(spec), "--fault"]
    command += ["rounds through fp16", "--bits", "0x3f000000:0x50000000", "--lane", "interpreter"]
    environment = {**os.environ, "PATH": scripts(), "PYTHONPATH": str(CHECKOUT)}
    states = tmp_path / ".bitproof" / "sweeps"
    # What a shell starts in the background ignores SIGINT, and so would all that it starts.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    ) as first:
        deadline = time.monotonic() + 60
        while not list(states.glob("*.stopped.json")):
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first.send_signal(signal.SIGINT)
        slow.unlink()
        _, said = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "bitproof: stopped at 0x" in said.splitlines()[-1]
    assert "the same command goes on from there" in said
    again = subprocess.run(
        [*command, "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "going on from 0x" in again.stderr
    assert again.returncode == 1
    told = json.loads(again.stdout)
    assert told["tried"] == 0x11000000
    # Nine binades from 0.5 have four such ties each; the tenth ends at 448 and has three.
    assert told["wrong"] == told["toward_zero"] == (4 * 9 + 3) * 8191
    assert list(states.glob("*.stopped.json")) == []


def test_a_damaged_state_is_one_sentence_and_fresh_starts_over(
    bitproof: Bitproof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is named, and kept beside the new one."""
    options = ("sweep", "narrowed", "--spec", NARROWING, "--bits", "0:0x200000")

    def stop(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bitproof.harness.sweep.stopped.Keeper.finish", stop)
    assert bitproof(*options).exit_code == 130
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    (state,) = (tmp_path / ".bitproof" / "sweeps").iterdir()
    state.write_text("{}")
    refused(bitproof(*options), f"{state.relative_to(tmp_path)} is no state of a stopped sweep")
    assert bitproof(*options, "--fresh").exit_code == 0
    assert state.with_suffix(".earlier").read_text() == "{}"


def test_a_launch_that_fails_in_a_sweep_is_an_outcome(bitproof: Bitproof, tmp_path: Path) -> None:
    """A crash is the kernel's, status 1; what a kernel cannot do here leaves nothing judged, status 2."""
    text = (
        "import dataclasses\nfrom bitproof.harness.errors import Unsupported\n"
        "from tests.harness import narrowing\n"
        "def run(tensors, params):\n    raise {}\n"
        "SPEC = dataclasses.replace(narrowing.SPEC, run=run)\n"
    )
    for error, code, said in (
        ("IndexError('beyond')", 1, "narrowed crashed: the launch raised IndexError: beyond\n"),
        ("Unsupported('needs fp4')", 2, "narrowed unsupported: needs fp4\n"),
    ):
        file = tmp_path / f"specs_{code}.py"
        file.write_text(text.format(error))
        result = bitproof("sweep", "narrowed", "--spec", str(file), "--bits", "0:0x1000")
        assert (result.exit_code, result.stdout) == (code, said)
