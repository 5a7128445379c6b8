"""Global generators give every case the same numbers, whatever was drawn before, and go on afterwards."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from bitproof.harness.case import build
from bitproof.harness.outcomes import Outcome
from bitproof.harness.randomness import from_the_start
from bitproof.harness.search import falsify
from bitproof.harness.spec import Params, Tensors
from tests.harness.plain import PlainLane, RowsCase, checked, scaled, variant


def draw() -> tuple[float, ...]:
    """One number of each generator."""
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


def test_numbers_are_the_same_within_and_go_on_after() -> None:
    """Also where what ran within raised."""
    states = []
    for _ in range(2):
        with from_the_start():
            states.append([draw(), draw()])
    assert states[0] == states[1]
    assert states[0][0] != states[0][1]
    with from_the_start():
        random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    expected = None
    for stop in (False, True):
        random.seed(7), np.random.seed(7), torch.manual_seed(7)  # noqa: NPY002
        if stop:
            with pytest.raises(ValueError, match="within"), from_the_start():
                raise ValueError(f"within {draw()}")
        expected = expected or draw()
    assert draw() == expected


def noisy(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
    """Wrong in one call of three, by the generator that everybody shares."""
    y = scaled(tensors, params)["y"]
    return {"y": y + 1.0 if torch.rand(()) < 0.3 else y}


def test_a_case_has_the_same_verdict_every_time() -> None:
    """Though its launcher draws from torch's generator, and somebody else does in between."""
    outcomes = set()
    for _ in range(8):
        outcomes.add(checked("agreement", variant(run=noisy)).outcome)
        torch.rand(3)
    assert len(outcomes) == 1


def test_a_launcher_that_draws_numbers_is_not_reproducible() -> None:
    """The runs of one case draw one number after another."""
    assert checked("reproducibility", variant(run=noisy)).outcome is Outcome.FAILED


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomCase(RowsCase):
    """Values of torch's own, as a test that was written by hand has them."""

    def tensors(self, device: torch.device) -> dict[str, torch.Tensor]:
        """Normal values."""
        return {"x": torch.randn(self.rows, self.columns)}


def test_a_case_that_draws_its_tensors_makes_the_same_ones_every_time() -> None:
    """So that a failing value can be looked for, shrunk and replayed."""
    case = RandomCase(rows=3, columns=4)
    first = build(case, torch.device("cpu")).tensors["x"]
    torch.rand(5)
    assert torch.equal(build(case, torch.device("cpu")).tensors["x"], first)

    def run(tensors: Tensors, params: Params) -> dict[str, Any]:
        y = scaled(tensors, params)["y"]
        y[tensors["x"] > 1.5] = 0.0
        return {"y": y}

    def cases() -> Any:
        from hypothesis import strategies as st

        return st.builds(RandomCase, rows=st.integers(1, 9), columns=st.integers(1, 9))

    spec = variant(run=run, case=RandomCase, cases=cases)
    base = settings(derandomize=True, database=None)
    found = [
        falsify.search(spec, "agreement", PlainLane(), max_examples=50, base=base) for _ in range(2)
    ]
    assert found[0].outcome is Outcome.FAILED
    assert found[0].case == found[1].case
    assert found[0].findings is not None
    assert "not steady" not in found[0].findings.text
