"""What a property run says of mistaken specs, and of claims that nothing demonstrated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from bitproof.harness.errors import SpecError
from bitproof.harness.lowering import compile
from bitproof.harness.lowering.findings import Reading
from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.plugin import PROPERTIES
from tests.door.running import RIGHT, Run, read_summary

STEADY_CONTROL = """
from bitproof.harness.spec import Bitwise
from tests.harness.plain import scaled, variant

SPEC = variant(name="steady", reproducible=Bitwise(control=scaled))
"""


def test_a_specs_own_mistake_is_one_sentence(run: Run) -> None:
    """A test fails over it without a traceback; there is no record, since nothing was judged."""
    result = run(RIGHT + "SPEC = variant(name='odd', oracle=lambda tensors, params: {})\n")
    assert result.ret == 1
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(
        ["odd: agreement cannot be judged: spec 'odd': its oracle does not answer output 'y'"]
    )
    assert not re.search("Traceback|exception", result.stdout.str())
    assert not Path(".bitproof/failures").exists()


MISTAKEN = RIGHT + "SPEC_2 = variant(name='bad', bounds={}, strided='x')\n"
ALL_OF_BAD = [
    "spec 'bad' (their_specs.py) has 2 mistakes:",
    "  bounds must be a dict with a bound for each output, got {} (dict)",
    "  strided must be a frozenset of names of tensors, got 'x': write frozenset({'x'})",
]


def test_a_spec_with_mistakes_fails_once_and_blocks_no_other(run: Run) -> None:
    """The others are judged, the bad one is one failing test of a paragraph, and the status is 1."""
    result = run(MISTAKEN)
    assert result.ret == 1
    result.assert_outcomes(passed=3, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*_ spec[[]bad[]] _*", *ALL_OF_BAD], consecutive=True)
    assert {entry["kernel"] for entry in read_summary()["entries"]} == {"right"}
    collected = run(MISTAKEN, "--collect-only", "-q").stdout.lines
    assert [line for line in collected if "bad" in line] == ["spec[bad]"]


def test_a_spec_with_mistakes_is_told_only_where_it_is_asked_for(run: Run) -> None:
    """Neither beside another kernel's name nor beside another's tests."""
    assert run(MISTAKEN, "--kernel", "right").ret == 0
    assert run(MISTAKEN, "-k", "right").ret == 0


def test_a_run_without_a_sound_spec_does_not_begin(run: Run) -> None:
    """Exit 4, with every mistake, where the only spec or the only one that is named has some."""
    result = run(MISTAKEN, "--kernel", "bad")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    first, *rest = ALL_OF_BAD
    result.stderr.fnmatch_lines([f"ERROR: {first}", *rest], consecutive=True)


def test_a_library_that_flushes_subnormals_is_named(run: Run) -> None:
    """Instead of verdicts that nobody could trust."""
    try:
        result = run(RIGHT + "import torch\ntorch.set_flush_denormal(True)\n")
    finally:
        torch.set_flush_denormal(False)
    assert result.ret == 1
    result.assert_outcomes(failed=3, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "right: agreement cannot be judged: subnormal numbers are flushed *set_flush_denormal(False)*"
        ]
    )


@pytest.mark.parametrize(("profile", "ret"), [("bitproof", 0), ("bitproof-nightly", 1)])
def test_an_undemonstrated_claim_fails_the_nightly_run(run: Run, profile: str, ret: int) -> None:
    """Everywhere else it is a skip that says so."""
    result = run(STEADY_CONTROL, "--hypothesis-profile", profile)
    assert result.ret == ret
    sentence = "steady: reproducibility not demonstrated: its control never varied"
    result.stdout.fnmatch_lines([f"*{sentence}"])
    entries = {entry["check"]: entry for entry in read_summary()["entries"]}
    assert entries["reproducibility"]["outcome"] == "not demonstrated"


LOWERING = (str(PROPERTIES / "test_lowering.py"), "-k", "test_lowering and sm_80")


@pytest.mark.parametrize(("profile", "ret"), [("bitproof", 0), ("bitproof-nightly", 1)])
def test_code_that_nothing_was_read_of_fails_the_nightly_run(
    run: Run, environment: pytest.MonkeyPatch, profile: str, ret: int
) -> None:
    """As any other claim that was not demonstrated does; everywhere else it is a skip that says so."""
    environment.setattr(compile, "read_one", _nothing_compiled)
    result = run(RIGHT, *LOWERING, "--hypothesis-profile", profile)
    assert result.ret == ret
    result.stdout.fnmatch_lines(["*right for sm_80, triton 0.0: nothing compiled"])
    (entry,) = read_summary()["entries"]
    assert (entry["check"], entry["outcome"]) == ("lowering for sm_80", "not demonstrated")


def _nothing_compiled(found: FoundSpec, target: str) -> Reading:
    return Reading(kernel=found.spec.name, target=target, triton="0.0")


def test_a_specs_mistake_is_one_sentence_where_other_targets_code_is_read(
    run: Run, environment: pytest.MonkeyPatch
) -> None:
    """As in every other property: no traceback."""

    def mistaken(found: FoundSpec, target: str) -> Reading:
        raise SpecError(f"spec {found.spec.name!r}: its cases cannot be drawn")

    environment.setattr(compile, "read_one", mistaken)
    result = run(RIGHT, *LOWERING)
    assert result.ret == 1
    sentence = "spec 'right': its cases cannot be drawn"
    result.stdout.fnmatch_lines([f"right: lowering for sm_80 cannot be judged: {sentence}"])
    assert not re.search("Traceback|exception", result.stdout.str())
