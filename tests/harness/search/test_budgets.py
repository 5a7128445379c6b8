"""What a search may spend on a smaller case, and how many cases it may lose."""

from __future__ import annotations

import itertools
import time

import pytest
import torch
from hypothesis import settings

from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify
from bitproof.harness.search.falsify import SearchResult
from bitproof.harness.spec import KernelSpec, Params, Tensors
from tests.harness.plain import PlainLane, RowsCase, scaled, variant


def _search(spec: KernelSpec, max_examples: int = 100) -> SearchResult:
    base = settings(derandomize=True, database=None)
    return falsify.search(spec, "agreement", PlainLane(), max_examples=max_examples, base=base)


@pytest.mark.parametrize(("seconds", "is_smallest"), [(0.001, True), (20.0, False), (61.0, False)])
def test_shrinking_ends_after_a_minute(
    monkeypatch: pytest.MonkeyPatch, seconds: float, is_smallest: bool
) -> None:
    """The smallest case by then is reported, a failing one. Each launch takes `seconds` here."""
    now = 0.0
    launched: list[float] = []
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        nonlocal now
        now += seconds
        launched.append(now)
        y = scaled(tensors, params)["y"]
        if y.shape[0] >= 3 and y.shape[1] >= 2:
            y[-1, -1] += 1.0
        return {"y": y}

    result = _search(variant(run=run), max_examples=1000)
    assert result.outcome is Outcome.FAILED
    assert isinstance(result.case, RowsCase)
    assert (result.case == RowsCase(rows=3, columns=2)) is is_smallest
    assert result.case.rows >= 3
    assert result.case.columns >= 2
    # A failing case is launched once more, to learn who wrote the element.
    first = launched[result.examples]
    assert now - first <= falsify.SHRINKING + 3 * seconds


@pytest.mark.parametrize(
    ("lost", "of", "outcome"),
    [
        (0, 30, Outcome.PASSED),
        (3, 10, Outcome.PASSED),
        (3, 100, Outcome.PASSED),
        (4, 30, Outcome.NOT_DEMONSTRATED),
        (10, 100, Outcome.PASSED),
        (11, 100, Outcome.NOT_DEMONSTRATED),
        (30, 30, Outcome.OUT_OF_RESOURCES),
    ],
)
def test_a_search_that_lost_many_cases_demonstrates_nothing(
    lost: int, of: int, outcome: Outcome
) -> None:
    """More than three and more than a tenth; none of them is the kernel's fault."""
    launches = itertools.count(1)

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        if next(launches) <= lost:
            raise torch.OutOfMemoryError("no memory left on the card")
        return scaled(tensors, params)

    result = _search(variant(run=run), max_examples=of)
    assert result.outcome is outcome
    assert result.outcomes[Outcome.OUT_OF_RESOURCES] == lost
    said = f"{lost} of {of} examples were out of resources"
    assert result.undemonstrated == (said if outcome is Outcome.NOT_DEMONSTRATED else "")
