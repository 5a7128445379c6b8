"""The backward pass of a grouped GEMM under test: bf16 and fp8 operands, sums in order or by atomics.

`kernels.dsrelu.backward` says what is computed, `kernels.dsrelu.arguments` what callers pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bitproof.harness.spec import Bitwise, KernelSpec
from bitproof.kernels.dsrelu import contracts, corners, equivalents, faults, invariances
from bitproof.kernels.dsrelu.backward import launch, launch_default
from bitproof.kernels.quantise.lowering import ON_GRID
from bitproof.oracles import dsrelu

# Triton 3.6 and 3.7 fail on one quantised variant for sm_100, a tile of 64 x 64 in 8 warps.
_LOWERING = replace(ON_GRID, supports=tuple(t for t in ON_GRID.supports if t != "sm_100"))
_ROWWISE = frozenset(contracts.OUTPUTS) - {"dprob", "dbias"}


_dsrelu = partial(
    KernelSpec,
    # These go through k in one accumulator: a bound that knows its order is the narrower one.
    oracle=partial(dsrelu.backward, in_order=True),
    refuses=(ValueError,),
    capturable=True,
    strided=frozenset({"a", "c"}),
    vast=frozenset({"a", "b", "c"}),
    layouts={"a": ("expanded",), "c": ("expanded",)},
    launches={"cuda": 200, "interpreter": 96},
    program=invariances.program,
    lowering=_LOWERING,
    equivalents=equivalents.ALL,
    must_not_recompile=invariances.resize,
)
_deterministic = partial(
    _dsrelu,
    run=launch,
    reproducible=Bitwise(control=launch_default, varies=frozenset({"dprob", "dbias"})),
    invariances=(
        invariances.one_row_alone(),
        invariances.groups_permuted(),
        invariances.group_split(),
        invariances.empty_group_inserted(),
        invariances.default_mode(),
        invariances.rows_of_nobody(),
    ),
)

BF16 = _deterministic(
    contract=contracts.BF16,
    refusals=corners.REFUSED,
    faults=(*faults.EPILOGUE, *faults.SLOTS, *faults.KEYS),
)

FP8 = _deterministic(
    contract=contracts.FP8,
    lowering=replace(_LOWERING, slow=True),  # dsrelu_bf16's kernel function, which is read anyway
    refusals=corners.REFUSED_BY_FP8,
    faults=faults.SCALES,
)

ATOMIC = _dsrelu(
    contract=contracts.BF16,
    name="dsrelu_atomic",
    lowering=replace(_LOWERING, slow=True),
    run=launch_default,
    invariances=(invariances.rows_of_nobody(),),
    refusals=corners.REFUSED,
    faults=faults.ATOMICS,
    reproducible=Bitwise(outputs=_ROWWISE, shown_by=faults.ATOMICS[0].name),
)
