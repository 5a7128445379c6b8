"""Block-scaled products as their callers meet them: partial blocks, far rows, both ways to multiply."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from bitproof.harness import checks, lanes
from bitproof.harness.bits import bits
from bitproof.harness.case import Launch, build
from bitproof.harness.outcomes import Outcome
from bitproof.kernels.fp8_gemm.align_tokens import most_blocks
from bitproof.kernels.fp8_gemm.arguments import Tiling
from bitproof.kernels.fp8_gemm.block_scaled_linear import multiply
from bitproof.kernels.fp8_gemm.cases import LinearCase
from bitproof.kernels.fp8_gemm.cases_experts import ExpertsCase, Routing
from bitproof.kernels.fp8_gemm.specs import BLOCK_SCALED_LINEAR, MOE_PREFILL, SPLIT_K_LINEAR
from bitproof.oracles.fp8_gemm import experts, products

Run = Callable[..., Mapping[str, Tensor]]
# The report's: 37 tokens through two of four experts of 256 x 128.
REPORTED = ExpertsCase(
    routing=Routing(sizes=(19, 18, 20, 17), top_k=2),
    width=256,
    inner=128,
    block_m=64,
    seed=7,
    launch=Launch(block=128),
)


@pytest.mark.parametrize("check", ["agreement", "memory"])
def test_blocks_partial_in_both_directions_are_right_and_stay_inside(check: str) -> None:
    """1560 and 10944 are no multiples of 128: as the last columns and the last K block have them."""
    case = LinearCase(
        rows=5, columns=1560 % 128 + 128, depth=10944 % 1024, spread=2, launch=Launch(block=128)
    )
    assert case.columns % 128
    assert case.depth % 128
    lane = lanes.present()
    spec = dataclasses.replace(BLOCK_SCALED_LINEAR, refusals=())
    result = checks.run(check, spec, build(case, lane.device), lane)
    assert result.outcome is Outcome.PASSED


def test_rows_past_two_to_the_31_elements_are_addressed() -> None:
    """Row 131072 of a stride of 16384 begins where a 32-bit offset has wrapped."""
    rows, stride, last = 131_074, 16_384, 3
    lane = lanes.present()
    tensors = LinearCase(rows=last, columns=20, depth=40).tensors(lane.device)
    wide = torch.empty((rows, stride), dtype=torch.uint8, device=lane.device)[:, :40]
    wide[-last:] = tensors["a"].view(torch.uint8)
    far = wide.view(torch.float8_e4m3fn)
    scale = torch.cat([torch.ones((rows - last, 1), device=lane.device), tensors["a_scale"]])
    tiling = Tiling(block_m=16, block_n=32, num_warps=4)

    def call(a: Tensor, a_scale: Tensor) -> Tensor:
        spec = dataclasses.replace(
            BLOCK_SCALED_LINEAR,
            run=lambda given, params: {
                "y": multiply(
                    a, a_scale, tensors["b"], tensors["b_scale"], out="fp32", tiling=tiling
                )
            },
        )
        return lane.launch(spec, {}, {})["y"]

    # Only the last rows are asked for: a view that begins at the last row but two begins past 2^31 elements.
    start = rows - last - 13
    assert start * stride < 2**31 < (rows - 1) * stride
    found = call(far[start:], scale[start:])
    near = call(tensors["a"], tensors["a_scale"])
    assert torch.equal(bits(found[-last:]), bits(near))


@pytest.mark.parametrize("case", [LinearCase(rows=9, columns=140, depth=600, spread=2), REPORTED])
def test_native_and_decoded_answers_are_as_far_apart_as_both_bounds_allow(
    case: Any, outputs: Run
) -> None:
    """And by less than 1e-2 of the largest value, the threshold of the report."""
    spec, oracle = (
        (MOE_PREFILL, experts.prefill)
        if isinstance(case, ExpertsCase)
        else (BLOCK_SCALED_LINEAR, products.linear)
    )
    tensors = case.tensors(torch.device("cpu"))
    found, ends = [], []
    for decoded in (False, True):
        params = {**case.params(), "decoded": decoded}
        found.append(
            outputs(spec, params=params, launch=case.launch, **tensors)["y"].double().numpy()
        )
        ends.append(oracle(tensors, params)["y"])
    native, other = found
    assert (native - other <= ends[0].high - ends[1].low).all()
    assert (other - native <= ends[1].high - ends[0].low).all()
    assert abs(native - other).max() <= 1e-2 * abs(ends[0].value).max()


def test_a_choice_that_lives_elsewhere_adds_nothing(outputs: Run) -> None:
    """Tokens none of whose experts are here have zeros; others are what their own experts make of them."""
    case = ExpertsCase(routing=Routing(sizes=(2, 0), elsewhere=4, top_k=2, sorted=True))
    tensors = case.tensors(torch.device("cpu"))
    found = outputs(MOE_PREFILL, params=case.params(), launch=case.launch, **tensors)["y"]
    assert found[0].abs().min() > 0
    assert not bits(found[1:]).any()


def test_one_token_in_bf16_is_not_quantised(outputs: Run) -> None:
    """1 + 2^-7 is no value of e4m3, and comes through."""
    x = torch.zeros((1, 128), dtype=torch.bfloat16)
    x[0, 5] = 1 + 2**-7
    b = torch.ones((3, 128)).to(torch.float8_e4m3fn)
    params = {"decoded": False, "out": "fp32", "splits": 2}
    found = outputs(SPLIT_K_LINEAR, params=params, x=x, b=b, b_scale=torch.ones((1, 1)))
    assert found["y"].tolist() == [[1 + 2**-7] * 3]


@pytest.mark.parametrize(
    ("routes", "count", "block", "most"), [(0, 5, 4, 0), (3, 5, 4, 3), (8, 2, 4, 3), (9, 1, 1, 9)]
)
def test_blocks_are_as_many_as_any_choices_can_need(
    routes: int, count: int, block: int, most: int
) -> None:
    """The largest number over all ways to share routes among experts."""

    def needed(left: int, experts: int) -> int:
        if experts == 1:
            return -(-left // block)
        return max(-(-n // block) + needed(left - n, experts - 1) for n in range(left + 1))

    assert most_blocks(routes, count, block) == most == needed(routes, count)
