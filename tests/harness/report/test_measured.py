"""How far outputs were from the oracle, counted by ulps and side; checked against plain arithmetic."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitproof.harness import checks
from bitproof.harness.case import build
from bitproof.harness.report.measured import EDGES, count_ulps
from bitproof.harness.spec import Params, Tensors
from tests.harness.plain import CASE, PlainLane, scaled, variant


def test_distances_are_counted_by_side() -> None:
    """In units of the output's own format at the exact number; a lost or made NaN is infinitely far."""
    one = np.float32(1.0)
    step = np.float32(2.0**-23)
    got = np.array([1.0, one + step, one - step / 2, -1.0, np.nan, np.nan, 2.0], dtype=np.float32)
    want = np.array([1.0, 1.0, 1.0, -1.0 - 3 * step, np.nan, 1.0, np.inf])
    assert count_ulps(got, want) == {"0": 2, "+1": 1, "-0.5": 1, "-4": 1, "+inf": 1, "-inf": 1}


def test_integers_are_counted_in_units() -> None:
    """Their oracle's type does not matter."""
    got = np.array([-3, 0, 7], dtype=np.int8)
    assert count_ulps(got, np.array([-3.0, 2.0, 6.0])) == {"0": 1, "-2": 1, "+1": 1}


@given(st.lists(st.floats(width=32), max_size=20), st.lists(st.floats(), max_size=20))
def test_every_element_is_counted_once(got: list[float], want: list[float]) -> None:
    """In a range that exists, whatever the numbers are."""
    size = min(len(got), len(want))
    one = np.array(got[:size], dtype=np.float32)
    counts = count_ulps(one, np.array(want[:size], dtype=np.float64))
    assert sum(counts.values()) == size
    assert {name.lstrip("+-") for name in counts} <= {f"{edge:g}" for edge in EDGES}


def test_of_a_large_output_some_elements_are_counted() -> None:
    """Evenly, so that the counts keep their proportions."""
    got = np.tile(np.array([1.0, 1.0 + 2.0**-23], dtype=np.float32), 150_001)
    counts = count_ulps(got, np.ones(got.size))
    assert 50_000 < sum(counts.values()) <= 65_536
    assert abs(counts["0"] - counts["+1"]) <= 1
    assert count_ulps(got, got, exact=True) == {"0": got.size}
    assert count_ulps(got[:0], got[:0]) == {}


def test_a_check_tells_what_it_compared() -> None:
    """Each output's distance over its bound, and its ulps."""

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        y = scaled(tensors, params)["y"]
        y.view(torch.int32)[0, 0] += 1
        return {"y": y}

    lane = PlainLane()
    found = checks.run("agreement", variant(run=run), build(CASE, lane.device), lane)
    assert found.distances == {"y": 1.0}
    assert found.ulps == {"y": {"0": 5, "+1": 1}}
    assert checks.run("memory", variant(), build(CASE, lane.device), lane).distances == {}
