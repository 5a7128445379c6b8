"""The cases of every built-in kernel: plain values, whose tensors are a function of them alone."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bitproof.harness import case as cases
from bitproof.harness.bits import bits
from bitproof.harness.case import Case
from bitproof.harness.subjects.discovery import FoundSpec, find
from tests.harness.strategies.drawing import STEADY

FOUND = find()
CPU = torch.device("cpu")


def _bits(case: Case) -> dict[str, tuple[torch.dtype, list[int]]]:
    return {
        name: (tensor.dtype, bits(tensor).reshape(-1).tolist())
        for name, tensor in case.tensors(CPU).items()
    }


@pytest.mark.parametrize("found", FOUND, ids=[found.spec.name for found in FOUND])
@settings(max_examples=20)
@given(data=st.data())
def test_cases_are_plain_values_and_their_tensors_follow(
    found: FoundSpec, data: st.DataObject
) -> None:
    """A drawn case survives JSON, and neither torch's generator nor its settings have a say in its bits."""
    case = data.draw(found.spec.cases())
    read = cases.decode(found.spec.case, json.loads(json.dumps(cases.encode(case))))
    assert read == case
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = _bits(case)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    torch.set_default_dtype(torch.float64)
    try:
        assert _bits(read) == first
    finally:
        torch.set_default_dtype(torch.float32)
    assert set(case.params()) == set(read.params())
    assert all(isinstance(feature, str) for feature in case.features())


@pytest.mark.parametrize("found", FOUND, ids=[found.spec.name for found in FOUND])
def test_strided_and_written_inputs_are_inputs(found: FoundSpec) -> None:
    """A spec that names a tensor which no case has would guard nothing."""
    named = found.spec.strided | found.spec.inplace
    seen: set[str] = set()

    @settings(STEADY, max_examples=20)
    @given(found.spec.cases())
    def look(case: Case) -> None:
        seen.update(case.tensors(CPU))

    look()
    assert named <= seen
