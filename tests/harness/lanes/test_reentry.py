"""What a backward pass or a custom operator allocates is poisoned and guarded like the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from bitproof.harness.outcomes import Outcome
from tests.harness.plain import checked, variant


class Scaled(torch.autograd.Function):
    """y = factor * x, whose backward pass leaves the last element of a gradient unwritten if `short`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float, short: bool) -> Tensor:
        ctx.factor, ctx.short = factor, short
        return x * factor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (dy,) = gradients
        dx = torch.empty_like(dy)
        count = dx.numel() - ctx.short
        torch.mul(dy.reshape(-1)[:count], ctx.factor, out=dx.view(-1)[:count])
        return dx, None, None


@torch.library.custom_op("bitproof_tests::scale", mutates_args=())
def scale(x: Tensor, factor: float, short: bool) -> Tensor:
    """factor * x, its last element unwritten if `short`."""
    y = torch.empty_like(x)
    count = y.numel() - short
    torch.mul(x.reshape(-1)[:count], factor, out=y.view(-1)[:count])
    return y


@torch.library.custom_op("bitproof_tests::overrun", mutates_args=())
def overrun(x: Tensor, factor: float, far: bool) -> Tensor:
    """factor * x, and if `far` one element more than there are."""
    y = torch.empty_like(x)
    torch.mul(x, factor, out=y)
    if far:
        torch.as_strided(y, (1,), (1,), y.storage_offset() + y.numel()).fill_(1.0)
    return y


def outcome(compute: Callable[[Tensor, float, bool], Tensor], wrong: bool) -> Any:
    """What the memory check makes of a launcher that computes y so."""

    def run(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
        return {"y": compute(tensors["x"], params["factor"], wrong)}

    return checked("memory", variant(run=run))


@pytest.mark.parametrize("call", [torch.autograd.grad, None], ids=["grad", "backward"])
def test_memory_finds_a_gradient_nobody_wrote(call: Any) -> None:
    """A gradient that a launcher returns as its backward pass made it."""

    def compute(x: Tensor, factor: float, wrong: bool) -> Tensor:
        leaf = x.detach().requires_grad_()
        y = Scaled.apply(leaf, factor, wrong)
        if call is not None:
            (gradient,) = call(y, leaf, x)
            return gradient
        y.backward(x)
        assert leaf.grad is not None
        return leaf.grad

    assert outcome(compute, wrong=False).outcome is Outcome.PASSED
    found = outcome(compute, wrong=True)
    assert found.outcome is Outcome.FAILED
    assert "y[1, 2] was never written (1 of 6 elements)" in found.text


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        (torch.ops.bitproof_tests.scale, "y[1, 2] was never written (1 of 6 elements)"),
        (torch.ops.bitproof_tests.scale.default, "y[1, 2] was never written"),
        (scale, "y[1, 2] was never written"),
        (torch.ops.bitproof_tests.overrun, "a write outside y: the byte +24"),
    ],
    ids=["packet", "overload", "definition", "overrun"],
)
def test_memory_watches_custom_operators(operator: Any, text: str) -> None:
    """Poison and guards lie around what their kernels allocate."""
    assert outcome(operator, wrong=False).outcome is Outcome.PASSED
    found = outcome(operator, wrong=True)
    assert found.outcome is Outcome.FAILED
    assert text in found.text
