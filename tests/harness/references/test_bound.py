"""A bound by a reference: right kernels are inside it, wrong ones are not, and nothing is typed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bitproof.harness.bounds import all_of
from bitproof.harness.bounds.norms import relative_rms
from bitproof.harness.case import Inputs
from bitproof.harness.errors import SpecError
from bitproof.harness.references import Operands, Reference, find_looseness, make_bound, make_oracle
from bitproof.harness.references.sampling import Sampled
from bitproof.harness.report import compare
from bitproof.oracles import formats
from tests.harness.plain import variant
from tests.harness.references.operations import (
    BF16,
    FAMILIES,
    FP16,
    FP32,
    OPERATIONS,
    make_inputs,
    right_kernels,
)


def _outside(reference: Any, got: Tensor, output: str = "output", **tensors: Tensor) -> int:
    """How many elements of `got` are outside the bound."""
    expected = make_oracle(reference)(tensors, {})[output].numpy()
    bound = make_bound(reference).at(output, tensors, {})
    judgement = bound.judge(formats.to_numpy(got), expected)
    return 0 if judgement is None else int(judgement.bad.sum())


def _normal(*shape: int, seed: int = 0, dtype: torch.dtype = FP32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("name", ["rms_norm", "rms_norm_stored", "softmax", "swiglu", "centred"])
def test_right_kernels_are_inside(name: str) -> None:
    """On every family of values, in one type each, forward and backward."""
    operation = OPERATIONS[name]
    oracle, bound = make_oracle(operation.reference), make_bound(operation.reference)
    for seed, family in enumerate(FAMILIES):
        dtype = operation.dtypes[seed % len(operation.dtypes)]
        tensors = make_inputs(operation, family, seed, dtype)
        exact = oracle(tensors, {})
        for kernel, outputs in right_kernels(operation, tensors, exact):
            for output, got in outputs.items():
                at = bound.at(output, tensors, {})
                judgement = at.judge(formats.to_numpy(got), exact[output].numpy())
                assert judgement is None or not judgement.bad.any(), (kernel, family, dtype, output)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_no_right_kernel_is_called_wrong(name: str) -> None:
    """Four seeds of every family in every type: some 4000 cases and kernels of all operations together."""
    operation = OPERATIONS[name]
    oracle, bound = make_oracle(operation.reference), make_bound(operation.reference)
    wrong = []
    for dtype, family, seed in itertools.product(operation.dtypes, FAMILIES, range(100, 104)):
        tensors = make_inputs(operation, family, seed, dtype)
        exact = oracle(tensors, {})
        for kernel, outputs in right_kernels(operation, tensors, exact):
            for output, got in outputs.items():
                at = bound.at(output, tensors, {})
                judgement = at.judge(formats.to_numpy(got), exact[output].numpy())
                if judgement is not None and judgement.bad.any():
                    wrong.append((kernel, output, dtype, family, seed, judgement.ratio))
    assert wrong == []


def test_accumulation_in_half_precision_is_outside() -> None:
    """A product whose partial sums are rounded to bf16 is no product of bf16 operands."""
    x, w = _normal(8, 256, dtype=BF16), _normal(256, 8, seed=1, dtype=BF16)
    sums = torch.zeros(8, 8, dtype=BF16)
    for k in range(256):
        sums = (sums.float() + torch.outer(x[:, k].float(), w[k].float())).to(BF16)
    product = lambda x, w: x @ w  # noqa: E731
    assert _outside(product, x @ w, x=x, w=w) == 0
    assert _outside(product, sums, x=x, w=w) > 0


def test_one_wrong_element_in_a_long_row_is_outside() -> None:
    """Eight units of one element in four thousand, which a norm would hide."""
    x = _normal(1, 4096, dtype=BF16)
    right = (x.float() * 3).to(BF16)
    wrong = right.clone()
    wrong[0, 77] *= 1.03
    triple = lambda x: x.float() * 3  # noqa: E731
    assert _outside(lambda x: (x.float() * 3).to(BF16), right, x=x) == 0
    assert _outside(lambda x: (x.float() * 3).to(BF16), wrong, x=x) == 1
    assert _outside(triple, right.float(), x=x) > 0


# --- what a sample has to model


def test_noise_is_independent_so_that_cancellation_shows() -> None:
    """x + y - y loses what y's size loses; one error for all elements would cancel."""
    x, y = _normal(4, 64), torch.full((4, 64), 4096.0)
    lossy = lambda x, y: (x + y) - y  # noqa: E731
    assert _outside(lossy, (x + y) - y, x=x, y=y) == 0
    assert _outside(lambda x, y: x + (y - y), (x + y) - y, x=x, y=y) > 0
    rounded = (x + y * (1 + 2.0**-20)) - y
    assert _outside(lossy, rounded, x=x, y=y) > 0


