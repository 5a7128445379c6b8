"""The dsReLU oracle against rational arithmetic, and its intervals against fp32 in another order."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from bitproof.oracles import dsrelu
from bitproof.oracles.estimates import around
from bitproof.oracles.formats import to_numpy

PLAIN = {"quantised": False}


def problem(seed: int = 0, tokens: tuple[int, ...] = (2, 0, 3), slack: int = 1) -> dict[str, Any]:
    """Six rows of three groups, the last row in no group; 5 columns, 4 deep; two experts."""
    draw = np.random.default_rng(seed)
    m, n, k, x = sum(tokens) + slack, 5, 4, 2

    def bf16(*shape: int) -> torch.Tensor:
        return torch.tensor(draw.standard_normal(shape), dtype=torch.bfloat16)

    def fp32(*shape: int) -> torch.Tensor:
        return torch.tensor(draw.standard_normal(shape), dtype=torch.float32)

    return {
        "a": bf16(m, k),
        "b": bf16(x, n, k),
        "c": bf16(m, n),
        "prob": fp32(m),
        "alpha": fp32(x),
        "offsets": torch.tensor(np.cumsum([0, *tokens]), dtype=torch.int32),
        "experts": torch.tensor([1, 0, 0][: len(tokens)], dtype=torch.int32),
        "dprob": fp32(m),
        "dbias": fp32(len(tokens), n),
    }


def exact(tensor: torch.Tensor) -> Any:
    """The elements as fractions, nested as the tensor is."""
    nested = tensor.double().tolist()
    convert = lambda v: [convert(e) for e in v] if isinstance(v, list) else Fraction(v)  # noqa: E731
    return convert(nested)


def test_the_formulas_are_those_of_the_kernel_in_rational_arithmetic() -> None:
    """Element by element, with exact sums; a negative C counts as zero, and a row of no group as nothing."""
    tensors = problem()
    found = dsrelu.backward(tensors, PLAIN)
    t = {name: exact(tensors[name]) for name in ("a", "b", "c", "prob", "alpha", "dprob", "dbias")}
    dprob, dbias = t["dprob"], t["dbias"]
    amax = [Fraction(-1)] * 3
    starts = tensors["offsets"].tolist()
    for group, expert in enumerate(tensors["experts"].tolist()):
        for m in range(starts[group], starts[group + 1]):
            for n in range(5):
                dot = sum(x * y for x, y in zip(t["a"][m], t["b"][expert][n], strict=True))
                g, r = t["alpha"][expert] * dot, max(t["c"][m][n], Fraction(0))
                d = 2 * t["prob"][m] * r * g
                inside(found["d_row"], (m, n), d, 2.0**-8)
                inside(found["d_srelu"], (m, n), t["prob"][m] * r * r, 2.0**-8)
                dprob[m] += r * r * g
                dbias[group][n] += d
                amax[group] = max(amax[group], abs(d))
    for m in range(6):
        inside(found["dprob"], (m,), dprob[m], 2.0**-14)
        for n in range(5) if m == 5 else ():
            assert found["d_row"].high[m, n] == found["d_row"].low[m, n] == 0
    for group in range(3):
        for n in range(5):
            inside(found["dbias"], (group, n), dbias[group][n], 2.0**-14)
    assert found["amax"].value[1] == found["amax"].high[1] == -np.inf
    for group in (0, 2):
        inside(found["amax"], (group,), amax[group], 2.0**-14)


def inside(estimate: Any, index: tuple[int, ...], value: Fraction, width: float) -> None:
    """The interval holds what float64 says of the value, and is no wider than some relative error."""
    assert estimate.value[index] == pytest.approx(float(value), rel=2.0**-40, abs=2.0**-45)
    reach = estimate.high[index] - estimate.low[index]
    assert reach <= 2 * width * max(abs(float(value)), 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_fp32_arithmetic_in_another_order_lies_inside(seed: int) -> None:
    """numpy's fp32, sums taken backwards, stored in bf16: every output is inside its interval."""
    tensors = problem(seed, tokens=(5,), slack=0)
    found = dsrelu.backward(tensors, PLAIN)
    a, b, c = (to_numpy(tensors[name]).astype(np.float32) for name in "abc")
    prob, alpha = to_numpy(tensors["prob"]), to_numpy(tensors["alpha"])
    acc = np.zeros((5, 5), dtype=np.float32)
    for k in reversed(range(4)):
        acc += a[:, k : k + 1] * b[1, :, k]
    g, r = alpha[1] * acc, np.maximum(c, 0)
    d = 2 * prob[:, None] * r * g
    got = {
        "d_row": d.astype(ml_dtypes.bfloat16).astype(np.float64),
        "d_srelu": (prob[:, None] * r * r).astype(ml_dtypes.bfloat16).astype(np.float64),
        "dprob": to_numpy(tensors["dprob"]) + (r * r * g)[:, ::-1].sum(1, dtype=np.float32),
        "dbias": to_numpy(tensors["dbias"]) + d[::-1].sum(0, dtype=np.float32),
        "amax": np.abs(d).max(keepdims=True)[0],
    }
    for name, values in got.items():
        assert (found[name].low <= values).all(), name
        assert (values <= found[name].high).all(), name


