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


def test_what_no_case_of_one_kernel_executes_is_judged_with_another_that_reaches_it(
    bitproof: Bitproof, write: Write
) -> None:
    """Alone, a launcher that never starts the second kernel has nothing to judge the fault by."""
    path = str(write("copies.py", COPIES))
    options = ("--spec", path, "--lane", "interpreter", "--workers", "1", "--max-examples", "3")
    fault = ("--operator", "factor left out", "--sample", "1")
    alone = bitproof("mutants", "plain", *options, *fault)
    assert "1 mutant: 1 uncovered" in alone.stdout
    both = bitproof("mutants", "plain", "doubling", *options, *fault)
    assert "1 mutant: 1 killed" in both.stdout


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

COPIES = """
from functools import partial

import torch
import triton
import triton.language as tl
from bitproof import Fault, KernelSpec, Varies, exact_bits
from tests.harness.plain import RowsCase, rows_cases


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def double(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(y_ptr + i, mask=i < n) * 2.0, mask=i < n)


def run(tensors, params, doubled=False):
    x = tensors["x"]
    y = torch.empty_like(x)
    block = max(triton.next_power_of_2(x.numel()), 1)
    copy[(1,)](x, y, x.numel(), block)
    if doubled:
        double[(1,)](y, x.numel(), block)
    return {"y": y}


_copies = partial(
    KernelSpec,
    case=RowsCase,
    cases=rows_cases,
    bounds={"y": exact_bits()},
    reproducible=Varies(because="nobody claims it"),
)
PLAIN = _copies(name="plain", run=run, oracle=lambda tensors, params: {"y": tensors["x"]})
DOUBLING = _copies(
    name="doubling",
    run=partial(run, doubled=True),
    oracle=lambda tensors, params: {"y": tensors["x"] * 2.0},
)
"""
