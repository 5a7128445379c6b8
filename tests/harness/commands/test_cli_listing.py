"""`bitproof list`: what is checked, claimed and planted, and what a named kernel takes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.command_line import NARROWING, PAIR, Bitproof, refused


def test_list_says_what_is_checked_claimed_and_planted(bitproof: Bitproof) -> None:
    """For a person, and the same as JSON."""
    told = bitproof("list", "scale_add", "--spec", PAIR)
    assert told.exit_code == 0
    assert "scale_add  (example_kernels.bitproof_specs)" in told.stdout
    assert "fault   'scales the sum', caught by agreement" in told.stdout
    (kernel,) = json.loads(bitproof("list", "--spec", PAIR, "--json").stdout)
    assert kernel["checks"] == ["agreement", "memory", "reproducibility", "streams"]
    assert kernel["faults"][0]["name"] == "scales the sum"
    assert "y: exact bits, any NaN equal to any NaN" in kernel["claims"]
    named = bitproof("list", "--spec", NARROWING, "--spec", PAIR, "--sweepable")
    assert named.stdout == "narrowed\n"
    (cast,) = json.loads(bitproof("list", "--spec", NARROWING, "--json").stdout)
    assert "every fp32 pattern rounds to e4m3 (rne, saturate on overflow)" in cast["claims"]


def test_list_begins_with_an_overview(bitproof: Bitproof) -> None:
    """Under each spec's reference a line a kernel, and how to see more."""
    told = bitproof("list", "--spec", PAIR, "--spec", NARROWING)
    assert told.exit_code == 0
    narrowing, other, pair, one, more = told.stdout.splitlines()
    assert (pair, narrowing) == (PAIR, NARROWING)
    assert one == "  scale_add  3 faults; agreement, memory, reproducibility, streams"
    assert other.startswith("  narrowed   ")
    assert more.startswith("`bitproof list KERNEL` shows ")


def test_list_says_of_a_named_kernel_what_it_takes(bitproof: Bitproof) -> None:
    """Names, types and dimensions of its tensors, and parameters with what they are by themselves."""
    told = bitproof("list", "scale_add", "--spec", PAIR).stdout
    assert "  tensor  x: float32, 1 dimension\n" in told
    assert "  param   exponent, 0 unless given\n" in told
    (kernel,) = json.loads(bitproof("list", "scale_add", "--spec", PAIR, "--json").stdout)
    assert kernel["params"]["launch"]["num_warps"] == 4
    assert [tensor["required"] for tensor in kernel["tensors"]] == [True, True]
    assert "  tensor  " not in bitproof("list", "--spec", PAIR).stdout
    refused(bitproof("list", "scale_ad", "--spec", PAIR), "scale_ad")


MISTAKEN = """
from tests.harness.narrowing import SPEC
from tests.harness.plain import variant

BAD = variant(name="bad", bounds={}, strided="x")
"""


def test_list_shows_the_mistakes_of_a_spec(bitproof: Bitproof, tmp_path: Path) -> None:
    """In the place of its claims, beside the other kernels, and with status 2."""
    path = tmp_path / "mistaken.py"
    path.write_text(MISTAKEN)
    told = bitproof("list", "--spec", str(path))
    assert told.exit_code == 2
    first, second, third, fourth, *rest = told.stdout.splitlines()
    assert first == str(path)
    assert second == "  bad       has mistakes:"
    assert third == "    mistake bounds must be a dict with a bound for each output, got {} (dict)"
    assert fourth.startswith("    mistake strided must be a frozenset of names of tensors, got 'x'")
    assert rest[0].startswith("  narrowed  ")
    bad, narrowed = json.loads(bitproof("list", "--spec", str(path), "--json").stdout)
    assert (bad["kernel"], len(bad["mistakes"])) == ("bad", 2)
    assert (narrowed["kernel"], narrowed["mistakes"]) == ("narrowed", [])
    assert bitproof("list", "narrowed", "--spec", str(path)).exit_code == 0
    sweepable = bitproof("list", "--spec", str(path), "--sweepable")
    assert (sweepable.exit_code, sweepable.stdout) == (2, "narrowed\n")
    assert sweepable.stderr.startswith(f"bitproof: spec 'bad' ({path}) has 2 mistakes:")


def test_a_spec_that_is_not_there_is_one_sentence(bitproof: Bitproof) -> None:
    """Modules and files."""
    refused(bitproof("list", "--spec", "no_such_package.specs"), "no module of that name")
    refused(bitproof("list", "--spec", "absent.py"), "no such file")


RAISING = """
from hypothesis import strategies as st
from tests.harness.plain import RowsCase, rows_cases, variant


def cases():
    return rows_cases().map(lambda case: RowsCase(rows=case.rows // 0))


SPEC = variant(name="raising", cases=cases)
"""


def test_a_strategy_that_raises_is_one_sentence(bitproof: Bitproof, tmp_path: Path) -> None:
    """Where cases are drawn to say what a kernel takes, and where they are judged; names file and line."""
    path = tmp_path / "raising.py"
    path.write_text(RAISING)
    listed = bitproof("list", "raising", "--spec", str(path))
    refused(listed, "spec 'raising': its strategy raised while a case was drawn")
    assert f"ZeroDivisionError in <lambda> ({path}:7): integer division" in listed.stderr
    judged = bitproof("check", "raising", "--spec", str(path), "--check", "agreement")
    assert (judged.exit_code, judged.stderr.splitlines()[-1]) == (2, listed.stderr.rstrip())
