"""How a product is summed is taken from the compiler where it decides bits, so that a spec may claim them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness import checks
from bitproof.harness.case import build
from bitproof.harness.compiling import compiler
from bitproof.harness.invariances import widened
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


@triton.jit
def widen_and_multiply(a, b, c, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    """c = a @ b^T of operands converted to fp16."""
    m, n, k = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    x = tl.load(a + m[:, None] * DEPTH + k[None, :]).to(tl.float16)
    y = tl.load(b + n[None, :] * DEPTH + k[:, None]).to(tl.float16)
    tl.store(c + m[:, None] * COLUMNS + n[None, :], tl.dot(x, y))


def _widen(tensors: Mapping[str, Tensor], _params: Mapping[str, Any]) -> dict[str, Tensor]:
    a, b = tensors["a"], tensors["b"]
    c = torch.empty(len(a), len(b))
    widen_and_multiply[(1,)](a, b, c, len(a), len(b), a.shape[1], num_warps=4)
    return {"c": c}


@pytest.mark.parametrize(("rows", "holds"), [(64, True), (16, False)])
def test_widening_outside_shows_in_the_order_of_k(rows: int, holds: bool) -> None:
    """A tile of 64 rows takes k in order; mma.sync takes fp8 loads, widened, in another order than fp16's."""
    relation = widened(["a", "b"], ["c"], torch.float16)
    spec = dataclasses.replace(gemm.SPEC, run=_widen, invariances=(relation,))
    inputs = build(GemmCase(rows=rows), CPU)
    # Products of many magnitudes: sums of a few equal ones would be exact in any order.
    values = {name: x.float() ** 5 * 256 for name, x in inputs.tensors.items()}
    inputs = inputs.replace(**{name: x.to(torch.float8_e4m3fn) for name, x in values.items()})
    result = checks.run("invariances", spec, inputs, InterpreterLane())
    assert result.outcome is (Outcome.PASSED if holds else Outcome.FAILED)


def _call(case: GemmCase) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    return case.tensors(CPU), {**case.params(), "launch": case.launch}
