"""Layouts: the strides of each, where each applies, and how one number picks for all tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitproof.harness import layouts
from bitproof.harness.layouts import LAYOUTS, choose, lay, strides_of

X = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("layout", "strides"),
    [
        ("padded rows", (27, 9, 1)),
        ("padded outer axes", (16, 4, 1)),
        ("every second element", (24, 8, 2)),
        ("transposed", X.mT.contiguous().mT.stride()),
        ("expanded", None),  # its matrices differ
        ("dense", None),
    ],
)
def test_each_layout_has_its_strides(layout: str, strides: tuple[int, ...] | None) -> None:
    """Of [2, 3, 4]; a broken ratio between outer axes where only those are padded."""
    assert strides_of(layout, X) == strides


def test_a_tensor_is_expanded_where_its_values_are_equal() -> None:
    """Along the first axis, bit for bit: one NaN is like another of the same bits, -0 is not 0."""
    same = torch.tensor([1.0, float("nan")]).expand(3, 2).contiguous()
    assert strides_of("expanded", same) == (0, 1)
    assert strides_of("expanded", torch.ones(3)) == (0,)
    assert strides_of("expanded", torch.tensor([0.0, -0.0])) is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "tensor", [torch.tensor(1.0), torch.ones(1, 1, 1), torch.ones(0), torch.ones(2, 0, 3), X.mT]
)
def test_what_cannot_lie_otherwise_stays(layout: str, tensor: torch.Tensor) -> None:
    """No axis, axes of one element, no elements, and strides that a case gave itself."""
    assert strides_of(layout, tensor) is None


@given(shape=st.lists(st.integers(0, 4), max_size=4).map(tuple), layout=st.sampled_from(LAYOUTS))
def test_no_two_elements_share_memory_unless_expanded(shape: tuple[int, ...], layout: str) -> None:
    """Whatever the shape, each element has an address of its own."""
    tensor = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    strides = strides_of(layout, tensor)
    if strides is None:
        return
    offsets = torch.zeros(shape, dtype=torch.int64)
    for axis, step in enumerate(strides):
        steps = torch.arange(shape[axis]) * step
        offsets += steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    assert offsets.unique().numel() == tensor.numel()


def test_one_number_picks_for_each_tensor_apart() -> None:
    """0 is dense for all; among some numbers every pair of choices is met."""
    allowed: layouts.Allowed = {"x": ("transposed", "padded rows"), "w": ("transposed",)}
    assert choose(allowed, 0, "x") == "dense"
    assert choose(allowed, 7, "absent") == "dense"
    met = {(choose(allowed, n, "x"), choose(allowed, n, "w")) for n in range(1, 65)}
    assert len(met) == 6
    assert lay(allowed, 0, {"x": X}) == {}


def test_layouts_are_told_in_words() -> None:
    """Those that took effect, sorted by tensor."""
    allowed: layouts.Allowed = {"x": ("transposed",), "w": ("every second element",)}
    number = next(
        n for n in range(1, 65) if all(choose(allowed, n, name) != "dense" for name in allowed)
    )
    told = layouts.describe(allowed, number, {"x": X, "w": torch.ones(3)})
    assert told == ("w every second element", "x transposed")
    assert layouts.describe(allowed, number, {"x": torch.ones(1, 1), "w": X[:0]}) == ()


def test_values_are_made_such_that_a_layout_can_be() -> None:
    """An expanded tensor has its first row throughout; tensors that are one have the same values."""
    allowed: layouts.Allowed = {"x": ("expanded",)}
    number = next(n for n in range(1, 65) if choose(allowed, n, "x") == "expanded")
    made = layouts.impose(allowed, {}, number, {"x": X})
    assert torch.equal(made["x"], X[:1].expand(2, 3, 4))
    assert lay(allowed, number, made) == {"x": (0, 4, 1)}
    assert layouts.impose(allowed, {}, 0, {"x": X})["x"] is X
    shared: layouts.Shared = {("x", "w"): ("one tensor",)}
    number = next(n for n in range(1, 65) if layouts.choose_sharing(shared, n, ("x", "w")))
    assert layouts.share(shared, number, {"x": X, "w": X + 1}) == {}
    made = layouts.impose({}, shared, number, {"x": X, "w": X + 1})
    assert layouts.share(shared, number, made) == {("x", "w"): "one tensor"}
    assert layouts.describe({}, number, made, shared) == ("x, w one tensor",)


def test_views_into_a_fused_product_alternate_by_rows() -> None:
    """A row of q [3, 2, 4], then one of k [3, 5]: 13 elements, three times."""
    total, places = layouts.side_by_side([torch.ones(3, 2, 4), torch.ones(3, 5)])
    assert total == 39
    assert places == [(0, (13, 4, 1)), (8, (13, 1))]
