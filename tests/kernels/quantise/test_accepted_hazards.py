"""What the quantisers accept of other targets' code holds for a stated reason, and the reason is checked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bitproof.harness import checks
from bitproof.harness.case import build
from bitproof.harness.commands import lowering
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.lowering import compile, report
from bitproof.harness.lowering.findings import Hazard, Reading
from bitproof.harness.lowering.holding import needs_holding, refute_grid, withdraw
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.spec import Fault, KernelSpec
from bitproof.harness.strategies.values import Values
from bitproof.harness.subjects import planting
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


def accepted_of(spec: KernelSpec) -> report.Judged:
    """The verdict on code for sm_89 that rounds twice, as Triton's up to 3.8 does."""
    hazard = Hazard(
        name="rounding twice",
        function="_round",
        source="",
        instruction="cvt.rz.f16.f32, cvt.rn.satfinite.e4m3x2.f16x2",
        detail="fp32 to e4m3: 1.0625001192092896 becomes 1.0, not 1.125",
        outputs=("y",),
        conversion="fp32 to e4m3",
        wrong=126,
    )
    reading = Reading(
        kernel=spec.name, target="sm_89", triton="3.6.0", compiled=1, hazards=(hazard,)
    )
    return report.judge(reading, spec)


def test_a_hazard_is_accepted_for_its_reason_only_where_that_holds() -> None:
    """The kernel is run before `bitproof lowering` believes that nothing is left to round."""
    (right,) = find([], ["round_e4m3"])
    verdict = accepted_of(right.spec)
    assert needs_holding(verdict)
    assert verdict.outcome is Outcome.PASSED
    assert refute_grid(right, InterpreterLane()) == ""
    wrong = dataclasses.replace(right, spec=without_grid("round_e4m3"))
    refuted = refute_grid(wrong, InterpreterLane())
    assert "fp32 to e4m3 rounds" in refuted
    withdrawn = withdraw(verdict, refuted)
    assert (withdrawn.outcome, withdrawn.accepted) == (Outcome.FAILED, ())
    assert "accepted in vain: " in "\n".join(report.lines(withdrawn))


def test_the_command_withdraws_what_a_run_refutes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its exit status says so: the hazard that the spec accepts is a failure."""
    monkeypatch.chdir(tmp_path)
    (right,) = find([], ["round_e4m3"])
    wrong = dataclasses.replace(right, spec=without_grid("round_e4m3"))
    made = accepted_of(wrong.spec).reading
    monkeypatch.setattr(compile, "readings", lambda wanted, tell: [made])
    for kernel, status in ((right, 0), (wrong, 1)):
        monkeypatch.setattr(planting, "with_fault", lambda found, fault, kernel=kernel: kernel)
        asked = {"targets": "sm_89", "fault": None, "specs": (), "as_json": False}
        assert lowering.run(("round_e4m3",), **asked) == status
    told = capsys.readouterr().out
    assert "1 accepted" in told
    assert "1 hazard\n" in told
