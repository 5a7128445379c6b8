"""A torch reference answers in float64, whatever it casts to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bitproof.harness.errors import SpecError
from bitproof.harness.references import Reference, declared_types, make_oracle
from bitproof.oracles import formats

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
X = torch.linspace(-3, 3, 24).reshape(4, 6)
EXACT = X.double()


def _answer(function: Any, **tensors: Tensor) -> Tensor:
    (answer,) = make_oracle(function)(tensors, {}).values()
    return answer


def _zeros_filled(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape, dtype=BF16, device=x.device)
    out[:2] = x[:2] / 3
    out[2:].copy_(x[2:] / 3)
    return out


def _in_place(x: Tensor) -> Tensor:
    y = x.to(BF16)
    y.mul_(2).div_(6)
    return y.float()


@pytest.mark.parametrize(
    "third",
    [
        lambda x: (x.to(BF16) / 3).float(),
        lambda x: x.half() / torch.tensor(3.0),
        lambda x: x.type(BF16).div(3),
        lambda x: torch.mul(x.bfloat16(), torch.ones((), dtype=BF16)) / 3,
        lambda x: torch.empty_like(x, dtype=FP16).copy_(x) / 3,
        lambda x: torch.sum(x[..., None] / 3, -1, dtype=BF16),
        lambda x: torch.einsum("ij,jk->ik", x.half(), torch.eye(6, dtype=FP16)) / 3,
        _zeros_filled,
        _in_place,
    ],
)
def test_no_cast_rounds(third: Any) -> None:
    """x / 3 through each way of casting down is x / 3 in float64."""
    np.testing.assert_array_max_ulp(_answer(third, x=X).numpy(), (EXACT / 3).numpy(), maxulp=1)


def test_a_reference_sees_the_types_that_it_declares() -> None:
    """Casts, promotion and torch.finfo behave as written."""
    seen: list[torch.dtype] = []

    def reference(x: Tensor) -> dict[str, Tensor]:
        y = x.to(BF16)
        seen.extend((x.dtype, y.dtype, (y + x).dtype, (y * 2.0).dtype, (y + y.sum()).dtype))
        assert torch.finfo(y.dtype).eps == 2.0**-7
        return {"y": y, "mask": y > 0, "place": y.argmax(-1), "wide": y @ y.t().float().to(BF16)}

    expected = {"y": BF16, "mask": torch.bool, "place": torch.int64, "wide": BF16}
    assert declared_types(reference)({"x": X}, {}) == expected
    assert seen == [FP32, BF16, FP32, BF16, BF16]


@pytest.mark.parametrize("name", ["bf16", "fp16", "e4m3", "e5m2", "fp32"])
def test_inputs_are_decoded_exactly(name: str) -> None:
    """Every finite code of a small type keeps its value, as do some of fp32."""
    fmt = formats.by_name(name)
    codes = np.arange(1 << min(fmt.bits, 16), dtype=fmt.storage)
    values = formats.decode(codes, fmt)
    held = torch.from_numpy(codes.view(f"i{codes.itemsize}")).view(fmt.torch_dtype)
    answer = _answer(lambda x: x.clone(), x=held).numpy()
    np.testing.assert_array_equal(answer, values)


def test_outputs_are_named() -> None:
    """By the reference's dict, by the names given, or by their places."""
    pair = make_oracle(lambda x: (x, x + 1))
    assert list(pair({"x": X}, {})) == ["output0", "output1"]
    named = make_oracle(Reference(function=lambda x: (x, x + 1), outputs=("a", "b")))
    assert list(named({"x": X}, {})) == ["a", "b"]
    assert list(make_oracle(lambda x: {"c": x})({"x": X}, {})) == ["c"]