def test_nan_of_c_counts_as_negative_and_nan_of_a_is_kept() -> None:
    """D is NaN in a row of A with a NaN, where C is not negative and even where it is: 0 * NaN."""
    tensors = problem()
    tensors["c"][0] = float("nan")
    tensors["a"][1, 2] = float("nan")
    found = dsrelu.backward(tensors, PLAIN)
    assert (found["d_row"].value[0] == 0).all()
    assert np.isnan(found["d_row"].value[1]).all()
    assert np.isnan(found["amax"].value[0])
    assert np.isnan(found["dbias"].value[0]).all()
    assert not np.isnan(found["dbias"].value[2]).any()


@pytest.mark.parametrize(
    ("value", "code", "scale"),
    [
        (448.0, 448.0, 127),
        (449.0, 224.0, 128),
        (1.0, 256.0, 119),
        (0.875 * 2.0**-118, 448.0, 0),
        (2.0**-126, 2.0, 0),
        (0.0, 0.0, 0),
    ],
)
def test_a_block_is_scaled_by_the_smallest_power_that_covers_it(
    value: float, code: float, scale: int
) -> None:
    """Exact values have one answer: 448 * 2^e just covers, the next float needs 2^(e + 1)."""
    codes, scales = dsrelu._blocks(around(np.array([[value, -value]]), 0.0))
    assert scales.value.tolist() == scales.low.tolist() == scales.high.tolist() == [[scale]]
    assert codes.low.tolist() == codes.high.tolist() == [[code, -code]]


def test_an_uncertain_maximum_admits_two_scales_and_the_codes_of_both() -> None:
    """Just at 448 give or take a little: scale 1 or 2, and a code for either."""
    codes, scales = dsrelu._blocks(around(np.array([[448.0, 16.0]]), 1e-4))
    assert (scales.low[0, 0], scales.high[0, 0]) == (127, 128)
    assert (codes.low[0, 1], codes.high[0, 1]) == (8.0, 16.0)


def test_a_block_with_a_nan_is_nan() -> None:
    """Its scale is 255, all of its codes NaN, and the next block is as it was."""
    values = np.ones((1, 40))
    values[0, 3] = np.nan
    codes, scales = dsrelu._blocks(around(values, 0.0))
    assert scales.value.tolist() == [[255.0, 119.0]]
    assert np.isnan(codes.value[0, :32]).all()
    assert (codes.value[0, 32:] == 256.0).all()


def test_column_blocks_begin_with_their_group() -> None:
    """33 rows, none, then 2: two blocks, no block, one block, and rows of zeros for the rest."""
    tensors = problem(tokens=(33, 0, 2), slack=0)
    scale = dsrelu.backward(tensors, {"quantised": True})["d_col_scale"]
    assert scale.shape == (2 + 3, 5)
    assert (scale.value[:3].max(axis=1) > 0).all()
    assert (scale.value[3:] == 0).all()


def test_scaled_operands_are_dequantised_block_by_block() -> None:
    """32 elements share a power of two; the last block may be shorter."""
    codes = torch.full((1, 40), 1.5).to(torch.float8_e4m3fn)
    scale = torch.tensor([[128, 126]], dtype=torch.uint8)
    assert dsrelu.dequantise(codes, scale).tolist() == [[3.0] * 32 + [0.75] * 8]