def test_a_stored_value_is_the_rounded_one_in_the_backward_pass() -> None:
    """y² with y stored in bf16: the gradient 2·y·dy of the rounded y is right, that of fp32 too."""
    x, dy = _normal(4, 64), _normal(4, 64, seed=1)
    stored = Reference(
        function=lambda x: (x.to(BF16).float() ** 2).sum(-1, keepdim=True).expand(4, 64),
        gradients={"dx": "x"},
        upstream={"output": "dy"},
    )
    total = dy.sum(-1, keepdim=True)
    assert _outside(stored, 2 * x.to(BF16).float() * total, "dx", x=x, dy=dy) == 0
    kept = Reference(
        function=lambda x: (x**2).sum(-1, keepdim=True).expand(4, 64),
        gradients={"dx": "x"},
        upstream={"output": "dy"},
    )
    assert _outside(kept, 2 * x * total, "dx", x=x, dy=dy) == 0
    assert _outside(kept, 2 * x.to(BF16).float() * total, "dx", x=x, dy=dy) > 0


def test_a_value_read_twice_was_rounded_once() -> None:
    """y - y is 0 for a stored y, whatever its rounding was."""
    x = _normal(4, 64)

    def reference(x: Tensor) -> Tensor:
        y = (x / 3).to(BF16)
        return y - y.clone().view(4, 64)

    assert _outside(reference, torch.zeros(4, 64, dtype=BF16), x=x) == 0
    assert _outside(reference, torch.full((4, 64), 1e-4, dtype=BF16), x=x) > 0


def test_the_argument_of_an_exponential_is_rounded() -> None:
    """exp2 of a rounded x·log2(e) is right at x = -80, to fp32's accuracy there; one of bf16 is not."""
    x = -80 + _normal(4, 64)
    by_two = torch.exp2(x * 1.44269504)
    coarse = torch.exp(x.to(BF16).float())
    assert (by_two != torch.exp(x)).any()
    exponential = lambda x: torch.exp(x)  # noqa: E731
    assert _outside(exponential, by_two, x=x) == 0
    assert _outside(exponential, coarse, x=x) > 0


def test_subnormals_of_fp32_may_be_flushed_and_those_of_fp16_may_not() -> None:
    """Cards flush the former in arithmetic; they round the latter like other numbers."""
    x = torch.full((4, 64), 2.0**-100) * (1.5 + _normal(4, 64).abs())
    square = lambda x: x * x * 2.0**70  # noqa: E731
    assert _outside(square, torch.where(x * x > 2.0**-126, x * x, 0.0) * 2.0**70, x=x) == 0
    small = torch.full((4, 64), 2.0**-18) * (1.5 + _normal(4, 64).abs())
    halve = lambda x: x.to(FP16)  # noqa: E731
    assert _outside(halve, small.half(), x=small) == 0
    assert _outside(halve, torch.zeros(4, 64, dtype=FP16), x=small) == 256


def test_where_the_declared_precision_overflows_either_answer_is_right() -> None:
    """The exact answer, and the infinity of fp16; but neither a NaN nor an infinity elsewhere."""
    x = torch.tensor([[1.0, 300.0, 2.0, 3.0]], dtype=FP16)
    root = lambda x: (x * x).sqrt()  # noqa: E731
    infinite = (x * x).sqrt()
    assert infinite.isinf().sum() == 1
    assert _outside(root, infinite, x=x) == 0
    assert _outside(root, x, x=x) == 0
    for place, value in ((1, float("nan")), (2, float("inf"))):
        wrong = x.clone()
        wrong[0, place] = value
        assert _outside(root, wrong, x=x) == 1


@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_a_gradient_that_cancels_has_a_floor(dtype: torch.dtype) -> None:
    """The gradient of a softmax at a constant upstream is 0; fp32 leaves the rounding of its terms."""
    x, dy = _normal(4, 64, dtype=dtype), torch.full((4, 64), 0.7, dtype=dtype)
    reference = Reference(
        function=lambda x: torch.softmax(x.float(), -1).to(x.dtype),
        gradients={"dx": "x"},
        upstream={"output": "dy"},
    )
    y = torch.softmax(x.float(), -1)
    wide = dy.float()
    dx = (y * wide - y * (y * wide).sum(-1, keepdim=True)).to(dtype)
    assert dx.any()
    assert _outside(reference, dx, "dx", x=x, dy=dy) == 0
    assert _outside(reference, dx + y.to(dtype) * 2.0**-8, "dx", x=x, dy=dy) > 0


