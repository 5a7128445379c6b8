"""Failing cases that Hypothesis did not draw: they shrink, and stay cases that callers send."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
import torch
from hypothesis import settings

from bitproof.harness.case import Launch
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import descent, falsify
from bitproof.harness.search.falsify import SearchResult
from bitproof.harness.spec import KernelSpec, Params, Refusal, Tensors
from tests.harness.plain import PlainLane, RowsCase, scaled, variant

CORNER = RowsCase(rows=1000, columns=400, seed=12345, launch=Launch(block=4096))


def search(spec: KernelSpec, **options: Any) -> SearchResult:
    """A search that draws few cases, none of which comes near the corners."""
    base = settings(derandomize=True, database=None)
    return falsify.search(spec, "agreement", PlainLane(), base=base, max_examples=5, **options)


def wrong_beyond(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
    """Wrong from 300 rows on; with more than 350 columns it raises instead."""
    if tensors["x"].shape[0] >= 300:
        if tensors["x"].shape[1] > 350:
            raise RuntimeError("too wide")
        return {"y": scaled(tensors, params)["y"] + 1.0}
    return scaled(tensors, params)


def test_a_failing_corner_is_shrunk_to_the_edge_at_which_it_fails() -> None:
    """The crash, which is another failure than the wrong values near it, and every field that has no part."""
    result = search(variant(run=wrong_beyond, corners=(CORNER,)))
    assert result.outcome is Outcome.CRASHED
    assert result.case == RowsCase(rows=300, columns=351)
    assert result.inputs is not None
    assert result.inputs.tensors["x"].shape == (300, 351)
    assert result.examples == 6


def test_a_corner_is_left_as_it_is_where_nothing_is_to_be_shrunk() -> None:
    """As the search for planted faults asks."""
    result = search(variant(run=wrong_beyond, corners=(CORNER,)), shrink=False)
    assert result.case == CORNER


def test_the_budget_of_shrinking_is_a_corner_s_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case takes a second here, and ten are allowed."""
    now, judged = 0.0, 0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def slow(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        nonlocal now, judged
        now += 1.0
        judged += 1
        return wrong_beyond(tensors, params)

    result = search(variant(run=slow, corners=(CORNER,)), shrinking=10.0)
    assert judged <= 6 + 12
    assert result.outcome is Outcome.CRASHED
    assert result.case != CORNER


def test_a_refusal_that_is_not_made_keeps_its_case() -> None:
    """Its inputs are spoiled in that very case alone."""
    refusal = Refusal(name="no rows", case=CORNER, spoil=lambda inputs: inputs)
    result = search(variant(refuses=(ValueError,), refusals=(refusal,)))
    assert result.outcome is Outcome.FAILED
    assert result.case == CORNER


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed(RowsCase):
    """Rows in sequences; a width that callers only send in multiples of 16."""

    lengths: tuple[int, ...] = (1,)
    width: int = 16
    kind: str = "plain"

    def __post_init__(self) -> None:
        """ValueError without sequences."""
        if not self.lengths:
            raise ValueError("no sequence")


DRAWN = [Packed(), Packed(lengths=(2, 1), width=48), Packed(lengths=(0, 3), width=64, kind="odd")]


def test_lists_lose_elements_and_the_rest_becomes_small() -> None:
    """What fails is one sequence of 100 or more that is not the first."""
    case = Packed(lengths=(7, 300, 5, 9), width=320, kind="odd")
    smallest = descent.shrink(case, DRAWN, lambda one: any(n >= 100 for n in one.lengths[1:]))
    assert smallest == Packed(lengths=(0, 100))


def test_numbers_stay_what_all_drawn_ones_are_multiples_of() -> None:
    """A width of 1000 columns or more fails; 1008 is the first multiple of 16."""
    tried: list[int] = []

    def fails(one: Packed) -> bool:
        tried.append(one.width)
        return one.width >= 1000

    smallest = descent.shrink(Packed(width=4096), DRAWN, fails)
    assert smallest == Packed(width=1008)
    assert all(width % 16 == 0 for width in tried)
    assert len(tried) < 40


def test_a_case_that_cannot_be_made_is_passed_over() -> None:
    """An empty list is none, though it is shorter."""
    case = Packed(lengths=(3, 4))
    assert descent.shrink(case, DRAWN, lambda one: one.lengths != (1,)).lengths == (0,)


def test_without_a_drawn_case_nothing_is_shrunk() -> None:
    """There is nothing to learn from which values callers send."""
    assert descent.shrink(CORNER, [], lambda _: True) == CORNER
