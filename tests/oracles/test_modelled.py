"""A modelled answer says what does not fit together in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitproof.oracles.modelled import Modelled

ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"value": ONES.astype(np.float32)}, "the value of a modelled answer must be float64"),
        ({"model": np.ones((2, 3), np.int64)}, "the model of a modelled answer must be float64"),
        ({"floor": 1}, "the floor of a modelled answer must be float64, it is int64"),
        ({"model": np.ones(3)}, r"the model of an answer of shape \(2, 3\) has shape \(3,\)"),
        ({"floor": np.ones(2)}, "broadcast"),
        (
            {"floor": np.ones((1, 2, 3))},
            r"a floor of shape \(1, 2, 3\) does not broadcast to \(2, 3\)",
        ),
        ({"floor": -ONES}, "the floor of a modelled answer must be at least 0"),
        ({"floor": ONES * np.nan}, "the floor of a modelled answer must be at least 0"),
        ({"rows": 3}, "rows must be from 0 to the answer's 2 axes, it is 3"),
        ({"rows": -1}, "rows must be from 0 to the answer's 2 axes, it is -1"),
        ({"limit": 0.0}, "the limit of a modelled answer must be above 0"),
    ],
)
def test_parts_that_do_not_fit_are_named(changes: dict[str, Any], said: str) -> None:
    """Dtypes, shapes, a floor below zero, rows and limits that mean nothing."""
    parts: dict[str, Any] = {"value": ONES, "model": ONES, "floor": np.zeros(()), "rows": 1}
    Modelled(**parts)
    with pytest.raises(ValueError, match=said):
        Modelled(**{**parts, **changes})
