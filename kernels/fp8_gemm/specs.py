"""Block-scaled fp8 products under test, each a subject of its contract in `kernels.fp8_gemm.contracts`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bitproof.harness.spec import Bitwise, Contract, Fault, KernelSpec, Lowering, Refusal
from bitproof.kernels.fp8_gemm import (
    contracts,
    corners,
    equivalents,
    faults,
    faults_experts,
    invariances,
)
from bitproof.kernels.fp8_gemm.align_tokens import align_tokens
from bitproof.kernels.fp8_gemm.block_scaled_linear import block_scaled_linear
from bitproof.kernels.fp8_gemm.moe_prefill import moe_prefill
from bitproof.kernels.fp8_gemm.split_k_linear import split_k_linear, split_k_unordered
from bitproof.kernels.quantise.equivalents import ROUNDING
from bitproof.kernels.quantise.lowering import ON_GRID

# What the bounds allow for: a sum of 32 products in 14 bits on sm_90, which each K block's scale promotes.
_SUMS = replace(ON_GRID, products=("fp8 sums",))

_subject = partial(KernelSpec, refuses=(ValueError,), capturable=True)


def _linear(
    contract: Contract,
    refused: tuple[Refusal, ...],
    planted: tuple[Fault, ...],
    lowering: Lowering = _SUMS,
) -> KernelSpec:
    return _subject(
        contract=contract,
        run=block_scaled_linear,
        refusals=refused,
        faults=planted,
        strided=frozenset({"a", "b"}),
        vast=frozenset({"a", "a_scale", "b"}),
        equivalents=(*equivalents.LINEAR, *equivalents.TILES),
        layouts={"a": ("expanded",), "b": ("expanded",)},
        reproducible=Bitwise(shown_by=faults.STALE_ROW),
        invariances=(*contract.invariances, invariances.other_tiles()),
        must_not_recompile=invariances.resized_rows,
        launches={"cuda": 96, "interpreter": 28},
        lowering=lowering,
    )


BLOCK_SCALED_LINEAR = _linear(contracts.BLOCK_SCALED_LINEAR, corners.LINEAR_REFUSED, faults.LINEAR)
POWER_OF_TWO_LINEAR = _linear(
    contracts.POWER_OF_TWO_LINEAR,
    corners.POWERS_REFUSED,
    faults.POWERS,
    replace(_SUMS, slow=True),  # the linear's kernel function, which is read anyway
)

SPLIT_K_LINEAR = _subject(
    contract=contracts.SPLIT_K_LINEAR,
    run=split_k_linear,
    refusals=corners.VECTOR_REFUSED,
    faults=faults.VECTOR,
    reproducible=Bitwise(control=split_k_unordered),
    strided=frozenset({"b"}),
    layouts={"b": ("expanded",)},
    launches={"cuda": 160, "interpreter": 32},
    lowering=ON_GRID,
)

ALIGN_TOKENS = _subject(
    contract=contracts.ALIGN_TOKENS,
    run=align_tokens,
    refusals=corners.ALIGNMENT_REFUSED,
    faults=faults_experts.ALIGNMENT,
    reproducible=Bitwise(shown_by=faults_experts.STALE_PADDING),
    launches={"cuda": 160, "interpreter": 48},
    lowering=ON_GRID,
)

MOE_PREFILL = _subject(
    contract=contracts.MOE_PREFILL,
    run=moe_prefill,
    refusals=corners.EXPERTS_REFUSED,
    faults=faults_experts.EXPERTS,
    reproducible=Bitwise(shown_by=faults_experts.STALE_SCALE),
    invariances=(*contracts.MOE_PREFILL.invariances, invariances.other_tiles()),
    strided=frozenset({"hidden"}),
    layouts={"hidden": ("expanded",)},
    launches={"cuda": 80, "interpreter": 16},
    lowering=_SUMS,
    equivalents=(*equivalents.TILES, *equivalents.ALIGNMENT, *ROUNDING),
)
