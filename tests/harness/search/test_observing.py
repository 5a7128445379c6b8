"""Hypothesis's observability tells of each case what Tyche draws."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from hypothesis.internal.observability import with_observability_callback
from hypothesis.strategies._internal.utils import to_jsonable

from bitproof.harness.search import falsify
from bitproof.harness.spec import Params, Tensors
from tests.harness.plain import SPEC, PlainLane, scaled, variant


def _observe(run: Any) -> list[dict[str, Any]]:
    """The lines of JSON that a search writes."""
    seen: list[Any] = []
    spec = variant(run=run)
    base = settings(derandomize=True, database=None)
    with with_observability_callback(seen.append):
        falsify.search(spec, "agreement", PlainLane(), max_examples=10, base=base)
    lines = [json.dumps(to_jsonable(one, avoid_realization=False)) for one in seen]
    told = [json.loads(line, parse_constant=_refuse) for line in lines]
    return [one for one in told if one["type"] == "test_case"]


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_each_case_is_told_with_its_features() -> None:
    """Under the kernel's and the check's name: sizes, what it covers, error over bound, outcome, times."""
    told = _observe(scaled)
    assert len(told) == 10
    for one in told:
        assert one["property"] == f"agreement_{SPEC.name}"
        assert one["status"] == "passed"
        features = one["features"]
        assert {"rows", "columns", "launch.block"} <= set(features)
        assert (features["outcome"], features["error / bound of y"]) == ("passed", 0)
        covers = "covers one row" if features["rows"] == 1 else "covers several rows"
        assert covers in features
        assert f"rows={features['rows']}" in one["representation"] or features["rows"] == 1
        assert one["timing"]


def test_a_failing_case_is_told_with_how_far_it_is_off() -> None:
    """An infinite distance is a word, since JSON has none."""

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        return {"y": scaled(tensors, params)["y"] * np.nan}

    failed = [one for one in _observe(run) if one["status"] == "failed"]
    assert failed
    assert {one["features"]["outcome"] for one in failed} == {"failed"}
    assert {one["features"]["error / bound of y"] for one in failed} == {"infinite"}
