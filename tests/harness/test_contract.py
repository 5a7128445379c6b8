"""A spec takes from its contract what it leaves out, and may leave out what a first run does not need."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor as Array

from bitproof.harness import checks
from bitproof.harness.bounds import exact_bits
from bitproof.harness.contract import Contract
from bitproof.harness.errors import SpecError
from bitproof.harness.inputs import DeclaredCase, Real, Tensor
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify
from bitproof.harness.spec import CHECKS, Bitwise, Invariance, KernelSpec, Varies, find_mistakes
from tests.harness.plain import CASE, SPEC, PlainLane, RowsCase, rows_cases, scaled, variant


def _doubled(tensors: Mapping[str, Array], params: Mapping[str, Any]) -> dict[str, Any]:
    return {"y": tensors["x"] * 2}


def _tripled(tensors: Mapping[str, Array], params: Mapping[str, Any]) -> dict[str, Any]:
    return {"y": tensors["x"] * 3}


SAME = Invariance(name="same", transform=lambda inputs: inputs, relate=lambda outputs, inputs: {})
DOUBLE = Contract(
    name="double",
    inputs={"x": Tensor("rows", "n", layouts=("padded rows",), inplace=True)},
    params={"factor": Real(1.0, 2.0)},
    oracle=_doubled,
    outputs={"y": exact_bits()},
    invariances=(SAME,),
)


def test_a_spec_takes_from_its_contract_what_it_leaves_out() -> None:
    """The case with its strategy, the bound, what is strided and written in place, and even the name."""
    spec = KernelSpec(contract=DOUBLE, run=_doubled)
    assert find_mistakes(spec, CHECKS) == ()
    assert spec.name == "double"
    assert issubclass(spec.case, DeclaredCase)
    assert spec.bounds == {"y": exact_bits()}
    assert spec.invariances == (SAME,)
    assert spec.strided == spec.inplace == {"x"}
    assert spec.layouts == {"x": ("padded rows",)}
    assert spec.refusals == ()


def test_a_contract_says_how_its_inputs_may_lie_together_and_how_large_they_may_be() -> None:
    """Storages that are shared and 32-bit offsets concern whoever computes it."""
    inputs = {"x": Tensor("rows", "n"), "y": Tensor("rows", "n")}
    contract = dataclasses.replace(
        DOUBLE,
        inputs=inputs,
        shared={("x", "y"): ("side by side", "one tensor")},
        vast=frozenset({"x"}),
    )
    spec = KernelSpec(contract=contract, run=_doubled)
    assert find_mistakes(spec, CHECKS) == ()
    assert spec.shared == {("x", "y"): ("side by side", "one tensor")}
    assert spec.vast == {"x"}
    assert KernelSpec(contract=DOUBLE, run=_doubled).shared == {}
    assert KernelSpec(contract=contract, run=_doubled, vast=frozenset()).vast == frozenset()


def test_what_a_spec_says_goes_before_its_contract() -> None:
    """Also where it says that there is nothing, and in a copy."""
    spec = KernelSpec(contract=DOUBLE, run=_doubled, name="mine", invariances=())
    assert (spec.name, spec.invariances) == ("mine", ())
    copy = dataclasses.replace(spec, run=_tripled)
    assert (copy.name, copy.invariances, copy.case) == ("mine", (), spec.case)
    assert dataclasses.replace(KernelSpec(contract=DOUBLE, run=scaled), corners=()).corners == ()


def test_subjects_of_one_contract_are_judged_by_it() -> None:
    """On the same cases: a right one passes, a wrong one fails."""
    subjects = [
        KernelSpec(contract=DOUBLE, run=run, name=name)
        for name, run in (("right", _doubled), ("wrong", _tripled))
    ]
    assert subjects[0].case is subjects[1].case
    right, wrong = (
        falsify.search(spec, "agreement", PlainLane(), max_examples=20) for spec in subjects
    )
    assert right.outcome is Outcome.NOT_DEMONSTRATED
    assert right.holds
    assert wrong.outcome is Outcome.FAILED
    assert not wrong.holds
    assert wrong.case is not None
    assert wrong.case.rows == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": {}}, "inputs is empty: declare each tensor"),
        ({"case": RowsCase}, "cases is missing: a case written by hand is both"),
        ({"cases": rows_cases}, "case is missing"),
        ({"case": RowsCase, "cases": rows_cases}, "inputs and case say the same thing twice"),
    ],
)
def test_a_contract_that_contradicts_itself_is_the_one_mistake(
    changes: dict[str, Any], message: str
) -> None:
    """Nothing that would follow from it is told beside it."""
    contract = dataclasses.replace(DOUBLE, **changes)
    (mistake,) = find_mistakes(KernelSpec(contract=contract, run=scaled), CHECKS)
    assert message in mistake
    with pytest.raises(SpecError, match=message):
        contract.simplest()


def test_a_contract_may_have_a_case_written_by_hand() -> None:
    """Then a spec is what it is without a contract."""
    contract = Contract(
        name="rows",
        case=RowsCase,
        cases=rows_cases,
        oracle=SPEC.oracle,
        outputs=SPEC.bounds,
    )
    spec = KernelSpec(contract=contract, run=SPEC.run, faults=SPEC.faults)
    assert find_mistakes(spec, CHECKS) == ()
    assert contract.simplest() == RowsCase()
    result = falsify.search(spec, "agreement", PlainLane(), max_examples=5)
    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize("check", ["agreement", "memory", "reproducibility"])
def test_without_planted_faults_nothing_is_demonstrated(check: str) -> None:
    """The result says what is missing, and is no failure."""
    spec = variant(faults=(), reproducible=Bitwise())
    result = falsify.search(spec, check, PlainLane(), max_examples=3)
    assert result.outcome is Outcome.NOT_DEMONSTRATED
    assert result.holds
    assert "nothing shows that it can fail" in result.undemonstrated


@pytest.mark.parametrize("claim", [Bitwise(control=scaled), Bitwise()])
def test_a_control_or_a_fault_demonstrates_the_bitwise_claim(claim: Bitwise) -> None:
    """Whether the claim names it or not."""
    faults = SPEC.faults if claim.control is None else ()
    assert checks.unproven("reproducibility", variant(faults=faults, reproducible=claim)) == ""


def test_a_kernel_whose_bits_vary_makes_no_claim() -> None:
    """Nothing is judged of it; the other checks are."""
    varying = variant(reproducible=Varies(because="sums by atomics"))
    assert find_mistakes(varying, CHECKS) == ()
    assert "reproducibility" not in checks.names(varying)
    assert "reproducibility" in checks.names(SPEC)
    assert checks.run("agreement", varying, _inputs(), PlainLane()).outcome is Outcome.PASSED


def _inputs() -> Any:
    from bitproof.harness.case import build

    return build(CASE, torch.device("cpu"))
