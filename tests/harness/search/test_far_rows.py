"""One case of a default run has rows so far apart that a 32-bit offset to the last of them wraps."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from bitproof.harness import checks, lanes
from bitproof.harness.case import build
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify
from bitproof.harness.search.far_rows import REACH, find_far_case
from bitproof.harness.spec import Fault
from bitproof.harness.subjects.discovery import find
from bitproof.harness.subjects.planting import plant
from tests.harness.plain import SPEC, variant

STRIDED = [found for found in find() if found.spec.strided]
# Where each family makes its offsets.
WIDENED = {
    "per_token_group": (
        "groups",
        "tl.program_id(0).to(tl.int64) * TILE",
        "tl.program_id(0) * TILE",
    ),
    "kv_store_int8": (
        "kv_store",
        "tl.program_id(0).to(tl.int64) * TILE",
        "tl.program_id(0) * TILE",
    ),
}


@pytest.mark.parametrize("found", STRIDED, ids=[found.spec.name for found in STRIDED])
def test_a_default_run_meets_rows_far_apart(found) -> None:
    """Beyond 2^31 elements with a stride below it, and every right kernel holds there."""
    lane = lanes.present()
    case = find_far_case(found.spec, falsify.draw_cases(found.spec, 40))
    assert case is not None
    inputs = build(case, lane.device)
    rows = {
        name: tensor.numel() // tensor.shape[-1]
        for name, tensor in inputs.tensors.items()
        if name in found.spec.strided
    }
    strides = {name: inputs.tensors[name].shape[-1] + case.launch.row_padding for name in rows}
    assert all((rows[name] - 1) * strides[name] >= REACH > strides[name] for name in rows)
    assert checks.run("agreement", found.spec, inputs, lane).outcome is Outcome.PASSED


@pytest.mark.parametrize("name", WIDENED)
def test_an_offset_of_32_bits_is_caught(name: str) -> None:
    """Without the cast that every kernel has, the last row is read from somewhere else."""
    (found,) = find([], [name])
    module, old, new = WIDENED[name]
    fault = Fault(
        name="computes offsets in 32 bits",
        within="tile_of_groups" if module == "groups" else "_store",
        old=old,
        new=new,
        caught_by="agreement",
        module=f"bitproof.kernels.quantise.{module}",
    )
    lane = lanes.present()
    result = falsify.search(plant(found, fault), "agreement", lane, max_examples=5)
    assert result.outcome.is_defect
    assert result.case is not None
    assert result.case.launch.row_padding > 2**20


def test_a_spec_without_strided_inputs_has_no_such_case() -> None:
    """Nor one whose cases have too few rows."""
    cases = falsify.draw_cases(SPEC, 40)
    assert find_far_case(SPEC, cases) is None
    strided = variant(strided=frozenset({"x"}))
    short = [case for case in cases if case.rows < 3]
    assert short
    assert find_far_case(strided, short) is None
    far = find_far_case(strided, cases)
    assert dataclasses.replace(far, launch=cases[0].launch) in cases
    assert torch.equal(
        far.tensors(torch.device("cpu"))["x"], build(far, torch.device("cpu")).tensors["x"]
    )
