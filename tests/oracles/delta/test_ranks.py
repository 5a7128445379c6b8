"""Sequences cut over ranks: the same answers in exact arithmetic, whatever the cuts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bitproof.oracles.delta import answers, ranks, recurrence
from bitproof.oracles.precision import EXCHANGED, FORWARD
from tests.oracles.delta.operands import PLAIN, apart, call, numbers, states, tokens

CUTS = [((150, 0, 40), 190, 3), ((200,), 201, 4), ((5, 0, 60, 9), 74, 8), ((64, 64), 128, 2)]


@pytest.mark.parametrize(("lengths", "rows", "count"), CUTS)
def test_parts_merge_into_the_recurrence(lengths: tuple[int, ...], rows: int, count: int) -> None:
    """Forward and back, whatever ranks hold of the sequences."""
    x, total = tokens(1, rows), sum(lengths)
    x = type(x)(**{name: value[:total] for name, value in x.to_dict().items()})
    initial, dfinal = states(1, len(lengths), x), states(2, len(lengths), x)
    do = numbers(99, *x.v.shape)
    parts = ranks.cut(lengths, rows, count)
    exact = recurrence.recurrence(x, 0.5, initial, lengths, keep=True)
    o, final = ranks.forward(x, 0.5, initial, parts)
    assert apart(o, exact.o) < 1e-13
    assert apart(final, exact.final) < 1e-13
    grads, dinitial = recurrence.adjoint(x, 0.5, exact, lengths, do, dfinal)
    found, dfound, _ = ranks.weigh_adjoint(x, 0.5, initial, parts, do, dfinal)
    assert apart(dfound, dinitial) < 1e-13
    for name, value in grads.to_dict().items():
        assert apart(getattr(found, name), value) < 1e-12, name


def test_sequences_are_cut_at_multiples_of_a_share() -> None:
    """Slack rows count; a sequence without tokens is one part; boundaries on a border cut nothing."""
    assert ranks.cut((150, 0, 40), 195, 3).lengths == (65, 65, 20, 0, 40)
    assert ranks.cut((150, 0, 40), 195, 3).sequence == (0, 0, 0, 1, 2)
    assert ranks.cut((64, 64), 128, 2).lengths == (64, 64)
    assert ranks.cut((0,), 0, 4).lengths == (0,)
    with pytest.raises(ValueError, match="at least 1 rank, not 0"):
        ranks.cut((3,), 3, 0)


def test_what_ranks_exchange_costs_something_where_a_sequence_is_cut() -> None:
    """Rounding it alone moves o there, each point by itself, and nothing where none is cut."""
    tensors = call(lengths=(30,), dtype=torch.bfloat16)
    tensors["g"] = tensors["g"] / 8
    points = [point for point in EXCHANGED if "gradient" not in point]
    for count, costs in ((1, False), (4, True)):
        params = {**PLAIN, "ranks": count}
        exact = answers.model(tensors, params, frozenset())["o"]
        for point in points:
            rounded = answers.model(tensors, params, frozenset({point}))["o"]
            assert np.array_equal(rounded, exact) != costs, (count, point)
        gradients = answers.gradient_model(tensors, params, frozenset())
        for point in ("summary gradient", "summary transition", "merged gradient"):
            rounded = answers.gradient_model(tensors, params, frozenset({point}))
            assert np.array_equal(rounded["dv"], gradients["dv"]) != costs, (count, point)


def test_a_rank_that_begins_a_sequence_sends_no_rounded_transition() -> None:
    """Of two ranks, what the second begins with is the first's state, rounded as the policy says."""
    tensors = call(lengths=(30,), dtype=torch.bfloat16)
    params = {**PLAIN, "ranks": 2}
    exact = answers.model(tensors, params, frozenset())
    transition = answers.model(tensors, params, frozenset({"summary transition"}))
    assert np.array_equal(transition["o"], exact["o"])
    both = answers.model(tensors, params, frozenset({"summary state", "merged state"}))
    state = answers.model(tensors, params, frozenset({"summary state"}))
    assert np.array_equal(both["o"], state["o"])
    assert len({*EXCHANGED, *FORWARD}) == len(EXCHANGED) + len(FORWARD)
