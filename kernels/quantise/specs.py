"""Casts and quantisers under test, each a subject of its contract in `kernels.quantise.contracts`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import Tensor

from bitproof.harness.layouts import Layout
from bitproof.harness.spec import (
    Bitwise,
    Contract,
    Equivalent,
    Fault,
    KernelSpec,
    Lowering,
    Params,
    Tensors,
)
from bitproof.kernels.quantise import (
    contracts,
    corners,
    equivalents,
    faults,
    faults_groups,
    faults_kv_store,
    lowering,
)
from bitproof.kernels.quantise.arguments import (
    program_of_element,
    program_of_group,
    program_of_slot,
)
from bitproof.kernels.quantise.cases import MatrixCase, StaticCase
from bitproof.kernels.quantise.casts import cast, cast_rounded
from bitproof.kernels.quantise.e2m1 import e2m1_group
from bitproof.kernels.quantise.kv_store import kv_store
from bitproof.kernels.quantise.per_tensor_static import per_tensor_static
from bitproof.kernels.quantise.per_token_group import per_token_group
from bitproof.kernels.quantise.ue8m0 import ue8m0_group, ue8m0_inplace
from bitproof.oracles import formats


def _elementwise(
    contract: Contract,
    target: str,
    run: Callable[[Tensors, Params], dict[str, Tensor]],
    planted: tuple[Fault, ...],
    on_targets: Lowering,
    argued: tuple[Equivalent, ...] = (),
) -> KernelSpec:
    return KernelSpec(
        contract=contract,
        run=run,
        refuses=(ValueError,),
        refusals=corners.cast_refusals(target),
        faults=planted,
        reproducible=Bitwise(shown_by=faults.STALE_ZEROS),
        capturable=True,
        vast=frozenset({"x"}),
        program=program_of_element,
        lowering=on_targets,
        equivalents=argued,
    )


def _cast(target: str) -> KernelSpec:
    dtype = formats.by_name(target).torch_dtype
    assert dtype is not None
    run = partial(cast, to=dtype)
    on_targets = lowering.of_cast(target)
    return _elementwise(contracts.CASTS[target], target, run, faults.CASTS[target], on_targets)


CASTS = tuple(_cast(target) for target in contracts.CASTS)
ROUND_E4M3 = _elementwise(
    contracts.ROUND_E4M3,
    "e4m3",
    cast_rounded,
    faults.ROUND_E4M3,
    lowering.ON_GRID,
    equivalents.ROUNDING,
)

_MATRIX = MatrixCase(rows=3, columns=6)
_PAIRS = dataclasses.replace(_MATRIX, group=32, packed=2)
# Rows any stride apart, none at all included.
_ROWS_SHARED: dict[str, tuple[Layout, ...]] = {"x": ("expanded",)}

PER_TENSOR_STATIC = KernelSpec(
    contract=contracts.PER_TENSOR_STATIC,
    run=per_tensor_static,
    refuses=(ValueError,),
    refusals=corners.matrix_refusals(StaticCase(matrix=_MATRIX)),
    faults=faults_groups.PER_TENSOR_STATIC,
    reproducible=Bitwise(shown_by=faults.STALE_ZEROS),
    capturable=True,
    lowering=lowering.ON_GRID,
    equivalents=equivalents.ROUNDING,
    strided=frozenset({"x"}),
    vast=frozenset({"x"}),
    layouts=_ROWS_SHARED,
    program=program_of_group,
)

_groups = partial(
    KernelSpec,
    refuses=(ValueError,),
    refusals=corners.matrix_refusals(_MATRIX),
    capturable=True,
    strided=frozenset({"x"}),
    vast=frozenset({"x"}),
    program=program_of_group,
    equivalents=(*equivalents.ROUNDING, *equivalents.GROUPS),
)
_codes = partial(_groups, layouts=_ROWS_SHARED)

PER_TOKEN_GROUP = _codes(
    contract=contracts.PER_TOKEN_GROUP,
    run=per_token_group,
    faults=faults_groups.PER_TOKEN_GROUP,
    reproducible=Bitwise(shown_by=faults_groups.STALE_SCALE_OF_ZEROS),
    lowering=lowering.ON_GRID,
)

UE8M0_GROUP = _codes(
    contract=contracts.UE8M0_GROUP,
    run=ue8m0_group,
    faults=faults_groups.UE8M0_GROUP,
    reproducible=Bitwise(shown_by=faults_groups.STALE_SCALE_OF_TINY),
    lowering=lowering.ON_GRID,
)

UE8M0_INPLACE = _groups(
    contract=contracts.UE8M0_INPLACE,
    run=ue8m0_inplace,
    faults=faults_groups.UE8M0_INPLACE,
    reproducible=Bitwise(shown_by=faults_groups.READS_BETWEEN_ROWS),
    lowering=lowering.ANYWHERE,
)

E2M1_GROUP = _codes(
    contract=contracts.E2M1_GROUP,
    run=e2m1_group,
    faults=faults_groups.E2M1_GROUP,
    reproducible=Bitwise(shown_by=faults_groups.STALE_SCALE_OF_ZEROS),
    lowering=lowering.ANYWHERE,
    refusals=(*corners.matrix_refusals(_PAIRS), *corners.pair_refusals(_PAIRS)),
    program=partial(program_of_group, packed=2),
)


def _kv_store(kind: Literal["int8", "fp8"]) -> KernelSpec:
    return KernelSpec(
        contract=contracts.KV_STORES[kind],
        run=kv_store,
        refuses=(ValueError,),
        refusals=corners.store_refusals(kind),
        faults=faults_kv_store.INT8 if kind == "int8" else faults_kv_store.FP8,
        reproducible=Bitwise(shown_by=faults_kv_store.READS_PAST_A_HEAD),
        capturable=True,
        lowering=lowering.ON_GRID if kind == "fp8" else lowering.ANYWHERE,
        strided=frozenset({"k", "v"}),
        vast=frozenset({"k", "v", "k_cache", "v_cache"}),
        layouts=dict.fromkeys(("k", "v"), ("padded outer axes", "expanded")),
        shared={("k", "v"): ("side by side", "one tensor")},
        program=program_of_slot,
        equivalents=(*equivalents.ROUNDING, *equivalents.GROUPS, *equivalents.STORE),
    )


KV_STORES = (_kv_store("int8"), _kv_store("fp8"))
