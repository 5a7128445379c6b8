"""Relations between two runs: each holds for a function that has it and breaks for one that has not."""

from __future__ import annotations

import pytest
import torch

from bitproof.harness import invariances
from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs

X = torch.tensor([[1.0, -0.0, 3.5], [448.0, -2.0, 0.0], [0.3, -500.0, 7.0]])


def _holds(invariance, run, **tensors):
    """Whether the relation holds on these tensors; None where it does not apply."""
    inputs = Inputs(tensors=tensors, params={}, seed=5)
    second = invariance.transform(inputs)
    if second is None:
        return None
    expected = invariance.relate(run(**tensors), inputs)
    found = run(**second.tensors)
    return all(torch.equal(bits(found[name]), bits(expected[name])) for name in expected)


def _cast(x):
    return {"y": x.clamp(-448, 448).to(torch.float8_e4m3fn)}


def _by_row(x):
    return {"y": x / x.abs().amax(dim=-1, keepdim=True)}


def _by_tensor(x):
    return {"y": x / x.abs().amax()}


@pytest.mark.parametrize(
    "relation",
    [invariances.row_alone(["x"], ["y"]), invariances.rows_permuted(["x"], ["y"])],
    ids=["alone", "permuted"],
)
def test_rows_are_independent(relation):
    """A scale per row has it, a row that knows its place among the others has not; one row says nothing."""
    assert _holds(relation, _by_row, x=X) is True
    assert (
        _holds(relation, lambda x: {"y": x + torch.arange(len(x))[:, None] + len(x)}, x=X) is False
    )
    assert _holds(relation, _by_row, x=X[:1]) is None


def test_one_row_alone_sees_a_scale_of_the_whole_tensor():
    """Which an order of the rows does not."""
    assert _holds(invariances.row_alone(["x"], ["y"]), _by_tensor, x=X) is False
    assert _holds(invariances.rows_permuted(["x"], ["y"]), _by_tensor, x=X) is True


def test_unmoved_outputs_do_not_notice_the_order():
    """A sum over the rows in any order, exact for these values; the first row is noticed."""
    relation = invariances.rows_permuted(["x"], [], unmoved=["y"])
    assert _holds(relation, lambda x: {"y": x.amax(dim=0)}, x=X) is True
    assert _holds(relation, lambda x: {"y": x[0]}, x=X) is False


def test_signs_flip_with_the_input():
    """A conversion is odd; a rounding that adds before it truncates is not, nor is a lost -0."""
    relation = invariances.negated(["x"], ["y"])
    assert _holds(relation, _cast, x=X) is True
    assert _holds(relation, lambda x: {"y": torch.floor(x + 0.5)}, x=X) is False
    assert _holds(relation, lambda x: _cast(x + 0.0), x=X) is False
    assert _holds(relation, _cast, x=X / 0.0) is None


def test_signs_flip_inside_packed_codes():
    """Two four-bit codes to a byte have two sign bits."""
    relation = invariances.negated(["x"], [], packed={"y": 0x88})

    def packed(x):
        sign = torch.signbit(x).to(torch.uint8)
        return {"y": sign[:, 0] << 3 | sign[:, 1] << 7}

    assert _holds(relation, packed, x=X) is True
    assert _holds(relation, lambda x: {"y": packed(x)["y"] & 0x7F}, x=X) is False


def test_a_power_of_two_moves_the_scale_alone():
    """Within the range where nothing is floored or saturates."""
    relation = invariances.scaled("x", ["y"], {"scale": lambda scale, steps: scale * 2.0**steps})

    def quantised(x, floor=0.0):
        amax = x.abs().amax(dim=-1, keepdim=True).clamp(min=floor)
        return {"y": x / amax, "scale": amax}

    assert _holds(relation, quantised, x=X) is True
    assert _holds(relation, lambda x: quantised(x, floor=600.0), x=X) is False
    assert _holds(relation, quantised, x=X * 1e9) is None


def test_a_scale_moves_along():
    """x and its scale times the same power: the quotient stays."""
    relation = invariances.scaled("x", ["y"], {}, along=["scale"])
    scale = torch.tensor([0.75])
    assert _holds(relation, lambda x, scale: {"y": x / scale}, x=X, scale=scale) is True
    assert _holds(relation, lambda x, scale: {"y": x}, x=X, scale=scale) is False


def test_widening_outside_is_widening_inside():
    """In an elementwise kernel it is, in one that asks for the type of its input it is not."""
    relation = invariances.widened(["x"], ["y"], torch.float32)
    narrow = X.to(torch.bfloat16)
    assert _holds(relation, lambda x: {"y": x.float() * 3}, x=narrow) is True
    assert _holds(relation, lambda x: {"y": x.float() + x.element_size()}, x=narrow) is False
    assert _holds(relation, lambda x: {"y": x.float()}, x=X) is None
    half = invariances.widened(["x"], ["y"], torch.float16)
    assert _holds(half, lambda x: {"y": x.half()}, x=narrow) is None


def test_sorting_the_input_sorts_the_output():
    """-0 comes before +0; a function that falls somewhere is seen."""
    relation = invariances.monotone("x", "y")
    x = X.flatten()
    assert _holds(relation, _cast, x=x) is True
    assert _holds(relation, lambda x: {"y": x.abs()}, x=x) is False
    assert _holds(relation, _cast, x=x / 0.0) is None


@pytest.mark.parametrize("target", ["e4m3", "e5m2", "bf16", "fp16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_of_a_format_are_converted_to_themselves(target, dtype):
    """By torch's own conversion; a format of 16 bits asks it of fp32 input alone."""
    relation = invariances.fixed_points("x", "y", target)
    types = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16}
    to = types.get(target, torch.float16)
    x = torch.zeros(500, dtype=dtype)
    wide = target in ("bf16", "fp16") and dtype != torch.float32
    assert _holds(relation, lambda x: {"y": x.to(to)}, x=x) is (None if wide else True)
    if not wide:
        assert _holds(relation, lambda x: {"y": (x * 1.25).to(to)}, x=x) is False
