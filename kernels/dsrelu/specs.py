"""The backward pass of a grouped GEMM under test: bf16 and fp8 operands, sums in order or by atomics.

`kernels.dsrelu.backward` says what is computed, `kernels.dsrelu.arguments` what callers pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bitproof.harness.bounds import forward_error
from bitproof.harness.spec import Bitwise, KernelSpec, Params
from bitproof.kernels.dsrelu import corners, faults, invariances
from bitproof.kernels.dsrelu.backward import launch, launch_default
from bitproof.kernels.dsrelu.cases import DsreluCase, dsrelu_cases
from bitproof.kernels.quantise.lowering import ON_GRID
from bitproof.oracles import dsrelu

_BECAUSE = "running error analysis of K exact products summed in fp32 and of each rounding after it"
_BOUNDS = {
    "d_row": forward_error(because=f"{_BECAUSE}, then rounded to D's type"),
    "d_row_scale": forward_error(because="the scales that D's interval admits"),
    "d_col": forward_error(because=f"{_BECAUSE}, then rounded to D's type"),
    "d_col_scale": forward_error(because="the scales that D's interval admits"),
    "d_srelu": forward_error(because="two fp32 products, then one rounding to bf16"),
    "dprob": forward_error(because=f"{_BECAUSE}, N terms in any order"),
    "dbias": forward_error(because=f"{_BECAUSE}, a group's rows in any order"),
    "amax": forward_error(because=_BECAUSE),
}
# Triton 3.6 and 3.7 fail on one quantised variant for sm_100, a tile of 64 x 64 in 8 warps.
_LOWERING = replace(ON_GRID, supports=tuple(t for t in ON_GRID.supports if t != "sm_100"))
_ROWWISE = frozenset(_BOUNDS) - {"dprob", "dbias"}


def _list_unwritten(params: Params) -> frozenset[str]:
    """Nothing is quantised unless asked for."""
    scales = ("d_row_scale", "d_col", "d_col_scale")
    return frozenset() if params["quantised"] else frozenset(scales)


_dsrelu = partial(
    KernelSpec,
    case=DsreluCase,
    oracle=dsrelu.backward,
    dtypes=dsrelu.dtypes,
    bounds=_BOUNDS,
    refuses=(ValueError,),
    capturable=True,
    strided=frozenset({"a", "c"}),
    vast=frozenset({"a", "b", "c"}),
    layouts={"a": ("expanded",), "c": ("expanded",)},
    inplace=frozenset({"dprob", "dbias"}),
    launches={"cuda": 200, "interpreter": 96},
    program=invariances.program,
    lowering=_LOWERING,
    unwritten=_list_unwritten,
    must_not_recompile=invariances.resized,
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
    ),
)

BF16 = _deterministic(
    name="dsrelu_bf16",
    cases=dsrelu_cases,
    corners=corners.OF_BF16,
    refusals=corners.REFUSED,
    faults=(*faults.EPILOGUE, *faults.SLOTS, *faults.KEYS),
)

FP8 = _deterministic(
    name="dsrelu_fp8",
    cases=partial(dsrelu_cases, small=True),
    corners=corners.OF_FP8,
    refusals=corners.REFUSED_BY_FP8,
    faults=faults.SCALES,
)

ATOMIC = _dsrelu(
    name="dsrelu_atomic",
    run=launch_default,
    cases=dsrelu_cases,
    corners=corners.OF_BF16,
    refusals=corners.REFUSED,
    faults=faults.ATOMICS,
    reproducible=Bitwise(outputs=_ROWWISE, shown_by=faults.ATOMICS[0].name),
)
