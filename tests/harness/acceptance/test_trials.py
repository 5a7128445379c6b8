"""Right candidates pass every trial; wrong ones are rejected by the trial that is for them."""

from __future__ import annotations

import pytest

from bitproof.harness.acceptance.trials import find_cliffs
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


ODD = "odd_candidates.py"


@pytest.mark.parametrize(
    ("candidate", "trial", "said"),
    [
        ("Nothing", "launches", "its output is NoneType, not a tensor"),
        ("ByPointer", "stale answers", "wrong on new values in the same storage"),
        ("OneBuffer", "stale answers", "output of the first call was changed by later ones"),
        ("Empty", "agreement", "output has shape (1, 40), expected (0, 40)"),
        ("Sixteen", "agreement", "output["),
        ("Overflows", "agreement", "output"),
        ("Timed", "agreement", "output"),
        ("Sometimes", "agreement", "output"),
        ("Double", "agreement", "output has dtype float64, expected float32"),
        ("Overwrites", "memory", "input x was written"),
        ("Atomics", "reproducibility", "run"),
    ],
)
def test_an_odd_wrong_candidate_is_rejected(candidate: str, trial: str, said: str) -> None:
    """By the trial that looks for its fault."""
    with bench_of(f"{ODD}:{candidate}", NORMALISE[1]) as bench:
        (evidence,) = tried(bench, trial, seconds=1.5)
    assert evidence.outcome.is_defect, evidence
    assert said in evidence.sentence


def test_a_cliff_is_a_jump_between_errors() -> None:
    """Told with its place, in either direction; an input that has underflowed is none."""
    assert find_cliffs({"-2": 0.0, "0": 0.9, "2": 0.8, "4": 0.05}) == [
        "between 2^2 and 2^4, from 0.05 to 0.8"
    ]
    assert find_cliffs({"0": 0.01, "2": 0.3}) == ["between 2^0 and 2^2, from 0.01 to 0.3"]
    assert find_cliffs({"0": 0.001, "2": 0.05}) == []


def test_a_candidate_that_tires_is_rejected_in_the_end() -> None:
    """All calls are of one object, so that what is wrong after a few dozen is met by some trial."""
    with bench_of(f"{ODD}:Tired", NORMALISE[1]) as bench:
        evidence = tried(bench, seconds=1.5)
    assert evidence[-1].outcome is Outcome.FAILED, evidence


@pytest.mark.parametrize("candidate", ["Autotuned", "Twice", "OnACopy", "Disguised"])
def test_an_odd_right_candidate_is_accepted(candidate: str) -> None:
    """Tuned; in two launches; in place on memory of its own; with a class of tensors of its own."""
    with bench_of(f"{ODD}:{candidate}", NORMALISE[1]) as bench:
        evidence = tried(bench, seconds=0.5)
    verdict = Verdict(evidence=tuple(evidence), receipt={})
    assert verdict.word == "accepted", evidence


@pytest.mark.slow
@pytest.mark.parametrize("file", ["kda", "experts", "fp8_gemm"])
def test_a_right_model_is_accepted(file: str) -> None:
    """Linear attention by chunks, rows by expert, a block-scaled product, of which two refuse widths."""
    with bench_of(f"{file}.py", f"{file}.py") as bench:
        evidence = tried(bench, seconds=2.0)
    verdict = Verdict(evidence=tuple(evidence), receipt={})
    assert verdict.word == "accepted", evidence


@pytest.mark.parametrize(
    "candidate",
    [
        pytest.param("kda.py:FirstOrder", marks=pytest.mark.slow),
        pytest.param("kda.py:BySize", marks=pytest.mark.slow),
        *("kda.py:Cut", "experts.py:Swapped"),
        *("experts.py:HalfSums", "fp8_gemm.py:HalfSums", "fp8_gemm.py:Crossed"),
    ],
)
def test_a_wrong_model_is_rejected(candidate: str) -> None:
    """By its answers: an inverse cut off, bf16 from a magnitude on or in sums, rows or scales swapped."""
    with bench_of(candidate, candidate.partition(":")[0]) as bench:
        (evidence,) = tried(bench, "agreement", seconds=0.2)
    assert evidence.outcome is Outcome.FAILED, evidence


def test_lengths_that_a_candidate_refuses_stay_as_listed() -> None:
    """So that it is judged where it answers; one that refuses all but the listed shape shows nothing."""
    with bench_of("fp8_gemm.py", "fp8_gemm.py") as bench:
        fixed = bench.problem.around.fixed
        lengths = {bench.problem.around.sizes[name] for name in fixed}
        assert "the candidate refuses others" in fixed.values()
    assert {16, 256} <= lengths
    assert 9 not in lengths
    with bench_of(f"{ODD}:OnlyListed", NORMALISE[1]) as bench:
        evidence = tried(bench, "launches", "agreement", seconds=0.5)
    assert Verdict(evidence=tuple(evidence), receipt={}).word == "not demonstrated"


def test_a_reference_that_overwrites_its_input_lets_candidates_do_so() -> None:
    """Its input is written by both, and every trial of the candidate holds."""
    with bench_of("in_place.py", "in_place.py") as bench:
        assert bench.problem.inplace == {"x"}
        evidence = tried(bench, seconds=0.5)
    verdict = Verdict(evidence=tuple(evidence), receipt={})
    assert verdict.word == "accepted", evidence
