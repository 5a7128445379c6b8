"""Casts and quantisers under test: every code and every scale is promised to the bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import Tensor

from bitproof.harness.bounds import exact_bits
from bitproof.harness.invariances import negated, row_alone, rows_permuted, scaled
from bitproof.harness.layouts import Layout
from bitproof.harness.spec import (
    Bitwise,
    Elementwise,
    Fault,
    KernelSpec,
    Lowering,
    Params,
    Tensors,
)
from bitproof.harness.strategies.values import POWER_KINDS
from bitproof.kernels.quantise import (
    corners,
    faults,
    faults_groups,
    faults_kv_store,
    invariances,
    lowering,
)
from bitproof.kernels.quantise.arguments import (
    CACHES,
    program_of_element,
    program_of_group,
    program_of_slot,
)
from bitproof.kernels.quantise.cases import (
    CastCase,
    MatrixCase,
    StaticCase,
    casts,
    explicit_cast,
    matrices,
    scaled_matrices,
)
from bitproof.kernels.quantise.cases_kv_store import StoreCase, stores
from bitproof.kernels.quantise.casts import cast, rounded
from bitproof.kernels.quantise.e2m1 import e2m1_group
from bitproof.kernels.quantise.kv_store import kv_store
from bitproof.kernels.quantise.per_tensor_static import per_tensor_static
from bitproof.kernels.quantise.per_token_group import per_token_group
from bitproof.kernels.quantise.ue8m0 import ue8m0_group, ue8m0_inplace
from bitproof.oracles import formats, quantize


def _elementwise(
    name: str,
    target: str,
    run: Callable[[Tensors, Params], dict[str, Tensor]],
    planted: tuple[Fault, ...],
    on_targets: Lowering,
) -> KernelSpec:
    return KernelSpec(
        name=name,
        run=run,
        case=CastCase,
        cases=partial(casts, target),
        corners=corners.casts(target),
        refuses=(ValueError,),
        refusals=corners.cast_refusals(target),
        oracle=quantize.cast(target),
        bounds={"y": exact_bits()},
        faults=planted,
        reproducible=Bitwise(shown_by=faults.STALE_ZEROS),
        capturable=True,
        vast=frozenset({"x"}),
        invariances=invariances.of_cast(target),
        program=program_of_element,
        lowering=on_targets,
        elementwise=Elementwise(
            input="x",
            output="y",
            format=target,
            overflow="saturate" if formats.by_name(target).bits == 8 else "inf",
            case=partial(explicit_cast, target),
        ),
    )


def _cast(target: str) -> KernelSpec:
    dtype = formats.by_name(target).torch_dtype
    assert dtype is not None
    run = partial(cast, to=dtype)
    on_targets = lowering.of_cast(target)
    return _elementwise(f"cast_{target}", target, run, faults.CASTS[target], on_targets)


CASTS = tuple(_cast(target) for target in ("e4m3", "e5m2", "bf16", "fp16"))
ROUND_E4M3 = _elementwise("round_e4m3", "e4m3", rounded, faults.ROUND_E4M3, lowering.ON_GRID)

_MATRIX = MatrixCase(rows=3, columns=6)
_PAIRS = dataclasses.replace(_MATRIX, group=32, packed=2)
# Rows any stride apart, none at all included.
_ROWS_SHARED: dict[str, tuple[Layout, ...]] = {"x": ("expanded",)}

PER_TENSOR_STATIC = KernelSpec(
    name="per_tensor_static",
    run=per_tensor_static,
    case=StaticCase,
    cases=scaled_matrices,
    corners=corners.scaled_matrices(),
    refuses=(ValueError,),
    refusals=corners.matrix_refusals(StaticCase(matrix=_MATRIX)),
    oracle=quantize.per_tensor_static,
    bounds={"y": exact_bits()},
    faults=faults_groups.PER_TENSOR_STATIC,
    reproducible=Bitwise(shown_by=faults.STALE_ZEROS),
    capturable=True,
    lowering=lowering.ON_GRID,
    invariances=(
        row_alone(["x"], ["y"]),
        rows_permuted(["x"], ["y"]),
        negated(["x"], ["y"]),
        scaled("x", ["y"], {}, along=["scale"]),
    ),
    strided=frozenset({"x"}),
    vast=frozenset({"x"}),
    layouts=_ROWS_SHARED,
    program=program_of_group,
)

_groups = partial(
    KernelSpec,
    case=MatrixCase,
    corners=corners.matrices("e4m3"),
    refuses=(ValueError,),
    refusals=corners.matrix_refusals(_MATRIX),
    capturable=True,
    strided=frozenset({"x"}),
    vast=frozenset({"x"}),
    program=program_of_group,
)
_codes = partial(_groups, bounds={"y": exact_bits(), "scale": exact_bits()}, layouts=_ROWS_SHARED)

PER_TOKEN_GROUP = _codes(
    name="per_token_group",
    run=per_token_group,
    cases=partial(matrices, "e4m3", groups=(128, 64, 32), strided=True),
    oracle=quantize.per_token_group,
    faults=faults_groups.PER_TOKEN_GROUP,
    reproducible=Bitwise(shown_by=faults_groups.STALE_SCALE_OF_ZEROS),
    lowering=lowering.ON_GRID,
    invariances=invariances.of_codes(invariances.fp32_scales),
)

UE8M0_GROUP = _codes(
    name="ue8m0_group",
    run=ue8m0_group,
    cases=partial(matrices, "e4m3", groups=(128, 64, 32), kinds=POWER_KINDS, strided=True),
    oracle=quantize.ue8m0_group,
    faults=faults_groups.UE8M0_GROUP,
    reproducible=Bitwise(shown_by=faults_groups.STALE_SCALE_OF_TINY),
    lowering=lowering.ON_GRID,
    invariances=invariances.of_codes(partial(invariances.e8m0_scales, floor=-22)),
)

UE8M0_INPLACE = _groups(
    name="ue8m0_inplace",
    run=ue8m0_inplace,
    cases=partial(matrices, "e4m3", groups=(64, 128, 32), kinds=POWER_KINDS, strided=True),
    oracle=quantize.ue8m0_inplace,
    bounds={"x": exact_bits()},
    faults=faults_groups.UE8M0_INPLACE,
    reproducible=Bitwise(shown_by=faults_groups.READS_BETWEEN_ROWS),
    lowering=lowering.ANYWHERE,
    invariances=(
        row_alone(["x"], ["x"]),
        rows_permuted(["x"], ["x"]),
        negated(["x"], ["x"]),
        scaled("x", [], {"x": lambda x, steps: x * 2.0**steps}),
    ),
    inplace=frozenset({"x"}),
)

E2M1_GROUP = _codes(
    name="e2m1_group",
    run=e2m1_group,
    cases=partial(matrices, "e2m1", groups=(32, 16, 64), packed=2, kinds=POWER_KINDS, strided=True),
    oracle=quantize.e2m1_group,
    faults=faults_groups.E2M1_GROUP,
    reproducible=Bitwise(shown_by=faults_groups.STALE_SCALE_OF_ZEROS),
    lowering=lowering.ANYWHERE,
    invariances=(
        row_alone(["x"], ["y", "scale"]),
        rows_permuted(["x"], ["y", "scale"]),
        negated(["x"], [], same=["scale"], packed={"y": 0x88}),
        scaled("x", ["y"], {"scale": partial(invariances.e8m0_scales, floor=-126)}),
    ),
    corners=corners.matrices("e2m1", packed=2),
    refusals=(*corners.matrix_refusals(_PAIRS), corners.odd_row(_PAIRS)),
    program=partial(program_of_group, packed=2),
)


def _kv_store(kind: Literal["int8", "fp8"]) -> KernelSpec:
    return KernelSpec(
        name=f"kv_store_{kind}",
        run=kv_store,
        case=StoreCase,
        cases=partial(stores, kind),
        corners=corners.stores(kind),
        refuses=(ValueError,),
        refusals=corners.store_refusals(kind),
        oracle=quantize.kv_store(kind),
        bounds={name: exact_bits() for name in CACHES},
        faults=faults_kv_store.INT8 if kind == "int8" else faults_kv_store.FP8,
        reproducible=Bitwise(shown_by=faults_kv_store.READS_PAST_A_HEAD),
        capturable=True,
        lowering=lowering.ON_GRID if kind == "fp8" else lowering.ANYWHERE,
        invariances=(
            rows_permuted(["k", "v", "indices"], [], unmoved=CACHES),
            invariances.others_skipped(),
            invariances.exchanged(),
        ),
        strided=frozenset({"k", "v"}),
        vast=frozenset({"k", "v", "k_cache", "v_cache"}),
        layouts=dict.fromkeys(("k", "v"), ("padded outer axes", "expanded")),
        shared={("k", "v"): ("side by side", "one tensor")},
        inplace=frozenset(CACHES),
        program=program_of_slot,
    )


KV_STORES = (_kv_store("int8"), _kv_store("fp8"))
