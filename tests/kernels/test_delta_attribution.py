"""The question that `bitproof attribute` was made for, asked of the kernel it was made for."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import attribution, case
from harness.attribution import Model, Tell
from kernels.delta_cases import LIMIT, DeltaCase
from oracles.precision import TARGETED
from tests.kernels.delta_judging import GDN2_CHUNK, error, ran

CORRELATED = Path(__file__).parents[2] / "benchmarks" / "correlated.json"


@contextlib.contextmanager
def unwatched(title: str, total: int) -> Iterator[Tell]:
    """A search that nobody looks at."""
    yield lambda done, note: None


def test_the_cheapest_policy_for_correlated_operands_is_the_targeted_one() -> None:
    """As docs/attribution.md has it: what each rounding costs, what to keep in fp32, and the kernel so."""
    asked: DeltaCase = case.decode(DeltaCase, json.loads(CORRELATED.read_text()))
    inputs, outputs = ran(GDN2_CHUNK, asked)
    model = Model(spec=GDN2_CHUNK, inputs=inputs, output="o")
    told = attribution.attribute(model, outputs["o"])
    expected = {"scores": 0.00716, "u": 0.00831, "v_new": 0.00863, "inverse": 0.00412, "o": 0.00167}
    assert {name: told.alone[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert told.together == pytest.approx(0.01403, rel=1e-3)
    assert told.kernel == pytest.approx(told.together, rel=0.1)
    found = attribution.search(model, LIMIT, unwatched)
    assert frozenset(found.found[0].points) == TARGETED.fp32
    assert found.found[0].error < LIMIT / 1.5 < min(other.error for other in found.found[1:])
    assert error(GDN2_CHUNK, dataclasses.replace(asked, precision="targeted")) < 0.75 * LIMIT
