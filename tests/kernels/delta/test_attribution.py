"""The question that `bitproof attribute` was made for, asked of the kernel it was made for."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path

import pytest

from bitproof.harness import case
from bitproof.harness.attribution import costs as attribution
from bitproof.harness.attribution.costs import Model, Tell
from bitproof.kernels.delta.cases import LIMIT, DeltaCase
from bitproof.oracles.precision import TARGETED
from tests.kernels.delta.judging import GDN2_CHUNK, KDA_CHUNK_VJP, error, ran

CORRELATED: DeltaCase = case.decode(
    DeltaCase,
    json.loads((Path(__file__).parents[3] / "benchmarks" / "correlated.json").read_text()),
)


def unwatched(title: str, total: int) -> contextlib.AbstractContextManager[Tell]:
    """A search that nobody looks at."""
    return contextlib.nullcontext(lambda done, note: None)


@pytest.mark.slow
def test_the_cheapest_policy_for_correlated_operands_is_the_targeted_one() -> None:
    """As docs/attribution.md has it: what each rounding costs, what to keep in fp32, and the kernel so."""
    inputs, outputs = ran(GDN2_CHUNK, CORRELATED)
    model = Model(spec=GDN2_CHUNK, inputs=inputs, output="o")
    told = attribution.attribute(model, outputs["o"])
    expected = {"scores": 0.00716, "u": 0.00831, "v_new": 0.00863, "inverse": 0.00412, "o": 0.00167}
    assert {name: told.alone[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert told.together == pytest.approx(0.01403, rel=1e-3)
    assert told.kernel == pytest.approx(told.together, rel=0.1)
    found = attribution.search(model, LIMIT, unwatched)
    assert frozenset(found.found[0].points) == TARGETED.fp32
    assert found.found[0].error < LIMIT / 1.5 < min(other.error for other in found.found[1:])
    assert error(GDN2_CHUNK, dataclasses.replace(CORRELATED, precision="targeted")) < 0.75 * LIMIT


def test_a_gradient_hangs_on_other_intermediates_than_the_output() -> None:
    """dv on what the backward pass stores, not on u, v_new or scores alone: "targeted" is no help to it."""
    asked = dataclasses.replace(CORRELATED, kind="kda", lengths=(64,), heads=1, gradient=True)
    inputs, outputs = ran(KDA_CHUNK_VJP, asked)
    model = Model(spec=KDA_CHUNK_VJP, inputs=inputs, output="dv")
    told = attribution.attribute(model, outputs["dv"])
    expected = {"qk": 0.00486, "scores": 0.00176, "inverse": 0.00311, "kg": 0.00522}
    expected |= {"dv_new": 0.00603, "dstate": 0.00145, "gradient": 0.00156, "u": 0.0, "v_new": 0.0}
    assert {name: told.alone[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert told.kernel == pytest.approx(told.together, rel=0.1)
    found = attribution.search(model, LIMIT, unwatched)
    assert set(found.found[0].points) == {"kg", "dv_new"}
    targeted = model.error(set(model.stored) - TARGETED.fp32)
    assert LIMIT < targeted < told.together
