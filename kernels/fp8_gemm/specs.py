"""Block-scaled fp8 products under test, and a mixture of experts made of them.

Quantised operands are exact, so that each bound is what sums, scales and stored roundings may add; the
alignment table is a matter of bits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bitproof.harness.bounds import exact_bits, forward_error
from bitproof.harness.invariances import row_alone, rows_permuted
from bitproof.harness.spec import Bitwise, KernelSpec
from bitproof.kernels.fp8_gemm import (
    corners,
    equivalents,
    faults,
    faults_experts,
    invariances,
)
from bitproof.kernels.fp8_gemm.align_tokens import align_tokens
from bitproof.kernels.fp8_gemm.block_scaled_linear import block_scaled_linear
from bitproof.kernels.fp8_gemm.cases import LinearCase, VectorCase, linear_cases, vector_cases
from bitproof.kernels.fp8_gemm.cases_experts import (
    AlignCase,
    ExpertsCase,
    align_cases,
    experts_cases,
)
from bitproof.kernels.fp8_gemm.moe_prefill import moe_prefill
from bitproof.kernels.fp8_gemm.split_k_linear import split_k_linear, split_k_unordered
from bitproof.kernels.quantise.equivalents import ROUNDING
from bitproof.kernels.quantise.lowering import ON_GRID
from bitproof.oracles.fp8_gemm import experts, products

# What the bounds allow for: a sum of 32 products in 14 bits on sm_90, which each K block's scale promotes.
_SUMS = replace(ON_GRID, products=("fp8 sums",))
_LINEAR = forward_error(
    because="steps of 32 products cut 13 bits below the largest (18 cuts of 2^-23 for 16 in bf16), a rounded "
    "scale and a fused multiply-add for each K block, then one rounding to y's type"
)
_CHAIN = forward_error(
    because="both products as in the linear; gate and up in bf16; silu, up and route weight in fp32; both "
    "codes where an interval holds a midpoint of e4m3; the top-k sum; stored in bf16"
)

_linear = partial(
    KernelSpec,
    run=block_scaled_linear,
    case=LinearCase,
    oracle=products.linear,
    dtypes=products.dtypes,
    bounds={"y": _LINEAR},
    refuses=(ValueError,),
    capturable=True,
    strided=frozenset({"a", "b"}),
    vast=frozenset({"a", "a_scale", "b"}),
    layouts={"a": ("expanded",), "b": ("expanded",)},
    reproducible=Bitwise(shown_by=faults.STALE_ROW),
    invariances=(
        row_alone(["a", "a_scale"], ["y"]),
        rows_permuted(["a", "a_scale"], ["y"]),
        invariances.rows_kept(["a", "a_scale"]),
        invariances.first_columns("b", "b_scale"),
        invariances.scaled(),
        invariances.other_tiles(),
    ),
    must_not_recompile=invariances.resized_rows,
    equivalents=(*equivalents.LINEAR, *equivalents.TILES),
    launches={"cuda": 96, "interpreter": 28},
    lowering=_SUMS,
)

BLOCK_SCALED_LINEAR = _linear(
    name="block_scaled_linear",
    cases=linear_cases,
    corners=corners.OF_LINEAR,
    refusals=corners.LINEAR_REFUSED,
    faults=faults.LINEAR,
)

POWER_OF_TWO_LINEAR = _linear(
    name="power_of_two_linear",
    cases=partial(linear_cases, powers=True),
    corners=corners.OF_POWERS,
    refusals=corners.POWERS_REFUSED,
    faults=faults.POWERS,
)

SPLIT_K_LINEAR = KernelSpec(
    name="split_k_linear",
    run=split_k_linear,
    case=VectorCase,
    cases=vector_cases,
    oracle=products.vector,
    dtypes=products.dtypes,
    bounds={
        "y": forward_error(
            because="exact products, a fused multiply-add for each K block, sums of 128 lanes and of the "
            "splits in any order, then one rounding to y's type"
        )
    },
    corners=corners.OF_VECTOR,
    refuses=(ValueError,),
    refusals=corners.VECTOR_REFUSED,
    faults=faults.VECTOR,
    reproducible=Bitwise(control=split_k_unordered),
    invariances=(invariances.decoded(), invariances.first_columns("b", "b_scale")),
    capturable=True,
    strided=frozenset({"b"}),
    layouts={"b": ("expanded",)},
    launches={"cuda": 160, "interpreter": 32},
    lowering=ON_GRID,
)

ALIGN_TOKENS = KernelSpec(
    name="align_tokens",
    run=align_tokens,
    case=AlignCase,
    cases=align_cases,
    oracle=experts.align_tokens,
    bounds={name: exact_bits() for name in ("routes", "experts", "filled")},
    corners=corners.OF_ALIGNMENT,
    refuses=(ValueError,),
    refusals=corners.ALIGNMENT_REFUSED,
    faults=faults_experts.ALIGNMENT,
    reproducible=Bitwise(shown_by=faults_experts.STALE_PADDING),
    invariances=(invariances.expert_unchosen(),),
    capturable=True,
    launches={"cuda": 160, "interpreter": 48},
    lowering=ON_GRID,
)

MOE_PREFILL = KernelSpec(
    name="moe_prefill",
    run=moe_prefill,
    case=ExpertsCase,
    cases=experts_cases,
    oracle=experts.prefill,
    dtypes=experts.dtypes,
    bounds={"y": _CHAIN},
    corners=corners.OF_EXPERTS,
    refuses=(ValueError,),
    refusals=corners.EXPERTS_REFUSED,
    faults=faults_experts.EXPERTS,
    reproducible=Bitwise(shown_by=faults_experts.STALE_SCALE),
    invariances=(
        row_alone(["hidden", "choices", "weights"], ["y"]),
        rows_permuted(["hidden", "choices", "weights"], ["y"]),
        invariances.rows_kept(["hidden", "choices", "weights"]),
        invariances.experts_permuted(),
        invariances.choice_elsewhere(),
        invariances.other_tiles(),
    ),
    capturable=True,
    strided=frozenset({"hidden"}),
    layouts={"hidden": ("expanded",)},
    launches={"cuda": 80, "interpreter": 16},
    lowering=_SUMS,
    equivalents=(*equivalents.TILES, *equivalents.ALIGNMENT, *ROUNDING),
)
