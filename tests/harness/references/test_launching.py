"""A function that is called as a reference is answers by the same names, gradients included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bitproof.harness.errors import SpecError
from bitproof.harness.references import Reference, run_like

X, W, DY = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]), torch.tensor([10.0, 100.0])


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return dy * w, -dy * x  # the second of the wrong sign


PRODUCT = Reference(
    function=lambda x, w: x * w,
    outputs=("y",),
    gradients={"dx": "x", "dw": "w"},
    upstream={"y": "dy"},
)


def test_an_autograd_function_answers_with_its_own_gradients() -> None:
    """Right ones and wrong ones: they are its backward pass's, not the reference's."""
    run: Any = run_like(PRODUCT, lambda w, x: _Product.apply(x, w))
    found = run({"x": X, "w": W, "dy": DY}, {"launch": None})
    assert {name: one.tolist() for name, one in found.items()} == {
        "y": [3.0, 10.0],
        "dx": [30.0, 500.0],
        "dw": [-10.0, -200.0],
    }
    assert not any(one.requires_grad for one in (*found.values(), X, W))


def test_a_function_without_gradients_runs_without_autograd() -> None:
    """As in inference, parameters by name; tensors named as a module's weights stand in for them."""
    run = run_like(Reference(function=torch.mul, outputs=("y",)), nn.Linear(2, 1, bias=False))
    found = run({"input": X, "weight": W[None]}, {"unused": 1})
    assert found["y"].tolist() == [13.0]


def test_a_name_that_no_input_has_is_said() -> None:
    """As of a reference."""
    with pytest.raises(SpecError, match="it takes 'z', which no input has for a name"):
        run_like(PRODUCT, lambda x, z: x * z)({"x": X, "w": W, "dy": DY}, {})