def test_equal_numbers_round_alike() -> None:
    """A mean of products stored in bf16: where all are equal, so are their errors, and they add up."""
    x = torch.full((4, 1024), 1.0078125, dtype=BF16)
    reference = lambda x: (x * x).float().mean(-1)  # noqa: E731
    assert _outside(reference, (x * x).float().mean(-1), x=x) == 0
    assert _outside(reference, (x.float() * x.float()).mean(-1), x=x) == 0


def test_a_sum_in_any_order_is_right() -> None:
    """Sums that cancel, added one after another and from the other end."""
    x = _normal(8, 1024) * 1000
    total = lambda x: x.sum(-1)  # noqa: E731
    assert _outside(total, x.cumsum(-1)[:, -1], x=x) == 0
    assert _outside(total, x.flip(-1).cumsum(-1)[:, -1], x=x) == 0
    assert _outside(total, x.to(BF16).float().sum(-1), x=x) == 8


def test_integers_are_those_of_the_answer_or_of_a_sample() -> None:
    """An index may differ where the reference's own precision cannot tell two values apart."""
    x = torch.tensor([[1.0, 1.0 + 2.0**-20, 0.5], [3.0, 1.0, 2.0]])
    largest = lambda x: x.to(BF16).argmax(-1)  # noqa: E731
    assert _outside(largest, torch.tensor([1, 0]), x=x) == 0
    assert _outside(largest, torch.tensor([0, 0]), x=x) == 0
    assert _outside(largest, torch.tensor([2, 1]), x=x) == 2


