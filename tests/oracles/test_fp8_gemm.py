"""Block-scaled products and experts: values by other arithmetic, intervals by tensor-core models."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bitproof.harness.case import Launch
from bitproof.kernels.fp8_gemm.cases import LinearCase
from bitproof.kernels.fp8_gemm.cases_experts import AlignCase, ExpertsCase, Routing
from bitproof.oracles import tensor_cores
from bitproof.oracles.estimates import Estimate, around, exactly
from bitproof.oracles.formats import to_numpy
from bitproof.oracles.fp8_gemm import bits, experts, products
from bitproof.oracles.quantize import per_token_group
from bitproof.oracles.tensor_cores import SM_90

CPU = torch.device("cpu")
CASES = {
    "two tails": LinearCase(rows=3, columns=130, depth=200, spread=2),
    "one-sided": LinearCase(rows=2, columns=5, depth=384, kind="one-sided"),
    "any codes": LinearCase(rows=3, columns=4, depth=256, kind="any", spread=20),
    "powers of two": LinearCase(rows=3, columns=4, depth=256, powers=True, extremes=True),
}


def rational(tensors: dict[str, Any], m: int, n: int) -> Fraction:
    """One element by its definition."""
    scales = {
        name: [[Fraction(float(v)) for v in row] for row in products.scale_values(tensors[name])]
        for name in ("a_scale", "b_scale")
    }
    a, b = tensors["a"][m].double().tolist(), tensors["b"][n].double().tolist()
    return sum(
        (
            Fraction(x)
            * Fraction(w)
            * scales["a_scale"][m][k // 128]
            * scales["b_scale"][n // 128][k // 128]
            for k, (x, w) in enumerate(zip(a, b, strict=True))
        ),
        Fraction(0),
    )


@pytest.mark.parametrize("name", CASES)
def test_a_linear_is_its_definition_in_rational_arithmetic(name: str) -> None:
    """Scales of tokens and of 128 x 128 weights, block by block; the exact answer is inside."""
    case = CASES[name]
    tensors = case.tensors(CPU)
    found = products.linear(tensors, case.params())["y"]
    for m, n in ((0, 0), (case.rows - 1, case.columns - 1)):
        exact = rational(tensors, m, n)
        assert Fraction(found.low[m, n]) <= exact <= Fraction(found.high[m, n])
        assert found.value[m, n] == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("key", [("e4m3", "wgmma"), ("e4m3", "mma"), ("bf16", "wgmma")])
def test_what_a_tensor_core_gives_is_well_inside(name: str, key: tuple[str, str]) -> None:
    """Under half of the bound, whichever instruction multiplies."""
    case = CASES[name]
    tensors = case.tensors(CPU)
    params = {"decoded": key[0] == "bf16", "out": "fp32"}
    found = products.linear(tensors, params)["y"]
    got = bits.linear(tensors, params, SM_90[key]).astype(np.float64)
    assert (np.abs(got - found.value) <= 0.5 * found.error).all()


def test_what_is_never_promoted_falls_outside() -> None:
    """4096 one-sided products summed by the tensor core alone lose several percent."""
    case = LinearCase(rows=2, columns=2, depth=4096, kind="one-sided")
    tensors = case.tensors(CPU)
    for name in ("a_scale", "b_scale"):
        tensors[name] = torch.ones_like(tensors[name])
    found = products.linear(tensors, case.params())["y"]
    a, b = (tensors[name].view(torch.uint8).numpy() for name in ("a", "b"))
    start = np.zeros((2, 2), dtype=np.float32)
    lost = tensor_cores.multiply(a, b.T, start, bits.E4M3, SM_90["e4m3", "wgmma"])
    assert (lost < found.low).all()


@settings(max_examples=200)
@given(*(st.floats(width=32, min_value=-(2.0**50), max_value=2.0**50) for _ in "xyz"))
def test_a_multiply_add_rounds_once(x: float, y: float, z: float) -> None:
    """The exact value lies no farther than half a step from what is returned, ties to even."""
    found = bits.multiply_add(*(np.array([v], np.float32) for v in (x, y, z)))[0]
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    distance = abs(Fraction(float(found)) - exact)
    others = (np.nextafter(found, np.float32(side)) for side in (-np.inf, np.inf))
    for other in others:
        apart = abs(Fraction(float(other)) - exact)
        assert distance <= apart
        if distance == apart:
            assert int(np.array(found).view(np.uint32)) % 2 == 0


def test_blocks_are_multiplied_apart() -> None:
    """Small integers are summed exactly: only the scales' roundings are left, and they are powers of two."""
    case = LinearCase(rows=4, columns=8, depth=300, powers=True, spread=3)
    tensors = case.tensors(CPU)
    for name in ("a", "b"):
        small = torch.tensor([0x00, 0x38, 0x40, 0xB8], dtype=torch.uint8)  # 0, 1, 2, -1
        codes = tensors[name].view(torch.uint8).long() % 4
        tensors[name] = small[codes].view(torch.float8_e4m3fn)
    params = {**case.params(), "out": "fp32"}
    found = products.linear(tensors, params)["y"].value
    for decoded in (False, True):
        key = ("bf16", "wgmma") if decoded else ("e4m3", "wgmma")
        got = bits.linear(tensors, {**params, "decoded": decoded}, SM_90[key])
        assert np.array_equal(got.astype(np.float64), found)


