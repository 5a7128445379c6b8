"""A call of the delta rule as its oracles take it, and what is no call."""

from __future__ import annotations

import pytest
import torch

from bitproof.oracles.delta import chunk
from bitproof.oracles.delta.gates import normalise
from bitproof.oracles.delta.problem import pose_problem
from tests.oracles.delta.operands import GROUPS, LENGTHS, PLAIN, call


def test_a_problem_is_normalised_and_repeated_by_heads() -> None:
    """What the recurrence takes: unit q and k, one for each value head, and a chunk's deepest decay."""
    tensors = call()
    p = pose_problem(tensors, {**PLAIN, "normalise": True})
    expected = normalise(tensors["k"].double()).repeat_interleave(GROUPS, 1)
    assert torch.equal(p.x.k, expected)
    assert p.groups == GROUPS
    decays = chunk.make_chunks(LENGTHS, sum(LENGTHS))
    assert p.deepest == float(decays.split(p.x.g).cumsum(-2).abs().max())
    assert pose_problem(call(lengths=(0,)), PLAIN).deepest == 0.0


def test_the_scale_is_what_a_kernel_multiplies_by() -> None:
    """K^-1/2 where none is named, rounded to fp32 as an argument is."""
    p = pose_problem(call(), PLAIN)
    assert p.scale == float(torch.tensor(p.x.q.shape[2] ** -0.5))


@pytest.mark.parametrize("offsets", [[1, 4, 5], [0, 5, 4], [0, 4, 7], [0, -1, 5], []], ids=str)
def test_offsets_that_cut_nothing_are_refused(offsets: list[int]) -> None:
    """Which no kernel could check without waiting for the device: one sentence that names them."""
    tensors = call(lengths=(4, 2)) | {"cu_seqlens": torch.tensor(offsets, dtype=torch.int32)}
    with pytest.raises(ValueError, match="cu_seqlens must begin at 0, never fall and end at 6 at"):
        pose_problem(tensors, PLAIN)


def test_value_heads_belong_to_heads_of_q() -> None:
    """A multiple of them: three of q and two of v are no call."""
    tensors = call()
    tensors |= {name: tensors[name][:, :1].repeat(1, 3, 1) for name in ("q", "k")}
    with pytest.raises(ValueError, match="heads must be a multiple of q's 3"):
        pose_problem(tensors, PLAIN)


@pytest.mark.parametrize("name", ["q", "g", "do", "initial_state"])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_what_is_not_finite_is_refused(name: str, value: float) -> None:
    """In tensors, but for slack rows."""
    tensors = call(slack=2)
    tensors["q"][-1] = value
    pose_problem(tensors, PLAIN)
    tensors[name][0].fill_(value)
    with pytest.raises(ValueError, match=f"{name} holds NaN or infinities"):
        pose_problem(tensors, PLAIN)
