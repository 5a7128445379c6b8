"""What block-scaled fp8 products and a mixture of experts promise, whoever computes them: hold yours to it.

    from bitproof import KernelSpec
    from bitproof.kernels.fp8_gemm import contracts

    SPEC = KernelSpec(contract=contracts.BLOCK_SCALED_LINEAR, name="mine", run=launch)

`launch(tensors, params) -> outputs` gets named tensors and plain parameters and returns named tensors:

    BLOCK_SCALED_LINEAR  a [M, K], b [N, K] e4m3, a_scale [M, ceil(K / 128)], b_scale [ceil(N / 128),
                         ceil(K / 128)] fp32 -> y [M, N]; a_scale may lie column by column
    POWER_OF_TWO_LINEAR  the same with scales that are e8m0 codes in uint8
    SPLIT_K_LINEAR       x [1, K] bf16 or fp16, b and b_scale as above, or e8m0 codes -> y [1, N]
    ALIGN_TOKENS         choices [T, top_k] int32, experts, block -> routes, experts, filled, as
                         `kernels.fp8_gemm.align_tokens` describes them
    MOE_PREFILL          hidden [T, H] bf16, w1 [E, 2 I, H], w2 [E, H, I] e4m3, w1_scale, w2_scale fp32 for
                         128 x 128, choices [T, top_k] int32 (-1: nobody's here), weights [T, top_k] fp32
                         -> y [T, H] bf16; gate is the first half of w1

`params["out"]` names y's type ("fp32", "bf16", "fp16") and `params["decoded"]` asks for products in bf16,
whose bound is narrower. `params["launch"]` and how our kernels are cut (`block_m`, `parts`, `splits`) may be
left aside. `oracles.fp8_gemm` derives each bound. A kernel that takes fewer cases names its own `cases`; one
whose rows depend on the batch names its own `invariances`. A contract says nothing of layouts and of what is
refused: a spec that promises either names it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from bitproof.harness.bounds import exact_bits, forward_error
from bitproof.harness.invariances import row_alone, rows_permuted
from bitproof.harness.spec import Contract
from bitproof.kernels.fp8_gemm import corners, invariances
from bitproof.kernels.fp8_gemm.cases import LinearCase, VectorCase, linear_cases, vector_cases
from bitproof.kernels.fp8_gemm.cases_experts import (
    AlignCase,
    ExpertsCase,
    align_cases,
    experts_cases,
)
from bitproof.oracles.fp8_gemm import experts, products

_ROWS = ["a", "a_scale"]
_TOKENS = ["hidden", "choices", "weights"]

_linear: Any = partial(
    Contract,
    case=LinearCase,
    oracle=products.linear,
    dtypes=products.dtypes,
    outputs={
        "y": forward_error(
            because="steps of 32 products cut 13 bits below the largest (18 cuts of 2^-23 for 16 in bf16), a "
            "rounded scale and a fused multiply-add for each K block, then one rounding to y's type"
        )
    },
    invariances=(
        row_alone(_ROWS, ["y"]),
        rows_permuted(_ROWS, ["y"]),
        invariances.rows_kept(_ROWS),
        invariances.first_columns("b", "b_scale"),
        invariances.scaled(),
    ),
)

BLOCK_SCALED_LINEAR: Final[Contract] = _linear(
    name="block_scaled_linear", cases=linear_cases, corners=corners.OF_LINEAR
)
POWER_OF_TWO_LINEAR: Final[Contract] = _linear(
    name="power_of_two_linear", cases=partial(linear_cases, powers=True), corners=corners.OF_POWERS
)
SPLIT_K_LINEAR: Final = Contract(
    name="split_k_linear",
    case=VectorCase,
    cases=vector_cases,
    oracle=products.vector,
    dtypes=products.dtypes,
    outputs={
        "y": forward_error(
            because="exact products, a fused multiply-add for each K block, sums of 128 lanes and of the "
            "splits in any order, then one rounding to y's type"
        )
    },
    corners=corners.OF_VECTOR,
    invariances=(invariances.decoded(), invariances.first_columns("b", "b_scale")),
)
ALIGN_TOKENS: Final = Contract(
    name="align_tokens",
    case=AlignCase,
    cases=align_cases,
    oracle=experts.align_tokens,
    outputs={name: exact_bits() for name in ("routes", "experts", "filled")},
    corners=corners.OF_ALIGNMENT,
    invariances=(invariances.expert_unchosen(),),
)
MOE_PREFILL: Final = Contract(
    name="moe_prefill",
    case=ExpertsCase,
    cases=experts_cases,
    oracle=experts.prefill,
    dtypes=experts.dtypes,
    outputs={
        "y": forward_error(
            because="both products as in the linear; gate and up in bf16; silu, up and route weight in fp32; "
            "both codes where an interval holds a midpoint of e4m3; the top-k sum; stored in bf16"
        )
    },
    corners=corners.OF_EXPERTS,
    invariances=(
        row_alone(_TOKENS, ["y"]),
        rows_permuted(_TOKENS, ["y"]),
        invariances.rows_kept(_TOKENS),
        invariances.experts_permuted(),
        invariances.choice_elsewhere(),
    ),
)
