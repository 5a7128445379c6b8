"""What the quantisers accept of other targets' code holds for a stated reason, and the reason is checked."""

from __future__ import annotations

import dataclasses

from bitproof.harness import checks
from bitproof.harness.case import build
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.spec import Fault, KernelSpec
from bitproof.harness.strategies.values import Values
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import with_fault
from bitproof.kernels.quantise.cases import CastCase

NO_GRID = Fault(
    name="leaves the rounding to the target",
    module="bitproof.kernels.quantise.e4m3_rounding",
    within="to_e4m3",
    old="round_e4m3(saturate(x, LARGEST))",
    new="saturate(x, LARGEST)",
    caught_by="memory",
)
# Just above halfway between two values of e4m3.
CASE = CastCase(values=Values(kind="explicit", bits=("0x3f880001",)))


def without_grid(kernel: str) -> KernelSpec:
    """The kernel, its rounding on the grid taken out."""
    (found,) = find([], [kernel])
    faulty = dataclasses.replace(found.spec, faults=(*found.spec.faults, NO_GRID))
    planted: FoundSpec = with_fault(dataclasses.replace(found, spec=faulty), NO_GRID.name)
    return planted.spec


def judged(spec: KernelSpec, check: str) -> CheckResult:
    """What a check says of the case on the interpreter lane."""
    lane = InterpreterLane()
    return checks.run(check, spec, build(CASE, lane.device), lane)


def test_a_value_that_is_rounded_breaks_the_reason_for_which_a_hazard_is_accepted() -> None:
    """The interpreter's own conversion rounds right, so that agreement holds; memory names value and line."""
    (right,) = find([], ["round_e4m3"])
    assert judged(right.spec, "memory").outcome is Outcome.PASSED
    wrong = without_grid("round_e4m3")
    assert judged(wrong, "agreement").outcome is Outcome.PASSED
    findings = judged(wrong, "memory")
    assert findings.outcome is Outcome.FAILED
    assert "fp32 to e4m3 rounds 1.0625001192092896: the spec accepts a hazard" in findings.text
    assert "return saturate(x, LARGEST).to(tl.float8e4nv)" in findings.text


def test_a_kernel_that_claims_no_grid_may_round() -> None:
    """Triton's own conversion is accepted for another reason, and rounds what it likes."""
    (bare,) = find([], ["cast_e4m3"])
    assert judged(bare.spec, "memory").outcome is Outcome.PASSED
