"""What the reports say of this project's own kernels, where a claim hangs on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.discovery import find
from harness.lowering import compile
from harness.lowering.findings import Reading

Read = Callable[..., Reading]


@pytest.fixture
def dsrelu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """`dsrelu(name, fault)`: the reading of a dsReLU kernel's code for sm_90."""
    monkeypatch.setattr(compile, "FOLDER", tmp_path)

    def read(name: str, fault: str | None = None) -> Reading:
        return compile.reading(find(["kernels.dsrelu"], [name])[0], "sm_90", fault=fault)

    return read


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
