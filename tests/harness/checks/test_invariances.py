"""Invariances: those that apply are counted, a violated one is named, one may need a run that carries on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bitproof.harness import checks
from bitproof.harness import invariances as relations
from bitproof.harness.case import Inputs
from bitproof.harness.errors import SpecError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.spec import Invariance, KernelSpec, Params, Tensors
from tests.harness.erring import after, alone, kernel, negated
from tests.harness.plain import RowsCase, checked, variant

CASE = RowsCase(rows=2, columns=3, seed=1)


def _sums(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """Each row added to those above it."""
    return {"y": tensors["x"].cumsum(0)}


def _continued() -> Invariance:
    """The first row alone, then the others from its sum on, are all rows at once."""

    def carry(found: Tensors, inputs: Inputs) -> Inputs:
        rest = inputs.tensors["x"][1:].clone()
        rest[0] += found["y"][-1]
        return inputs.replace(x=rest)

    return Invariance(
        name="in two runs",
        transform=lambda inputs: inputs.replace(x=inputs.tensors["x"][:1]),
        carry=carry,
        relate=lambda found, inputs: {"y": found["y"][1:]},
    )


def _doubled() -> Invariance:
    """Of twice the input and of minus twice the input."""
    return Invariance(
        name="from twice the input",
        start=lambda inputs: inputs.replace(x=2 * inputs.tensors["x"]),
        transform=lambda inputs: inputs.replace(x=-inputs.tensors["x"]),
        relate=lambda found, inputs: {"y": -found["y"]},
    )


def _spec(run: Callable[[Tensors, Params], Any], *invariances: Invariance) -> KernelSpec:
    return variant(run=run, invariances=invariances)


def test_a_run_can_carry_on_from_another() -> None:
    """What is related is the last run; one that forgets where it was to begin is found."""
    assert checked("invariances", _spec(_sums, _continued()), CASE).outcome is Outcome.PASSED

    def forgetful(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        x = tensors["x"].clone()
        x[0] = 1.0
        return {"y": x.cumsum(0)}

    findings = checked("invariances", _spec(forgetful, _continued()), CASE)
    assert findings.outcome is Outcome.FAILED
    assert "in two runs gives other bits" in findings.text


def test_a_relation_can_start_from_other_inputs_than_the_case_s() -> None:
    """Both runs and what is related are of those: a kernel that is wrong from 1 on is seen only there."""
    assert checked("invariances", _spec(_sums, _doubled()), CASE).outcome is Outcome.PASSED
    largest = float(CASE.tensors(torch.device("cpu"))["x"].abs().max())
    assert largest < 1 < 2 * largest

    def biased(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        return {"y": torch.where(tensors["x"] > 1, 0.0, tensors["x"])}

    own = dataclasses.replace(_doubled(), start=None)
    assert checked("invariances", _spec(biased, own), CASE).outcome is Outcome.PASSED
    findings = checked("invariances", _spec(biased, _doubled()), CASE)
    assert findings.outcome is Outcome.FAILED


def test_a_start_that_does_not_apply_is_not_counted() -> None:
    """As a transformation that gives None."""
    never = dataclasses.replace(_doubled(), start=lambda inputs: None)
    findings = checked("invariances", _spec(_sums, never), CASE)
    assert findings.outcome is Outcome.NOT_DEMONSTRATED
    assert findings.counts == {"from twice the input applied": 0}


@pytest.mark.parametrize("signed", [True, False])
def test_zeros_compare_by_sign_unless_the_relation_says_otherwise(signed: bool) -> None:
    """Other values always compare by their bits."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        return {"y": tensors["x"] * 0.0}

    negated = dataclasses.replace(_doubled(), relate=lambda found, inputs: dict(found))
    negated = dataclasses.replace(negated, signed_zeros=signed)
    outcome = Outcome.FAILED if signed else Outcome.PASSED
    assert checked("invariances", _spec(run, negated), CASE).outcome is outcome
    assert checked("invariances", _spec(_sums, negated), CASE).outcome is Outcome.FAILED


def test_every_run_of_an_invariance_is_budgeted() -> None:
    """Two, three with a start or a run that carries on, the first shared by all."""
    launched: list[int] = []

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        launched.append(1)
        return _sums(tensors, params)

    spec = _spec(
        run, _continued(), _doubled(), dataclasses.replace(_doubled(), name="plain", start=None)
    )
    checked("invariances", spec, CASE)
    assert len(launched) == checks.find("invariances").launches(spec) == 6


def test_invariances_hold_for_a_right_kernel() -> None:
    """Each that applies is counted."""
    spec = variant(invariances=(alone(), negated()))
    findings = checked("invariances", spec)
    assert findings.outcome is Outcome.PASSED
    assert findings.counts == {"last row alone applied": 1, "sign symmetry applied": 1}
    findings = checked("invariances", spec, RowsCase(rows=1, columns=3))
    assert findings.counts == {"last row alone applied": 0, "sign symmetry applied": 1}


def test_a_violated_invariance_is_named() -> None:
    """A kernel that leaks from row to row, and one with a preferred sign."""
    leaking = kernel(after(lambda x, y: y[1:].add_(y[:-1])), invariances=(alone(), negated()))
    findings = checked("invariances", leaking)
    assert findings.outcome is Outcome.FAILED
    assert [f.summary for f in findings.findings] == ["y[0, 0]: last row alone gives other bits"]
    signed = kernel(after(lambda x, y: y.add_(y.abs())), invariances=(alone(), negated()))
    findings = checked("invariances", signed)
    assert "sign symmetry gives other bits" in findings.text
    assert "last row alone" not in findings.text


def test_an_invariance_that_does_not_apply_shows_nothing() -> None:
    """A case on which none applies is not demonstrated, rather than passed."""
    findings = checked("invariances", variant(invariances=(alone(),)), RowsCase(rows=1, columns=3))
    assert findings.outcome is Outcome.NOT_DEMONSTRATED
    assert findings.reason == "no invariance applies"


@pytest.mark.parametrize(("related", "message"), [({}, "relates none"), ({"z": 0}, "relates 'z'")])
def test_an_invariance_relates_outputs(related: dict[str, Any], message: str) -> None:
    """One that relates nothing, or what is no output, is the spec's mistake."""
    invariance = Invariance(name="odd", transform=lambda i: i, relate=lambda o, i: related)
    with pytest.raises(SpecError, match=message):
        checked("invariances", variant(invariances=(invariance,)))


def test_the_sign_and_payload_of_a_nan_have_no_meaning() -> None:
    """0/0 of either sign is NaN; a NaN where the relation wants a number still fails."""

    def undefined(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        x = tensors["x"]
        y = (x * 2.0).to(torch.bfloat16)
        y[0, 0] = torch.nan
        if bool(x[0, 1] < 0):
            y[0, 0] = -y[0, 0]
        return {"y": y}

    def broken(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = undefined(tensors, params)["y"]
        if bool(tensors["x"][0, 1] < 0):
            y[0, 0] = 1.0
        return {"y": y}

    flipped = relations.negated(["x"], ["y"])
    assert checked("invariances", _spec(undefined, flipped), CASE).outcome is Outcome.PASSED
    assert checked("invariances", _spec(broken, flipped), CASE).outcome is Outcome.FAILED
