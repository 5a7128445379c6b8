"""A search judges a spec's corners after what it draws, and demands the refusals of its launcher."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from bitproof.harness import checks, lanes
from bitproof.harness.case import build
from bitproof.harness.errors import SpecError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify
from bitproof.harness.spec import KernelSpec, Refusal
from tests.harness import laying
from tests.harness.plain import CASE, PlainLane, RowsCase, checked, scaled, variant

DERANDOMISED = settings(derandomize=True, database=None)
WIDE = RowsCase(rows=2, columns=300)


def _refusing(answer: Callable[[Tensor], Any], **changes: Any) -> KernelSpec:
    """A spec whose launcher is given x in fp64 as well: `answer` says what it does then."""

    def run(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
        x = tensors["x"]
        return scaled({"x": x if x.dtype.itemsize == 4 else answer(x)}, params)

    refusal = Refusal(
        name="x in fp64",
        case=CASE,
        spoil=lambda inputs: inputs.replace(x=inputs.tensors["x"].double()),
    )
    return variant(run=run, refuses=(ValueError,), refusals=(refusal,), **changes)


def _raise(error: Exception) -> Any:
    raise error


def test_a_launcher_that_refuses_as_documented_passes() -> None:
    """The case itself is judged as ever."""
    spec = _refusing(lambda x: _raise(ValueError("x must be fp32")))
    assert checked("agreement", spec).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda x: x,
            "the launcher does not refuse x in fp64: it computes something, where its spec documents "
            "ValueError",
        ),
        (
            lambda x: _raise(TypeError("no fp64")),
            "the launcher does not refuse x in fp64: it raises TypeError (no fp64), where its spec "
            "documents ValueError",
        ),
    ],
    ids=["computes", "raises another error"],
)
def test_a_launcher_that_forgets_a_refusal_fails(
    answer: Callable[[Tensor], Any], message: str
) -> None:
    """On the case that the refusal is made from, and only there: a record of it replays."""
    spec = _refusing(answer)
    findings = checked("agreement", spec)
    assert findings.outcome is Outcome.FAILED
    assert [finding.summary for finding in findings.findings] == [message]
    assert checked("agreement", spec, WIDE).outcome is Outcome.PASSED


def test_a_refusal_comes_before_any_launch() -> None:
    """A launcher that looks at its inputs after a kernel has read them refuses too late."""

    def run(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
        outputs = laying.added(tensors, params, told=laying.right)
        if tensors["k"].dtype.itemsize != 4:
            raise ValueError("k must be fp32")
        return outputs

    case = laying.PlanesCase(planes=2, rows=2, columns=2)
    refusal = Refusal(
        name="k in fp64",
        case=case,
        spoil=lambda inputs: inputs.replace(k=inputs.tensors["k"].double()),
    )
    changed: Any = {"run": run, "refuses": (ValueError,), "refusals": (refusal,), "layouts": {}}
    spec = dataclasses.replace(laying.spec(), **changed)
    found = checks.run("agreement", spec, build(case, torch.device("cpu")), lanes.present())
    assert found.outcome is Outcome.FAILED
    assert "k in fp64: it launches _add before it raises ValueError" in found.findings[0].summary


def test_a_search_meets_refusals_and_corners_once_each() -> None:
    """Beside what it draws."""
    spec = _refusing(lambda x: _raise(ValueError("x must be fp32")), corners=(WIDE, CASE))
    result = falsify.search(spec, "agreement", PlainLane(), max_examples=3, base=DERANDOMISED)
    assert result.outcome is Outcome.PASSED
    assert result.examples == 3 + 2
    other = falsify.search(spec, "memory", PlainLane(), max_examples=3, base=DERANDOMISED)
    assert other.examples == 3


def test_a_search_finds_a_forgotten_refusal() -> None:
    """With the case to replay."""
    spec = _refusing(lambda x: x)
    result = falsify.search(spec, "agreement", PlainLane(), max_examples=3, base=DERANDOMISED)
    assert result.outcome is Outcome.FAILED
    assert result.case == CASE


def test_a_search_finds_what_only_a_corner_shows() -> None:
    """A launcher that leaves out columns past the 256th, where at most eight are drawn."""

    def narrow(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
        outputs = scaled(tensors, params)
        outputs["y"][:, 256:] = 0.0
        return outputs

    lane = PlainLane()
    passing = variant(run=narrow)
    result = falsify.search(passing, "agreement", lane, max_examples=50, base=DERANDOMISED)
    assert result.outcome is Outcome.PASSED
    spec = variant(run=narrow, corners=(WIDE,))
    result = falsify.search(spec, "agreement", lane, max_examples=50, base=DERANDOMISED)
    assert result.outcome is Outcome.FAILED
    assert isinstance(result.case, RowsCase)
    assert (result.case.rows, result.case.columns > 256) == (1, True)  # shrunk, and still too wide


def test_a_refusal_needs_a_name() -> None:
    """It is what the report says of the inputs."""
    with pytest.raises(SpecError, match="name must be what is wrong with the inputs"):
        Refusal(name="", case=CASE, spoil=lambda inputs: inputs)
