"""`bitproof mutants`: what becomes of generated faults, told, kept, and as an exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.command_line import PAIR, Bitproof, refused
from tests.harness.conftest import Write

OF_EXAMPLE = ("mutants", "scale_add", "--spec", PAIR, "--lane", "interpreter", "--workers", "1")


def test_faults_of_a_kernel_in_another_package_are_killed_and_reported(
    bitproof: Bitproof, tmp_path: Path
) -> None:
    """Every one of these is noticed: by agreement where a number is wrong, by memory where a mask is."""
    chosen = ("sum and difference swapped", "store mask dropped", "store left out")
    operators = [word for name in chosen for word in ("--operator", name)]
    command = (*OF_EXAMPLE, *operators, "--sample", "3", "--max-examples", "10")
    result = bitproof(*command, "--out", "report.json")
    assert result.exit_code == 0, result.output
    assert "3 mutants: 3 killed, 100.0% of 3 faults" in result.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["schemaVersion"] == "2"
    (file,) = report["files"].values()
    by_name = {one["mutatorName"]: one for one in file["mutants"]}
    assert {name: one["status"] for name, one in by_name.items()} == dict.fromkeys(chosen, "Killed")
    assert by_name["store mask dropped"]["killedBy"] == ["memory"]
    start, end = (by_name["store left out"]["location"][side] for side in ("start", "end"))
    line = file["source"].splitlines()[start["line"] - 1]
    assert line[start["column"] - 1 : end["column"] - 1].startswith("tl.store(y_ptr")
    assert bitproof(*command).stdout.splitlines()[-1] == result.stdout.splitlines()[-2]


def test_what_no_check_notices_is_shown_as_a_diff_with_status_1(bitproof: Bitproof) -> None:
    """A program's number times its block stays within 32 bits in short vectors: another `other` too."""
    result = bitproof(
        *(*OF_EXAMPLE, "--operator", "other of a masked load changed", "--sample", "1"),
        *("--max-examples", "3"),
    )
    assert result.exit_code == 1
    assert "survived  scale_add  example_kernels/scale_add.py:" in result.stdout
    assert "other=1.0)" in result.stdout


def test_mutants_are_listed_without_being_judged(bitproof: Bitproof) -> None:
    """With their places and diffs."""
    result = bitproof(*OF_EXAMPLE, "--list", "--sample", "5")
    assert result.exit_code == 0
    assert "scale_add: 5 of " in result.stdout
    assert "example_kernels/scale_add.py:" in result.stdout


def test_an_unknown_operator_or_mutant_is_one_sentence(bitproof: Bitproof) -> None:
    """And what there is instead."""
    refused(bitproof(*OF_EXAMPLE, "--operator", "magic"), "unknown operator 'magic'")
    refused(bitproof(*OF_EXAMPLE, "--only", "0" * 12), "no mutant is called '000000000000'")


@pytest.mark.parametrize(
    ("old", "told"),
    [("other=0.0", "applies 2 times in _scale_add"), ("x * scale + z", "")],
    ids=["stale", "applies"],
)
def test_an_argued_equivalent_is_taken_by_its_anchor_and_a_stale_one_is_an_error(
    bitproof: Bitproof, write: Write, old: str, told: str
) -> None:
    """Its edit is found in the source again, each time."""
    write("argued.py", ARGUED.replace("OLD", old))
    command = ("mutants", "scale_add", "--spec", "argued", "--lane", "interpreter")
    options = ("--workers", "1", "--operator", "sum and difference swapped", "--sample", "1")
    result = bitproof(*command, *options, "--max-examples", "3")
    if told:
        refused(result, told)
    else:
        assert "1 argued by a person" in result.stdout
        assert result.exit_code == 0


ARGUED = """
import dataclasses
from bitproof import Equivalent
from example_kernels.bitproof_specs import *
from example_kernels import bitproof_specs

SPEC = dataclasses.replace(
    bitproof_specs.SPEC,
    equivalents=(
        Equivalent(
            module="example_kernels.scale_add",
            within="_scale_add",
            old="OLD",
            new="x * scale - z",
            because="a person said so",
        ),
    ),
)
"""
