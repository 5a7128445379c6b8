"""fp8 with one power-of-two scale (ue8m0, a byte) for each group, and the same written back in place.

scale = 2^e with the smallest e for which max(amax, 1e-4) <= 448 * 2^e, so that x / scale is exact
and only the rounding to e4m3 loses anything.
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
from bitproof.harness.strategies.values import POWER_KINDS
from bitproof.kernels.quantise import grid, groups, powers
from bitproof.kernels.quantise.grid import round_e4m3, saturate, to_e4m3
from bitproof.kernels.quantise.groups import largest_magnitude, tile_of_groups
from bitproof.kernels.quantise.matrices import MatrixCase, matrices
from bitproof.kernels.quantise.powers import covering_exponent, power_of_two
from bitproof.oracles import formats, quantize

FLOOR = tl.constexpr(1e-4)
LARGEST = tl.constexpr(448.0)


@triton.jit
def _scaled(x):
    """(x / 2^e, e, infinite) of groups [TILE, GROUP]: NaN throughout a group that has an infinity."""
    amax = tl.maximum(largest_magnitude(x), FLOOR)
    infinite = amax == float("inf")
    exponent = covering_exponent(amax, LARGEST)
    scaled = x * power_of_two(-exponent)[:, None]
    return tl.where(infinite[:, None], float("nan"), scaled), exponent, infinite


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
    scaled, exponent, infinite = _scaled(x)
    tl.store(y_ptr + row[:, None] * columns + column, to_e4m3(scaled), mask=inside)
    code = tl.where(infinite, 255, exponent + 127)
    tl.store(scale_ptr + number, code.to(tl.uint8), mask=number < count)


@triton.jit
def _round_trip(
    x_ptr,
    x_stride,
    columns,
    count,
    per_row,
    LIMIT: tl.constexpr,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
):
    number, row, column, inside = tile_of_groups(columns, count, per_row, GROUP, TILE)  # noqa: RUF059
    address = x_ptr + row[:, None] * x_stride + column
    x = tl.load(address, mask=inside, other=0.0).to(tl.float32)
    scaled, exponent, _ = _scaled(x)
    value = round_e4m3(saturate(scaled, 448.0)) * power_of_two(exponent)[:, None]
    tl.store(address, saturate(value, LIMIT).to(x_ptr.dtype.element_ty), mask=inside)


def ue8m0_group(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [M, K] fp32, bf16 or fp16 -> y [M, K] e4m3, scale [M, ceil(K / group)] uint8 (e8m0).

    `group` is a power of two; K need not be a multiple of it, M and K may be 0. A group with an
    infinity is NaN throughout and has the scale's NaN, 255.
    """
    x, group, launch = tensors["x"], params["group"], params["launch"]
    rows, columns = x.shape
    per_row = triton.cdiv(columns, group)
    y = torch.empty((rows, columns), dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((rows, per_row), dtype=torch.uint8, device=x.device)
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


def ue8m0_inplace(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [M, K] fp32, bf16 or fp16, rows any stride apart -> the same tensor, quantised and dequantised.

    The element y * 2^e is rounded to x's type and saturates at its largest finite value.
    """
    x, group, launch = tensors["x"], params["group"], params["launch"]
    rows, columns = x.shape
    per_row = triton.cdiv(columns, group)
    if x.numel():
        tile = groups.tile(launch, group)
        _round_trip[(triton.cdiv(rows * per_row, tile),)](
            x,
            x.stride(0),
            columns,
            rows * per_row,
            per_row,
            LIMIT=formats.of_dtype(x.dtype).largest,
            GROUP=group,
            TILE=tile,
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
    return {"x": x}


def _fault(name: str, within: str, old: str, new: str, caught_by: str = "agreement") -> Fault:
    return Fault(name=name, within=within, old=old, new=new, caught_by=caught_by)


_STALE = "leaves the scale of a tiny group as it was"
_GAP = "reads on between the rows"

_SHARED_FAULTS = (
    *powers.faults(),
    _fault("has no floor under amax", "FLOOR", "1e-4", "0.0"),
    _fault(
        "overlooks an infinity",
        "_scaled",
        'tl.where(infinite[:, None], float("nan"), scaled)',
        "scaled",
    ),
    *grid.faults(
        "rounds ties away from zero",
        "rounds negatives to +0",
        "loses NaN where it saturates",
    ),
    *groups.faults(
        "does not mask the tail of a row", "takes the magnitude of positive values alone"
    ),
)


def _moved(scale: Tensor, steps: int) -> Tensor:
    """The codes of 2^steps * x; a zero group keeps the floor's, 2^-22."""
    code = scale.to(torch.int64)
    return torch.where(code == 127 - 22, code, code + steps).to(torch.uint8)


def _program(output: str, index: tuple[int, ...], inputs: Inputs) -> str:
    group = inputs.params["group"]
    column = index[1] * group if output == "scale" else index[1]
    return groups.program(inputs, index[0], column, group)


GROUP = KernelSpec(
    name="ue8m0_group",
    run=ue8m0_group,
    case=MatrixCase,
    cases=partial(matrices, "e4m3", groups=(128, 64, 32), kinds=POWER_KINDS, strided=True),
    oracle=quantize.ue8m0_group,
    bounds={"y": exact_bits(), "scale": exact_bits()},
    faults=(
        *_SHARED_FAULTS,
        _fault(
            _STALE,
            "_quantise",
            "mask=number < count",
            "mask=(number < count) & (exponent > -22)",
            "reproducibility",
        ),
        _fault(
            "stores a scale one group off",
            "_quantise",
            "scale_ptr + number",
            "scale_ptr + row * per_row + (number + 1) % per_row",
        ),
        _fault("stores e + 126", "_quantise", "exponent + 127", "exponent + 126"),
        *groups.faults("shares one amax between the groups of a program"),
    ),
    reproducible=Bitwise(shown_by=_STALE),
    capturable=True,
    lowering=grid.ON_GRID,
    invariances=(
        relations.row_alone(["x"], ["y", "scale"]),
        relations.rows_permuted(["x"], ["y", "scale"]),
        relations.negated(["x"], ["y"], same=["scale"]),
        relations.scaled("x", ["y"], {"scale": _moved}),
    ),
    strided=frozenset({"x"}),
    program=_program,
)

INPLACE = KernelSpec(
    name="ue8m0_inplace",
    run=ue8m0_inplace,
    case=MatrixCase,
    cases=partial(matrices, "e4m3", groups=(64, 128, 32), kinds=POWER_KINDS, strided=True),
    oracle=quantize.ue8m0_inplace,
    bounds={"x": exact_bits()},
    faults=(
        *_SHARED_FAULTS,
        _fault(
            _GAP,
            "_round_trip",
            "tl.load(address, mask=inside, other=0.0)",
            "tl.load(address, mask=(number < count)[:, None], other=0.0)",
            "reproducibility",
        ),
        _fault(
            "takes the rows for dense",
            "_round_trip",
            "row[:, None] * x_stride",
            "row[:, None] * columns",
        ),
        _fault(
            "overflows to infinity",
            "_round_trip",
            "saturate(value, LIMIT)",
            "value",
        ),
        _fault(
            "leaves the quantised value unscaled",
            "_round_trip",
            " * power_of_two(exponent)[:, None]",
            "",
        ),
        *groups.faults("shares one amax between the groups of a program"),
    ),
    reproducible=Bitwise(shown_by=_GAP),
    capturable=True,
    lowering=grid.ANYWHERE,
    invariances=(
        relations.row_alone(["x"], ["x"]),
        relations.rows_permuted(["x"], ["x"]),
        relations.negated(["x"], ["x"]),
        relations.scaled("x", [], {"x": lambda x, steps: x * 2.0**steps}),
    ),
    strided=frozenset({"x"}),
    inplace=frozenset({"x"}),
    program=_program,
)
