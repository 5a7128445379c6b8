"""What the reports say of this project's own kernels, where a claim hangs on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bitproof.harness.lowering import compile, report
from bitproof.harness.lowering.findings import Reading, Refusal
from bitproof.harness.outcomes import Outcome
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import with_fault

Read = Callable[..., Reading]


@pytest.fixture
def dsrelu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """`dsrelu(name, fault)`: the reading of a dsReLU kernel's code for sm_90."""
    monkeypatch.setattr(compile, "FOLDER", tmp_path)

    def read(name: str, fault: str | None = None) -> Reading:
        found = with_fault(find(["bitproof.kernels.dsrelu.specs"], [name])[0], fault)
        return compile.read_one(found, "sm_90")

    return read


SUPPORTING = [found for found in find() if found.spec.lowering.supports]


@pytest.mark.parametrize("found", SUPPORTING, ids=lambda found: found.spec.name)
def test_a_refusal_of_sm_90_is_heard_of(found: FoundSpec) -> None:
    """A kernel that says what must compile says so of sm_90."""
    assert _refused(found, "sm_90") is Outcome.FAILED


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("cast_e4m3", Outcome.UNSUPPORTED),
        ("kv_store_fp8", Outcome.UNSUPPORTED),
        ("cast_e5m2", Outcome.FAILED),
        ("kv_store_int8", Outcome.FAILED),
        ("ue8m0_inplace", Outcome.FAILED),
    ],
)
def test_sm_80_may_refuse_e4m3_alone(name: str, outcome: Outcome) -> None:
    """There is no such type there; a kernel that stores none of it must compile."""
    assert _refused(find([], [name])[0], "sm_80") is outcome


def _refused(found: FoundSpec, target: str) -> Outcome:
    """The verdict on a compiler that refuses a kernel."""
    refusal = Refusal(sentence="no", variants=1, first="")
    reading = Reading(kernel=found.spec.name, target=target, triton="0", refusals=(refusal,))
    return report.judge(reading, found.spec).outcome


@pytest.mark.slow
def test_dsrelu_sums_atomically_in_default_mode_alone(dsrelu: Read) -> None:
    """The default mode's dprob and dbias come from atomics, the deterministic mode has none."""
    assert dsrelu("dsrelu_atomic").atomics == ("dbias", "dprob")
    assert dsrelu("dsrelu_bf16").atomics == ()


@pytest.mark.slow
def test_atomics_put_into_the_deterministic_mode_are_a_hazard(dsrelu: Read) -> None:
    """The planted fault that adds dbias atomically shows in the code, with the output it reaches."""
    hazards = dsrelu("dsrelu_bf16", "adds dbias atomically").hazards
    found = [hazard for hazard in hazards if hazard.name == "float atomics"]
    assert found
    assert {output for hazard in found for output in hazard.outputs} == {"dbias"}
    assert all("red" in h.instruction or "atom" in h.instruction for h in found)
