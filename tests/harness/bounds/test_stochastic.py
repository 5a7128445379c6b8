"""Stochastic rounding: to neighbours alone, exact values unmoved, up as often as the value lies there."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness import checks, generators, lanes
from bitproof.harness.bounds.stochastic import stochastic_rounding
from bitproof.harness.case import Inputs
from bitproof.harness.errors import SpecError
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.spec import Params, Tensors
from bitproof.oracles import formats
from tests.harness.plain import SPEC

BOUND = stochastic_rounding(because="each element rounds up with the probability of its remainder")
COUNT = 8192


@triton.jit
def _round(x, y, seed, HOW: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x + i).to(tl.uint32, bitcast=True)
    noise = tl.randint(seed, i).to(tl.uint32, bitcast=True) & 0xFFFF
    if HOW == "biased":
        noise = noise & 0x7FFF
    elif HOW == "nearest":
        noise = 0x7FFF + ((bits >> 16) & 1)
    elif HOW == "truncates":
        noise = noise & 0
    elif HOW == "moves exact values":
        noise = noise + 0x1000
    elif HOW == "two places":
        noise = noise * 2
    rounded = (bits + noise) & 0xFFFF0000
    tl.store(y + i, rounded.to(tl.float32, bitcast=True).to(tl.bfloat16))


def judge(how: str, check: str = "agreement", *, exact: bool = False, seed: int = 5) -> CheckResult:
    """What a check says of 8192 values with full mantissas, or of bf16 values."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = torch.empty(COUNT, dtype=torch.bfloat16)
        _round[(2,)](tensors["x"], y, seed, HOW=how, BLOCK=COUNT // 2)
        return {"y": y}

    def oracle(tensors: Tensors, params: Params) -> dict[str, Any]:
        return {"y": tensors["x"].double().numpy()}

    x = generators.gaussian(generators.hash_words(3, 0, COUNT, torch.device("cpu")))
    x = x.bfloat16().float() if exact else x
    changed: Any = {"run": run, "oracle": oracle, "bounds": {"y": BOUND}}
    changed["dtypes"] = lambda tensors, params: {"y": torch.bfloat16}
    spec = dataclasses.replace(SPEC, **changed)
    return checks.run(check, spec, Inputs(tensors={"x": x}, params={}), lanes.present())


def test_a_right_kernel_holds_and_the_same_seed_gives_the_same_bits() -> None:
    """Whatever the seed; values of the format stay where they are."""
    for seed in range(3):
        assert judge("right", seed=seed).outcome is Outcome.PASSED
    assert judge("right", exact=True).outcome is Outcome.PASSED
    assert judge("right", "reproducibility").outcome is Outcome.PASSED


@pytest.mark.parametrize("how", ["biased", "nearest", "truncates", "two places"])
def test_a_biased_kernel_is_found(how: str) -> None:
    """The first random bit lost, no randomness, a farther neighbour."""
    assert judge(how).outcome is Outcome.FAILED


def test_an_exact_value_that_moves_is_found() -> None:
    """Noise that reaches past a whole unit moves one in sixteen."""
    assert judge("moves exact values", exact=True).outcome is Outcome.FAILED


def test_the_frequency_is_judged_where_the_value_lies() -> None:
    """Half of the elements up is right halfway between neighbours, and wrong a quarter above the lower."""
    up = np.arange(4000) % 2 == 0
    for share, fits in ((0.5, True), (0.25, False)):
        expected = np.full(4000, 1.0 + share * 2.0**-7)
        got = np.where(up, 1.0 + 2.0**-7, 1.0).astype(formats.by_name("bf16").numpy_dtype)
        judgement = BOUND.judge(got, expected)
        assert judgement is not None
        assert bool(judgement.bad.any()) is not fits


def test_nan_infinity_and_overflow_are_judged_by_kind_and_sign() -> None:
    """A NaN stays one; beyond the largest value either policy is right, with the value's sign."""
    expected = np.array([np.nan, np.inf, -1e300])
    kind = formats.by_name("bf16").numpy_dtype
    largest = formats.by_name("bf16").largest
    for right in ([np.nan, np.inf, -np.inf], [np.nan, largest, -largest]):
        judgement = BOUND.judge(np.array(right).astype(kind), expected)
        assert judgement is not None
        assert not judgement.bad.any()
    for place, wrong in enumerate(([1.0, 1.0, -1.0], [np.nan, -np.inf, -1.0], [np.nan, 1.0, 1.0])):
        judgement = BOUND.judge(np.array(wrong).astype(kind), expected)
        assert judgement is not None
        assert judgement.bad.nonzero()[0].tolist() == [place]


def test_what_cannot_be_judged_is_the_specs_mistake() -> None:
    """A probability that is none, an output of 32 bits, an oracle that has rounded already."""
    with pytest.raises(SpecError, match="false_alarm must be a probability"):
        stochastic_rounding(because="", false_alarm=0.0)
    with pytest.raises(SpecError, match="formats of up to 16 bits"):
        BOUND.judge(np.ones(1, np.float32), np.ones(1))
    with pytest.raises(SpecError, match="exact values in float64"):
        BOUND.judge(np.ones(1, np.float16), np.ones(1, np.float16))