def test_parameters_are_passed_by_name() -> None:
    """A reference takes those of the parameters that it names; the launch is none of them."""
    params = {"factor": 2.5, "unused": 1, "launch": None}
    oracle = make_oracle(lambda x, factor: x * factor)
    assert torch.equal(oracle({"x": X}, params)["output"], EXACT * 2.5)
    every = make_oracle(lambda **named: named["x"] * len(named))
    assert torch.equal(every({"x": X}, params)["output"], EXACT * 3)


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((6,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x.half(), (6,), eps=0.0).float() * self.weight


def test_a_module_runs_with_its_weights_or_with_given_ones() -> None:
    """Its parameters are lifted with everything else; a tensor of a parameter's name takes its place."""
    unit = EXACT / EXACT.square().mean(-1, keepdim=True).sqrt()
    own = _answer(_Scaled(), x=X)
    torch.testing.assert_close(own, unit * float(np.float32(0.1)), rtol=1e-14, atol=0)
    given = _answer(_Scaled(), x=X, weight=torch.full((6,), 2.0))
    torch.testing.assert_close(given, unit * 2, rtol=1e-14, atol=0)


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.to(BF16)
        ctx.save_for_backward(y)
        return y * y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return (2 * y * dy).to(FP32)


@pytest.mark.parametrize("square", [lambda x: x.to(BF16) ** 2, _Squared.apply])
def test_gradients_are_those_of_float64(square: Any) -> None:
    """The gradient of the lifted forward pass, and a backward pass that a reference writes itself."""
    reference = Reference(
        function=lambda x: square(x), outputs=("y",), gradients={"dx": "x"}, upstream={"y": "dy"}
    )
    dy = (X / 7).to(BF16)
    answers = make_oracle(reference)({"x": X, "dy": dy}, {})
    assert torch.equal(answers["y"], EXACT**2)
    assert torch.equal(answers["dx"], 2 * EXACT * dy.double())


def test_complex_numbers_are_lifted() -> None:
    """A rotation by complex products is the rotation in float64."""
    pairs = X.reshape(4, 3, 2)
    angles = torch.linspace(0, 3, 3)

    def rotate(x: Tensor, angles: Tensor) -> Tensor:
        turned = torch.view_as_complex(x.half().float()) * torch.polar(
            torch.ones_like(angles), angles
        )
        return torch.view_as_real(turned).to(BF16)

    c, s = torch.cos(angles.double()), torch.sin(angles.double())
    a, b = pairs.double().unbind(-1)
    expected = torch.stack((a * c - b * s, a * s + b * c), -1)
    torch.testing.assert_close(
        _answer(rotate, x=pairs, angles=angles), expected, rtol=0, atol=1e-15
    )


def test_what_the_reference_makes_itself_is_float64() -> None:
    """Ranges, constants and integers that become floats are not rounded to fp32."""

    def reference(n: Tensor) -> Tensor:
        return torch.arange(0, 1, 0.1) + n / 3 + torch.full((10,), 0.1) + n.float().sqrt()

    n = torch.arange(10)
    wide = n.double()
    expected = torch.arange(0, 1, 0.1, dtype=torch.float64) + wide / 3 + 0.1 + wide.sqrt()
    assert torch.equal(_answer(reference, n=n), expected)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda x, w: x, "it takes 'w', which no input has for a name: there are x"),
        (lambda x: 1, "its output 'output' is int, not a tensor"),
        (lambda x: x.reshape(7), "it raised RuntimeError"),
        (lambda x: X.mul_(x), "into a tensor that it did not make"),
        (lambda x: (x / 3).view(torch.int32), "float64 has no such bits"),
        (Reference(function=lambda x: x, outputs=("a", "b")), "it returns 1 outputs, but"),
        (Reference(function=lambda x: x, gradients={"dz": "z"}), "for 'z', which is no input"),
        (Reference(function=lambda x: x, gradients={"dx": "x"}), "upstream names no gradient"),
    ],
)
def test_what_cannot_be_answered_is_said(reference: Any, message: str) -> None:
    """A sentence that names the reference and what is wrong."""
    with pytest.raises(SpecError, match=message):
        make_oracle(reference)({"x": X}, {})
