"""fp8 with one fp32 scale for each group of a row: activations of block-scaled linear layers.

scale = max(amax, 1e-10) / 448, y = x / scale rounded to e4m3; both divisions are IEEE, since a product
with the reciprocal lands on the other side of a rounding midpoint now and then.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness import invariances as relations
from bitproof.harness.bounds import exact_bits
from bitproof.harness.case import Inputs
from bitproof.harness.spec import Bitwise, Fault, KernelSpec, Params, Tensors
from bitproof.kernels.quantise import grid, groups
from bitproof.kernels.quantise.grid import to_e4m3
from bitproof.kernels.quantise.groups import largest_magnitude, tile_of_groups
from bitproof.kernels.quantise.matrices import MatrixCase, matrices
from bitproof.oracles import quantize

FLOOR = tl.constexpr(1e-10)
LARGEST = tl.constexpr(448.0)


@triton.jit
def _quantise(
    x_ptr,
    y_ptr,
    scale_ptr,
    x_stride,
    columns,
    count,
    per_row,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
):
    number, row, column, inside = tile_of_groups(columns, count, per_row, GROUP, TILE)
    x = tl.load(x_ptr + row[:, None] * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    amax = tl.maximum(largest_magnitude(x), FLOOR)
    scale = tl.math.div_rn(amax, LARGEST)
    y = to_e4m3(tl.math.div_rn(x, scale[:, None]))
    tl.store(y_ptr + row[:, None] * columns + column, y, mask=inside)
    tl.store(scale_ptr + number, scale, mask=number < count)


def per_token_group(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [M, K] fp32, bf16 or fp16, rows any stride apart -> y [M, K] e4m3, scale [M, ceil(K / group)] fp32.

    `group` is a power of two; K need not be a multiple of it, M and K may be 0. The dequantised value
    is y * scale.
    """
    x, group, launch = tensors["x"], params["group"], params["launch"]
    rows, columns = x.shape
    per_row = triton.cdiv(columns, group)
    y = torch.empty((rows, columns), dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((rows, per_row), dtype=torch.float32, device=x.device)
    if x.numel():
        tile = groups.tile(launch, group)
        _quantise[(triton.cdiv(rows * per_row, tile),)](
            x,
            y,
            scale,
            x.stride(0),
            columns,
            rows * per_row,
            per_row,
            GROUP=group,
            TILE=tile,
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
    return {"y": y, "scale": scale}


def _fault(name: str, old: str, new: str, caught_by: str = "agreement") -> Fault:
    return Fault(name=name, within="_quantise", old=old, new=new, caught_by=caught_by)


_STALE = "leaves the scale of a zero group as it was"

_FAULTS = (
    _fault(
        "multiplies by the reciprocal",
        "tl.math.div_rn(x, scale[:, None])",
        "x * tl.math.div_rn(1.0, scale)[:, None]",
    ),
    _fault("multiplies amax by 1/448", "tl.math.div_rn(amax, LARGEST)", "amax * (1.0 / LARGEST)"),
    Fault(
        name="has no floor under amax",
        within="FLOOR",
        old="1e-10",
        new="0.0",
        caught_by="agreement",
    ),
    _fault(
        "stores a scale one group off",
        "scale_ptr + number",
        "scale_ptr + row * per_row + (number + 1) % per_row",
    ),
    _fault(
        _STALE, "mask=number < count", "mask=(number < count) & (amax > FLOOR)", "reproducibility"
    ),
    Fault(
        name="divides approximately",
        within="_quantise",
        old="tl.math.div_rn(x, scale[:, None])",
        new="x / scale[:, None]",
        caught_by="agreement",
        lanes=("cuda",),
        because="the interpreter divides as IEEE says, compiled `/` is within 2 ulp",
    ),
    *grid.faults(
        "rounds twice, first toward zero to fp16",
        "rounds negatives to +0",
        "loses NaN where it saturates",
    ),
    *groups.faults(),
)


def _times(scale: Tensor, steps: int) -> Tensor:
    """The scales of 2^steps * x; a zero group keeps the floor's."""
    floor = torch.tensor(1e-10, dtype=torch.float32) / 448.0
    return torch.where(scale == floor, scale, scale * 2.0**steps)


def _program(output: str, index: tuple[int, ...], inputs: Inputs) -> str:
    group = inputs.params["group"]
    column = index[1] * group if output == "scale" else index[1]
    return groups.program(inputs, index[0], column, group)


SPEC = KernelSpec(
    name="per_token_group",
    run=per_token_group,
    case=MatrixCase,
    cases=partial(matrices, "e4m3", groups=(128, 64, 32), strided=True),
    oracle=quantize.per_token_group,
    bounds={"y": exact_bits(), "scale": exact_bits()},
    faults=_FAULTS,
    reproducible=Bitwise(shown_by=_STALE),
    capturable=True,
    lowering=grid.ON_GRID,
    invariances=(
        relations.row_alone(["x"], ["y", "scale"]),
        relations.rows_permuted(["x"], ["y", "scale"]),
        relations.negated(["x"], ["y"], same=["scale"]),
        relations.scaled("x", ["y"], {"scale": _times}),
    ),
    strided=frozenset({"x"}),
    program=_program,
)
