"""Right candidates pass every trial; wrong ones are rejected by the trial that is for them."""

from __future__ import annotations

import pytest

from bitproof.harness.acceptance.verdict import Verdict
from bitproof.harness.outcomes import Outcome
from tests.harness.acceptance.accepting import bench_of, tried

NORMALISE = ("normalise_candidates.py", "normalise_reference.py")


def test_a_right_candidate_is_accepted() -> None:
    """All trials hold, and what they say names numbers."""
    with bench_of(*NORMALISE) as bench:
        evidence = tried(bench, seconds=1.0)
    told = {one.trial: one.sentence for one in evidence}
    verdict = Verdict(evidence=tuple(evidence), receipt={})
    assert verdict.word == "accepted", told
    assert verdict.status == 0
    assert told["launches"].startswith("starts _normalise 1")
    assert "passed" in told["agreement"]
    assert "x times 2^-12 to 2^12" in told["scalings"]


@pytest.mark.parametrize(
    ("candidate", "trial", "said"),
    [
        ("Fallback", "launches", "no Triton kernel is started; torch computes: add 1, mean 1"),
        ("Idle", "launches", "they do not matter"),
        ("Cached", "stale answers", "wrong on new values in the same storage"),
        ("Lazy", "stale answers", "wrong on new values after twenty calls"),
        ("Zeros", "agreement", "expected"),
        ("OneShape", "agreement", "output"),
        ("Half", "agreement", "output"),
        ("ByMagnitude", "scalings", "x times 2^"),
        ("Unwritten", "memory", ""),
        ("Dense", "layouts", "x "),
    ],
)
def test_a_wrong_candidate_is_rejected(candidate: str, trial: str, said: str) -> None:
    """By the trial that looks for its fault."""
    with bench_of(f"{NORMALISE[0]}:{candidate}", NORMALISE[1]) as bench:
        (evidence,) = tried(bench, trial)
    assert evidence.outcome is Outcome.FAILED, evidence
    assert said in evidence.sentence


@pytest.mark.slow
@pytest.mark.parametrize("file", ["solve", "experts"])
def test_a_right_function_agrees(file: str) -> None:
    """A triangular system, and rows by expert, held against references in the same form."""
    with bench_of(f"{file}.py:right", f"{file}.py:reference") as bench:
        evidence = tried(bench, "launches", "agreement", seconds=0.2)
    assert [one.outcome for one in evidence] == [Outcome.PASSED] * 2, evidence


@pytest.mark.parametrize(
    "candidate", ["solve.py:first_order", "solve.py:cut", "experts.py:half", "experts.py:swapped"]
)
def test_a_wrong_function_is_rejected(candidate: str) -> None:
    """An inverse of first order or cut off, accumulation in bf16, an expert's rows for another's."""
    with bench_of(candidate, f"{candidate.partition(':')[0]}:reference") as bench:
        (evidence,) = tried(bench, "agreement", seconds=0.2)
    assert evidence.outcome is Outcome.FAILED, evidence
