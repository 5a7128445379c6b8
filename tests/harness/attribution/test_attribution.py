"""Attribution to stored intermediates: no set is skipped, and a model that contradicts itself is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from bitproof.harness import case
from bitproof.harness.attribution import costs as attribution
from bitproof.harness.attribution.costs import Attribution, Model
from bitproof.harness.errors import SpecError
from bitproof.harness.spec import Storage
from tests.harness import storing
from tests.harness.storing import POINTS, PartsCase


def _model(storage: Storage) -> Model:
    inputs = case.build(PartsCase(), torch.device("cpu"))
    spec = dataclasses.replace(storing.SPEC, storage=storage)
    return Model(spec=spec, inputs=inputs, output="y")


def test_errors_that_cancel_are_told_by_the_difference_from_their_quadrature() -> None:
    """Two roundings of opposite error: 5 in quadrature, 1 together."""
    told = Attribution(alone={"a": 3.0, "b": 4.0}, together=1.0, kernel=1.0)
    assert told.quadrature == 5.0


def test_no_set_is_skipped_for_what_another_one_left() -> None:
    """Roundings that cancel: each promotion alone makes it worse, one pair makes it right."""
    errors = {frozenset("abc"): 2.0, frozenset("c"): 0.5}

    def model(tensors: Any, params: Any, rounded: frozenset[str]) -> dict[str, Any]:
        return {"y": np.array([1.0 + (errors.get(rounded, 3.0) if rounded else 0.0)])}

    storage = Storage(
        points=("a", "b", "c"), outputs=("y",), stored=lambda p: frozenset("abc"), model=model
    )
    seen: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def watch(title: str, total: int) -> Iterator[attribution.Tell]:
        done = itertools.count(1)
        yield lambda count, note: seen.append((title, total)) if count == next(done) else None

    found = attribution.search(_model(storage), 1.0, watch)
    assert [promotion.points for promotion in found.found] == [("a", "b")]
    assert seen == [("sets of 0", 1)] + 3 * [("sets of 1", 3)] + 3 * [("sets of 2", 3)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stored": lambda p: {"s"}}, "`stored` names 's', which is none of its points u, w, v"),
        ({"stored": lambda p: p["policy"]}, "`stored` raised KeyError in <lambda>"),
        ({"model": lambda t, p, r: {}}, "does not answer output 'y'"),
        ({"model": lambda t, p, r: None}, "does not answer output 'y'"),
        ({"model": lambda t, p, r: t["x"]}, "its storage model raised KeyError in <lambda>"),
        ({"model": lambda t, p, r: {"y": t["u"]}}, "must answer 'y' in float64, not in float32"),
        ({"model": lambda t, p, r: {"y": [1.0]}}, "must answer 'y' in float64, not in list"),
        (
            {"model": lambda t, p, r: {"y": np.ones(2 + len(r))}},
            r"answers 'y' in shape \(3,\) with roundings, \(2,\) without",
        ),
        (
            {"model": lambda t, p, r: {"y": np.ones(3)}},
            r"answers 'y' in shape \(3,\), the kernel in \(2,\)",
        ),
    ],
)
def test_a_model_that_contradicts_itself_is_the_specs_mistake(
    changes: dict[str, Any], said: str
) -> None:
    """Points, outputs, dtypes and shapes; what it raises."""
    right = {
        "points": POINTS,
        "outputs": ("y",),
        "stored": storing.stored,
        "model": storing.modelled,
    }
    with pytest.raises(SpecError, match=said):
        attribution.attribute(_model(Storage(**{**right, **changes})), torch.ones(2))


def test_a_model_may_answer_in_torch_and_is_asked_once_for_each_set() -> None:
    """On whatever device its tensors are."""
    asked: list[frozenset[str]] = []

    def model(tensors: Any, params: Any, rounded: frozenset[str]) -> dict[str, Any]:
        asked.append(rounded)
        return {"y": torch.tensor([1.0 + len(rounded)], dtype=torch.float64)}

    found = _model(Storage(points=POINTS, outputs=("y",), stored=storing.stored, model=model))
    told = attribution.attribute(found, torch.tensor([2.0]))
    assert (told.together, told.kernel) == (3.0, 1.0)
    found.error({"u"})
    assert len(asked) == len(set(asked)) == 5
