"""`bitproof sweep`: the whole census is told and recorded, however often it was interrupted."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

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
    assert bitproof("replay", record_of(wrong), "--spec", NARROWING).exit_code == 1
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


def test_an_interrupted_sweep_says_what_it_counted(tmp_path: Path) -> None:
    """Ctrl-C ends it with status 130 and one line."""
    begun = tmp_path / "begun"
    spec = tmp_path / "narrowing.py"
    pause = (
        f"    import pathlib, time\n    pathlib.Path({str(begun)!r}).touch()\n    time.sleep(0.2)\n"
    )
    kernel = 'saturating: the kernel."""\n'
    spec.write_text(Path(NARROWING).read_text().replace(kernel, kernel + pause))
    command = ["bitproof", "sweep", "narrowed", "--spec", str(spec), "--fault"]
    command += ["rounds through fp16", "--bits", "0x3f000000:0x50000000", "--lane", "interpreter"]
    environment = {**os.environ, "PATH": scripts(), "PYTHONPATH": str(CHECKOUT)}
    # What a shell starts in the background ignores SIGINT, and so would all that it starts.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    ) as run:
        deadline = time.monotonic() + 60
        while not begun.exists():
            assert run.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert re.search(r"^bitproof: interrupted after [0-9,]+ of 285,212,672 patterns, ", said, re.M)
    assert "Traceback" not in said


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