@pytest.mark.parametrize("sizes", [(1,), (5, 0, 3), (0, 0), (17, 16, 15, 1, 33), (0, 40)])
@pytest.mark.parametrize("block", [1, 4, 16])
def test_an_alignment_is_a_permutation_in_blocks_of_one_expert(
    sizes: tuple[int, ...], block: int
) -> None:
    """Every route of an expert here comes once, in order; a block has one expert; the counts add up."""
    case = AlignCase(
        routing=Routing(sizes=sizes, elsewhere=3, top_k=2), seed=1, launch=Launch(block=block)
    )
    choices = case.tensors(CPU)["choices"].reshape(-1).numpy()
    found = experts.align_tokens(case.tensors(CPU), case.params())
    routes = found["routes"].reshape(-1, block)
    assert len(routes) == len(found["experts"])
    placed = routes[routes < choices.size]
    assert sorted(placed) == [i for i, choice in enumerate(choices) if choice >= 0]
    for row, expert in zip(routes, found["experts"], strict=True):
        held = row[row < choices.size]
        assert (choices[held] == expert).all()
        assert (np.diff(held) > 0).all()
        assert (expert >= 0) == bool(held.size)
    assert found["filled"][0] == block * int((found["experts"] >= 0).sum())
    assert (np.diff(found["experts"][found["experts"] >= 0]) >= 0).all()


@settings(max_examples=50)
@given(st.lists(st.floats(-60, 60), min_size=1, max_size=8), st.floats(0, 2))
def test_an_activation_stays_inside_its_interval(values: list[float], width: float) -> None:
    """Any point of the operand's interval, by another formula: x / 2 * (1 + tanh(x / 2))."""
    x = np.array(values)
    found = experts.silu(around(x, width))
    for step in np.linspace(-width, width, 9):
        other = 0.5 * (x + step) * (1.0 + np.tanh(0.5 * (x + step)))
        assert (found.low <= other + 1e-14).all()
        assert (other <= found.high + 1e-14).all()


def test_exact_values_are_requantised_to_the_bit() -> None:
    """What has no uncertainty has one code and one scale, the quantiser's."""
    x = torch.randn(5, 256, generator=torch.Generator().manual_seed(1))
    exact = per_token_group({"x": x}, {"group": 128})
    expected = exact["y"].astype(np.float64) * np.repeat(exact["scale"].astype(np.float64), 128, 1)
    found, _ = experts.requantised(exactly(to_numpy(x).astype(np.float64)))
    assert np.array_equal(found.value, expected)
    # Elements beside a midpoint may have either code; there are hardly any.
    assert (found.error > 1e-6 * np.abs(expected)).mean() < 0.01


def test_uncertain_values_are_requantised_inside() -> None:
    """Whatever values in the intervals are quantised, codes times scales are in the answer's."""
    draw = np.random.default_rng(2)
    x = draw.standard_normal((4, 128))
    width = np.abs(x) * 2.0**-6
    found, _ = experts.requantised(Estimate(value=x, low=x - width, high=x + width))
    for _ in range(20):
        other = (x + draw.uniform(-1, 1, x.shape) * width).astype(np.float32)
        other = np.clip(other, x - width, x + width).astype(np.float32)
        exact = per_token_group({"x": torch.from_numpy(other)}, {"group": 128})
        got = exact["y"].astype(np.float64) * exact["scale"].astype(np.float64)
        assert ((found.low <= got) & (got <= found.high)).all()


@pytest.mark.parametrize("decoded", [False, True])
def test_a_prefill_is_its_definition_token_by_token(decoded: bool) -> None:
    """Plain torch in float64, every stored value rounded as the contract says, lies inside."""
    case = ExpertsCase(
        routing=Routing(sizes=(3, 0, 4), elsewhere=1, top_k=2), width=256, decoded=decoded, seed=4
    )
    tensors = case.tensors(CPU)
    found = experts.prefill(tensors, case.params())["y"]
    x = per_token_group({"x": tensors["hidden"]}, {"group": 128})
    hidden = torch.from_numpy(
        x["y"].astype(np.float64) * np.repeat(x["scale"].astype(np.float64), 128, 1)
    )
    weights = {
        name: tensors[name].double()
        * tensors[f"{name}_scale"].double().repeat_interleave(128, 1).repeat_interleave(128, 2)
        for name in ("w1", "w2")
    }
    for token, chosen in enumerate(tensors["choices"].tolist()):
        total = torch.zeros(case.width, dtype=torch.float64)
        for place, expert in enumerate(chosen):
            if expert < 0:
                continue
            gate, up = (weights["w1"][expert] @ hidden[token]).bfloat16().double().chunk(2)
            value = (torch.nn.functional.silu(gate) * up).float()
            again = per_token_group({"x": value[None]}, {"group": 128})
            codes = again["y"].astype(np.float64) * again["scale"].astype(np.float64)
            share = weights["w2"][expert] @ torch.from_numpy(codes[0])
            total += (share * tensors["weights"][token, place].double()).bfloat16().double()
        got = total.bfloat16().double().numpy()
        assert ((found.low[token] <= got) & (got <= found.high[token])).all()


def _largest_scale(*x: float) -> Estimate:
    """x times ones with the largest e8m0 scale, 2^127, in fp32."""
    tensors = {
        "x": torch.tensor([x], dtype=torch.bfloat16),
        "b": torch.ones(1, len(x)).to(torch.float8_e4m3fn),
        "b_scale": torch.tensor([[254]], dtype=torch.uint8),
    }
    return products.vector(tensors, {"out": "fp32", "splits": 1})["y"]


def test_a_sum_past_the_largest_number_of_fp32_is_infinite() -> None:
    """As rounding to nearest has it; below it stays a number, and two that cancel may be anything."""
    over, under, cancelling = (_largest_scale(*x) for x in ((-2.5,), (1.5,), (2.5, -2.5)))
    assert (over.low[0, 0], over.high[0, 0]) == (-np.inf, -np.inf)
    assert np.isfinite(under.high[0, 0])
    assert (cancelling.low[0, 0], cancelling.high[0, 0]) == (-np.inf, np.inf)
