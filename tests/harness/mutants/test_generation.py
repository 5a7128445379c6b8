"""Generation: all that a launcher reaches, each fault once, and samples that a seed decides."""

from __future__ import annotations

import pytest

from bitproof.harness import lanes
from bitproof.harness.mutants import generation
from bitproof.harness.mutants.generation import Subject
from bitproof.harness.subjects.discovery import find
from tests.harness.conftest import Write


@pytest.fixture(scope="module")
def subjects() -> list[Subject]:
    """Two kernels of one family with all their mutants."""
    lanes.choose("interpreter")
    return [generation.generate(found) for found in find(kernels=["e2m1_group", "round_e4m3"])]


def test_the_functions_and_constants_of_all_its_modules_are_reached(
    subjects: list[Subject],
) -> None:
    """But none of a module that only the family shares."""
    reached = {(one.module.rpartition(".")[2], one.within) for one in subjects[0].mutants}
    assert {
        ("e2m1", "_encode"),
        ("e2m1", "FLOOR"),
        ("groups", "tile_of_groups"),
        ("power_of_two_scales", "covering_exponent"),
    } <= reached
    assert ("ue8m0", "_quantise") not in reached


def test_each_fault_comes_once_with_the_file_and_line_that_its_diff_shows(
    subjects: list[Subject],
) -> None:
    """No two mutants leave the same text."""
    mutants = subjects[0].mutants
    assert len({one.after for one in mutants}) == len(mutants) > 100
    one = mutants[0]
    assert one.file.startswith("bitproof/kernels/quantise/")
    assert one.diff.startswith(f"--- a/{one.file}\n+++ b/{one.file}\n@@ -{one.line - 1},")
    before, after = (text.splitlines() for text in (one.source.text, one.after))
    assert before[: one.line - 1] == after[: one.line - 1]
    assert before[one.line - 1] != after[one.line - 1]


def test_a_sample_is_decided_by_its_seed_and_takes_operators_and_kernels_in_turn(
    subjects: list[Subject],
) -> None:
    """The same seed, the same sample."""
    chosen = generation.sample(subjects, 40, 7)
    assert generation.sample(subjects, 40, 7) == chosen
    assert generation.sample(subjects, 40, 8) != chosen
    mutants = [one for group in chosen.values() for one in group]
    assert len(mutants) == len({one.name for one in mutants}) == 40
    assert len({one.operator for one in mutants}) > 25
    assert all(chosen.values())


def test_a_kernel_without_a_source_is_told(write: Write) -> None:
    """Here one that is made inside a function."""
    path = write("made.py", MADE)
    lanes.choose("interpreter")
    (found,) = find([str(path)])
    subject = generation.generate(found)
    assert subject.mutants == ()
    assert "is made inside a function" in subject.missing[0]


MADE = """
import triton
import triton.language as tl
from bitproof import Bitwise, Fault, Inputs, KernelSpec, exact_bits
from tests.harness.plain import RowsCase, rows_cases


def make():
    @triton.jit
    def copy(x_ptr, y_ptr):
        tl.store(y_ptr, tl.load(x_ptr))

    return copy


KERNEL = make()


def run(tensors, params):
    y = tensors["x"].clone()
    KERNEL[(1,)](tensors["x"], y)
    return {"y": y}


SPEC = KernelSpec(
    name="made",
    run=run,
    case=RowsCase,
    cases=rows_cases,
    oracle=lambda tensors, params: {"y": tensors["x"]},
    bounds={"y": exact_bits()},
    faults=(Fault(name="f", within="run", old="clone", new="zero_", caught_by="reproducibility"),),
    reproducible=Bitwise(shown_by="f"),
)
"""
