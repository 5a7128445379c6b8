"""The backward pass of a grouped GEMM with squared ReLU, whoever computes it: hold your own against it.

    from bitproof import KernelSpec
    from bitproof.kernels.dsrelu import contracts

    SPEC = KernelSpec(contract=contracts.BF16, name="mine", run=launch)

`launch(tensors, params) -> outputs` gets the tensors that `kernels.dsrelu.arguments.Operands` describes, by
those names, and dprob [M] and dbias [X, N] in fp32, which it adds to in place. Of `params` it needs
"quantised": whether D is to be given as e4m3 codes with e8m0 scales too. It returns d_row [M, N], d_srelu
[M, N], dprob, dbias and amax; and d_row_scale, d_col and d_col_scale where D is quantised. `docs/dsrelu.md`
says what each is. `BF16` has bf16 operands, `FP8` e4m3 ones with block scales.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from bitproof.harness.bounds import forward_error
from bitproof.harness.spec import Contract, Params
from bitproof.kernels.dsrelu import corners
from bitproof.kernels.dsrelu.cases import DsreluCase, dsrelu_cases
from bitproof.oracles import dsrelu

_BECAUSE = "running error analysis of K exact products summed in fp32 and of each rounding after it"
OUTPUTS: Final = {
    "d_row": forward_error(because=f"{_BECAUSE}, then rounded to D's type"),
    "d_row_scale": forward_error(because="the scales that D's interval admits"),
    "d_col": forward_error(because=f"{_BECAUSE}, then rounded to D's type"),
    "d_col_scale": forward_error(because="the scales that D's interval admits"),
    "d_srelu": forward_error(because="two fp32 products, then one rounding to bf16"),
    "dprob": forward_error(because=f"{_BECAUSE}, N terms in any order"),
    "dbias": forward_error(because=f"{_BECAUSE}, a group's rows in any order"),
    "amax": forward_error(because=_BECAUSE),
}


def _list_unwritten(params: Params) -> frozenset[str]:
    """Nothing is quantised unless asked for."""
    scales = ("d_row_scale", "d_col", "d_col_scale")
    return frozenset() if params["quantised"] else frozenset(scales)


_dsrelu: Any = partial(
    Contract,
    case=DsreluCase,
    oracle=dsrelu.backward,
    dtypes=dsrelu.dtypes,
    outputs=OUTPUTS,
    inplace=frozenset({"dprob", "dbias"}),
    unwritten=_list_unwritten,
)
BF16: Final[Contract] = _dsrelu(name="dsrelu_bf16", cases=dsrelu_cases, corners=corners.OF_BF16)
FP8: Final[Contract] = _dsrelu(
    name="dsrelu_fp8", cases=partial(dsrelu_cases, small=True), corners=corners.OF_FP8
)
