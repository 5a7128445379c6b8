"""`bitproof replay`: a recorded failure fails again, in the same words, or is said to hold now."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.harness.command_line import PAIR, Bitproof, record_of, refused


def test_a_planted_fault_is_reported_recorded_and_replayed(bitproof: Bitproof) -> None:
    """The report ends with the command that replays; it fails again, and says so in the same words."""
    options = ("--spec", PAIR, "--fault", "scales the sum", "--check", "agreement")
    result = bitproof("check", "scale_add", *options)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].endswith("was caught by agreement, as declared")
    assert "scale_add with planted fault 'scales the sum': agreement failed" in result.stdout
    path = record_of(result)
    assert Path(path).parent == Path(".bitproof/failures/planted")
    assert f"record    {path}" in result.stdout
    assert f"replay    bitproof replay {path} --spec {PAIR}" in result.stdout
    refused(bitproof("replay", path), f"code in '{PAIR}', which belongs to no installed")
    again = bitproof("replay", path, "--spec", PAIR)
    assert again.exit_code == 1
    assert again.stderr == f"bitproof: replaying runs the code of --spec {PAIR}\n"
    report = result.stdout.split("\n\n")[1].splitlines()
    assert again.stdout.splitlines() == [line for line in report if not line.startswith("record")]


def test_a_record_of_what_was_mended_holds_when_replayed(bitproof: Bitproof) -> None:
    """Without its fault the kernel is right: status 0, and what the record said is repeated."""
    options = ("--spec", PAIR, "--fault", "adds to fresh memory", "--check", "agreement")
    path = Path(record_of(bitproof("check", "scale_add", *options)))
    plain = json.loads(path.read_text())
    plain["fault"] = None
    plain["versions"]["triton"] = "3.5.0"
    path.write_text(json.dumps(plain))
    again = bitproof("replay", str(path), "--spec", PAIR)
    assert again.exit_code == 0
    assert "scale_add: agreement passed (it failed when it was recorded)" in again.stdout
    assert "changed   triton 3.5.0 then, " in again.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("{", "is not a record: it is not valid JSON"),
        ('{"a": 1}', "is not a record written by bitproof"),
        ('{"format": 99, "kernel": "k"}', "has record format 99"),
    ],
)
def test_replay_refuses_what_is_no_record(
    bitproof: Bitproof, tmp_path: Path, text: str | None, said: str
) -> None:
    """Absent, damaged, foreign, and from another version."""
    if text is not None:
        (tmp_path / "record.json").write_text(text)
    refused(bitproof("replay", "record.json"), said)


def test_what_took_a_process_down_is_replayed_in_another_with_its_fault(bitproof: Bitproof) -> None:
    """The fault is planted there too: what was recorded as a crash fails as it does here."""
    options = ("--spec", PAIR, "--fault", "scales the sum", "--check", "agreement")
    path = Path(record_of(bitproof("check", "scale_add", *options)))
    here = bitproof("replay", str(path), "--spec", PAIR)
    path.write_text(json.dumps({**json.loads(path.read_text()), "outcome": "crashed"}))
    elsewhere = bitproof("replay", str(path), "--spec", PAIR)
    assert elsewhere.exit_code == 1
    assert elsewhere.stdout == here.stdout


@pytest.mark.parametrize(
    ("case", "captured", "said"),
    [
        (None, {"path": "/dev/zero", "sha256": "", "params": {}}, "/dev/zero are gone"),
        (None, {"path": "\x1b[2J\0", "sha256": "", "params": {}}, r"'\x1b[2J\x00' are gone"),
        ({"rows": 10**401}, None, "not a "),
        ({"\x1b[2J": 1}, None, "not a "),
    ],
)
def test_a_hostile_record_of_a_right_kernel_is_one_sentence(
    bitproof: Bitproof, tmp_path: Path, case: Any, captured: Any, said: str
) -> None:
    """A device as a file, a path and names that would draw on the screen, a number that nothing holds."""
    record = {"format": 1, "kernel": "cast_e4m3", "spec": "bitproof.kernels", "check": "agreement"}
    record |= {"outcome": "failed", "case": case, "captured": captured, "finding": []}
    record |= {"lane": "interpreter", "versions": {}, "replay": "", "fault": None}
    (tmp_path / "record.json").write_text(json.dumps(record))
    refused(bitproof("replay", "record.json"), said)


@pytest.mark.parametrize("elements", [25 * 10**9, 10**18])
def test_a_record_that_asks_for_too_much_memory_is_one_sentence(
    bitproof: Bitproof, elements: int
) -> None:
    """An arena of 10^11 bytes and more; none of it is reserved, whatever the machine has."""
    options = ("--spec", PAIR, "--fault", "scales the sum", "--check", "agreement")
    path = Path(record_of(bitproof("check", "scale_add", *options)))
    plain = json.loads(path.read_text())
    plain["case"]["launch"]["misalign"] = elements
    path.write_text(json.dumps(plain))
    result = bitproof("replay", str(path), "--spec", PAIR)
    assert result.exit_code == 2
    (line,) = [line for line in result.stdout.splitlines() if "out of resources" in line]
    assert re.search(
        r"agreement out of resources: x would span 1?\d{11,} bytes of memory, the most", line
    )


def test_a_records_check_is_run_on_captured_tensors(bitproof: Bitproof, tmp_path: Path) -> None:
    """With its planted fault: they fail as its case did, and their own record replays alone."""
    options = ("--spec", PAIR, "--fault", "scales the sum", "--check", "agreement")
    path = record_of(bitproof("check", "scale_add", *options))
    file = tmp_path / "layer.safetensors"
    save_file({"a": torch.ones(70), "z": torch.ones(70)}, file)
    asked = ("--spec", PAIR, "--tensors", str(file), "--rename", "a=x")
    result = bitproof("replay", path, *asked)
    assert result.exit_code == 1
    assert "captured tensors: x (70,), z (70,)" in result.stdout
    own = result.stdout.splitlines()[-1].removeprefix("record    ")
    assert own != path
    again = bitproof("replay", own, "--spec", PAIR)
    assert again.exit_code == 1
    plain = json.loads(Path(path).read_text())
    Path(path).write_text(json.dumps({**plain, "fault": None}))
    held = bitproof("replay", path, *asked)
    assert held.exit_code == 0
    assert held.stdout.splitlines()[-1] == f"scale_add: agreement passed on {file}"
    refused(bitproof("replay", path, "--spec", PAIR, "--rename", "a=x"), "give --tensors FILE")
