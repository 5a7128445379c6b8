"""How a product is summed is taken from the compiler where it decides bits, so that a spec may claim them."""

from __future__ import annotations

import sys

import pytest
import torch

from bitproof.harness import checks
from bitproof.harness.case import build
from bitproof.harness.compiling import compiler
from bitproof.harness.lanes.base import Variation
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import Outcome
from bitproof.harness.spec import Fault
from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.harness.subjects.planting import plant
from tests.harness import gemm
from tests.harness.gemm import GemmCase

CPU = torch.device("cpu")
CASES = {
    "wgmma": GemmCase(promoted=False),
    "wgmma, promoted": GemmCase(),
    "mma": GemmCase(rows=16, depth=256),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_exact_bits_of_a_product_hold(case: GemmCase) -> None:
    """A tile of 64 rows, promoted or not, and one of 16: three ways to sum the same matrices."""
    result = checks.run("agreement", gemm.SPEC, build(case, CPU), InterpreterLane())
    assert result.outcome is Outcome.PASSED, result
    assert result.counts["a product's instruction assumed"] == 0


@pytest.mark.parametrize("fault", gemm.SPEC.faults, ids=lambda fault: fault.name)
def test_what_only_bits_can_see_is_caught(fault: Fault) -> None:
    """Errors of a few units in the last place of 14 bits, or of 24, in one of the cases at least.

    Promoted sums of 14 bits are mostly exact in fp32, so that their order shows where nothing is promoted.
    """
    found = FoundSpec(
        spec=gemm.SPEC, reference="tests.harness.gemm:SPEC", module=sys.modules[gemm.__name__]
    )
    spoilt, lane = plant(found, fault), InterpreterLane()
    results = (
        checks.run(fault.caught_by, spoilt, build(case, CPU), lane) for case in CASES.values()
    )
    assert any(result.outcome is Outcome.FAILED for result in results)


def test_the_instruction_is_read_only_where_exact_bits_are_claimed() -> None:
    """Other specs cost no compilation; what is assumed says so."""
    lane = InterpreterLane()
    ran = lane.run(gemm.SPEC, build(GemmCase(), CPU), Variation())
    assert set(ran.products.values()) == {"read"}
    told = lane.launch(gemm.SPEC, *_call(GemmCase()))
    assert torch.equal(told["c"].view(torch.int32), ran.outputs["c"].view(torch.int32))


def test_what_the_compiler_does_not_tell_is_assumed_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A compiler that gives no answer in time leaves the usual choice, with the reason in a finding."""
    monkeypatch.setattr(compiler, "ask", lambda *_: None)
    monkeypatch.setattr(compiler, "FOLDER", compiler.FOLDER / "none")
    case = GemmCase(depth=64, seed=5)
    monkeypatch.setattr("bitproof.harness.compiling.products._answers", {})
    ran = InterpreterLane().run(gemm.SPEC, build(case, CPU), Variation())
    (known,) = set(ran.products.values())
    assert known == "assumed: the compiler gave no answer in 60 s"


def test_another_target_gives_other_bits_and_its_lane_says_so() -> None:
    """sm_89 sums e4m3 sixteen at a time, and no card has confirmed that here."""
    inputs = build(GemmCase(promoted=False), CPU)
    here, there = (
        InterpreterLane(name=name).run(gemm.SPEC, inputs, Variation()).outputs["c"]
        for name in ("interpreter", "interpreter:sm_89")
    )
    assert not torch.equal(here, there)
    assert (here - there).abs().max() < 2.0**-6 * here.abs().max()
    told = InterpreterLane(name="interpreter:sm_89").versions()
    assert told["lane"] == "interpreter:sm_89"
    assert "not confirmed by a card" in told["products"]
    assert "products" not in InterpreterLane().versions()


def _call(case: GemmCase) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    return case.tensors(CPU), {**case.params(), "launch": case.launch}