def test_a_product_may_be_fused_with_the_sum_that_follows() -> None:
    """In a·b - c·d one product is rounded alone: rounding both to nearest loses nothing here."""
    left, right = (1 + 2**-14, 1 + 2**-14), (1 + 3 * 2**-14, 1 + 11 * 2**-14)
    tensors = {
        name: torch.tensor([one], dtype=FP32)
        for name, one in zip("abcd", (*left, *right), strict=True)
    }

    def cross(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        return a * b - c * d

    exact = make_oracle(cross)(tensors, {})["output"].numpy()
    bound = make_bound(cross).at("output", tensors, {})
    for fused in (exact - 2.0**-28, exact + 2.0**-28):
        got = fused.astype(np.float32)
        alone = bound.with_samples(1).judge(got, exact)
        assert alone is not None
        assert alone.bad.all()
        judged = bound.with_samples(3).judge(got, exact)
        assert judged is None or not judged.bad.any()


@pytest.mark.parametrize("values", [torch.tensor([True, False]), torch.tensor([7, 1])])
def test_integers_and_booleans_become_numbers(values: Tensor) -> None:
    """A cast of what has no floating type is no rounding of one that has."""
    assert not _outside(
        lambda x, n: x + n.float(),
        torch.full((2,), 2.0) + values,
        x=torch.full((2,), 2.0),
        n=values,
    )


def test_products_may_run_in_tf32_only_where_that_is_said() -> None:
    """Operands of 10 bits are outside the bound of fp32 products, and inside that of tf32's."""
    x, w = _normal(8, 64), _normal(64, 8, seed=1)
    truncated = [(one.view(torch.int32) & ~0x1FFF).view(FP32) for one in (x, w)]
    got = formats.to_numpy(truncated[0] @ truncated[1])
    reference = lambda x, w: x @ w  # noqa: E731
    tensors = {"x": x, "w": w}
    expected = make_oracle(reference)(tensors, {})["output"].numpy()
    bad = []
    narrow: tuple[Operands, ...] = ("declared", "tf32")
    for operands in narrow:
        judged = (
            make_bound(reference, operands=operands).at("output", tensors, {}).judge(got, expected)
        )
        assert judged is not None
        bad.append(bool(judged.bad.any()))
    assert bad == [True, False]


# --- as a bound of a spec


def test_a_bound_is_a_function_of_the_inputs() -> None:
    """Two bounds of the same reference on the same inputs allow the same to the last bit."""
    x = _normal(4, 16, dtype=BF16)
    reference = lambda x: torch.softmax(x, -1)  # noqa: E731
    expected = make_oracle(reference)({"x": x}, {})["output"].numpy()
    got = formats.to_numpy(torch.softmax(x + 0.5 * x, -1))
    first, second = (
        make_bound(reference).at("output", {"x": x.clone()}, {}).judge(got, expected)
        for _ in range(2)
    )
    assert first is not None
    assert second is not None
    assert first.bad.any()
    assert (first.allowed == second.allowed).all()


def test_a_report_judges_by_it_beside_other_bounds() -> None:
    """`compare` asks for the bound on its inputs, inside `all_of` too, and words the failure."""
    reference = Reference(function=lambda x: torch.softmax(x.float(), -1).to(BF16), outputs=("y",))
    bound = all_of(relative_rms(0.01, because="a contract asks it"), make_bound(reference))
    spec = variant(oracle=make_oracle(reference), bounds={"y": bound})
    x = _normal(4, 16)
    inputs = Inputs(tensors={"x": x}, params={})
    right = torch.softmax(x, -1).to(BF16)
    assert compare.against_oracle(spec, {"y": right}, inputs)[0] == []
    wrong = right.clone()
    wrong[2, 3] *= 1.02
    (finding,), worst = compare.against_oracle(spec, {"y": wrong}, inputs)
    assert finding.index is not None
    assert finding.index[0] == 2
    assert worst > 1
    assert "18 runs in the precision it declares" in "\n".join(finding.lines)


def test_a_bound_without_inputs_says_what_it_needs() -> None:
    """It is no number."""
    with pytest.raises(SpecError, match="call at"):
        make_bound(torch.exp).judge(_normal(2).numpy(), _normal(2).double().numpy())
    with pytest.raises(SpecError, match="two or more samples"):
        make_bound(torch.exp, samples=1)
    with pytest.raises(SpecError, match="has no output 'z': it has output"):
        _outside_of_none(_normal(2))


def _outside_of_none(x: Tensor) -> None:
    bound = make_bound(lambda x: x * 2).at("z", {"x": x}, {})
    bound.judge(x.numpy(), x.double().numpy())


@pytest.mark.parametrize(("size", "overflows"), [(16.0, False), (300.0, True)])
def test_a_reference_may_leave_the_range_of_its_types(size: float, overflows: bool) -> None:
    """The square of 300 is beyond fp16, where the root of it is not."""
    x = torch.full((2, 4), size, dtype=FP16)
    root = lambda x: (x * x).sqrt()  # noqa: E731
    expected = make_oracle(root)({"x": x}, {})["output"].numpy()
    bound = make_bound(root).at("output", {"x": x}, {})
    assert bound.overflows(expected, formats.to_numpy(x).dtype) == overflows
    assert bound.overflows(expected * 1e6, formats.to_numpy(x).dtype)


# --- looseness


def test_a_bound_that_passes_zeros_is_called_too_wide() -> None:
    """A typed tolerance is, on small outputs; the reference's bound on the same inputs is not."""
    x = _normal(4, 16) * 1e-3
    reference = lambda x: x * 2  # noqa: E731
    expected = make_oracle(reference)({"x": x}, {})["output"].numpy()
    derived = make_bound(reference).at("output", {"x": x}, {})
    dtype = formats.to_numpy(x).dtype
    assert find_looseness(derived, expected, dtype) == ""
    typed = relative_rms(2.0, because="nobody measured it")
    assert "it passes zeros" in find_looseness(typed, expected, dtype)
    assert "it passes each row" in find_looseness(
        relative_rms(0.9, because="rows alike"), expected + 1.0, dtype
    )


def test_a_reference_that_loses_everything_is_called_too_wide() -> None:
    """In bf16, 256 + x - 256 is 0 for small x: no output can be told from another."""
    x = _normal(4, 16) * 1e-3
    reference = lambda x: (x.to(BF16) + 256) - 256  # noqa: E731
    expected = make_oracle(reference)({"x": x}, {})["output"].numpy()
    bound = make_bound(reference).at("output", {"x": x}, {})
    assert "too wide" in find_looseness(bound, expected, formats.to_numpy(x.to(BF16)).dtype)


def test_where_answers_are_alike_nothing_is_said() -> None:
    """Zeros are the answer of zeros, and equal rows those of each other."""
    zeros = torch.zeros(4, 16)
    bound = make_bound(lambda x: x * 2).at("output", {"x": zeros}, {})
    assert find_looseness(bound, zeros.double().numpy(), formats.to_numpy(zeros).dtype) == ""


def test_a_sample_is_independent_in_every_element() -> None:
    """Equal numbers become both of their neighbours."""
    generator = torch.Generator().manual_seed(0)
    ones = torch.full((1000,), 1 + 2.0**-9, dtype=torch.float64)
    rounded = Sampled(generator=generator).finish(torch.ops.aten.add.Tensor, None, ones, BF16)
    assert set(rounded.tolist()) == {1.0, 1 + 2.0**-7}
    assert 0.2 < (rounded > 1).double().mean() < 0.3
