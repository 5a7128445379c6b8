"""`bitproof check --faults`: every planted fault of anybody's spec, by the check that it names."""

from __future__ import annotations

from pathlib import Path

from tests.harness.command_line import PAIR, Bitproof, refused

PLAIN = str(Path(__file__).parents[1] / "plain.py")


def test_every_fault_of_a_spec_is_judged_by_its_own_check(bitproof: Bitproof) -> None:
    """Two that are caught: status 0, a line each."""
    result = bitproof("check", "scale_add", "--spec", PAIR, "--faults", "--max-examples", "5")
    assert result.exit_code == 0, result.output
    assert "scales the sum: was caught by agreement, as declared" in result.stdout


def test_a_fault_that_is_missed_falls_short(bitproof: Bitproof, tmp_path: Path) -> None:
    """Here one that writes what was there already."""
    path = tmp_path / "missing.py"
    text = Path(PLAIN).read_text(encoding="utf-8")
    path.write_text(text.replace('new="2.5"', 'new="2.0"'), encoding="utf-8")
    result = bitproof(
        "check", "scaled_rows", "--spec", str(path), "--faults", "--max-examples", "5"
    )
    assert result.exit_code == 1
    assert "off by a factor: was NOT caught by agreement" in result.stdout


def test_options_of_single_checks_do_not_go_with_it(bitproof: Bitproof) -> None:
    """Each fault names its check."""
    command = ("check", "scale_add", "--spec", PAIR, "--faults", "--check", "memory")
    refused(bitproof(*command), "--faults judges every fault by its own check: leave --check out")
