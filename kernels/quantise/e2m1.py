"""Four-bit floats (e2m1), two to a byte, with one power-of-two scale for each 32 elements of a row.

scale = 2^e with the smallest e for which amax <= 6 * 2^e. The rounding to {0, 0.5, 1, 1.5, 2, 3, 4, 6}
is done on the bits of x / 2^e, which is exact.
"""

from __future__ import annotations

from dataclasses import replace
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
from bitproof.kernels.quantise.groups import largest_magnitude, tile_of_groups
from bitproof.kernels.quantise.matrices import MatrixCase, matrices
from bitproof.kernels.quantise.powers import covering_exponent, power_of_two
from bitproof.oracles import quantize

LARGEST = tl.constexpr(6.0)
# 6 * 2^-126: below it the scale would leave e8m0's range of normal fp32 powers.
FLOOR = tl.constexpr(7.052966104933725e-38)
# In [2^22, 2^23) the last place of an fp32 is 0.5, e2m1's subnormal step.
MAGIC = tl.constexpr(4194304.0)


@triton.jit
def _encode(x):
    """The e2m1 codes, int32, nearest to fp32 `x` in [-6, 6]: ties to even, the sign of zero kept."""
    word = x.to(tl.int32, bitcast=True)
    magnitude = word & 0x7FFFFFFF
    # The exponent field and one bit of mantissa, 126 binades lower: 1.0 is code 2, 6.0 code 7.
    normal = ((magnitude + 0x1FFFFF + ((magnitude >> 22) & 1)) >> 22) - 252
    subnormal = (tl.abs(x) + MAGIC).to(tl.int32, bitcast=True) & 3
    code = tl.where(magnitude >= 0x3F800000, normal, subnormal)
    return code | ((word >> 28) & 8)


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
    unfit = tl.max((tl.abs(x) < float("inf")).to(tl.int32) ^ 1, axis=1) != 0
    x = tl.where(unfit[:, None], 0.0, x)
    exponent = covering_exponent(tl.maximum(largest_magnitude(x), FLOOR), LARGEST)
    code = _encode(x * power_of_two(-exponent)[:, None])
    low, high = tl.split(tl.reshape(code, [TILE, GROUP // 2, 2]))
    pair = (number % per_row * (GROUP // 2))[:, None] + tl.arange(0, GROUP // 2)[None, :]
    kept = (number < count)[:, None] & (pair < columns // 2)
    y = (low | (high << 4)).to(tl.uint8)
    tl.store(y_ptr + row[:, None] * (columns // 2) + pair, y, mask=kept)
    scale = tl.where(unfit, 255, exponent + 127).to(tl.uint8)
    tl.store(scale_ptr + number, scale, mask=number < count)


def e2m1_group(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [M, K] fp32, bf16 or fp16 -> y [M, K / 2] uint8, scale [M, ceil(K / group)] uint8 (e8m0).

    The even column is in a byte's low four bits. `group` is a power of two; K need not be a multiple of
    it, M and K may be 0. A group with a NaN or an infinity has the scale's NaN, 255, and codes 0.
    ValueError: an odd K.
    """
    x, group, launch = tensors["x"], params["group"], params["launch"]
    rows, columns = x.shape
    if columns % 2:
        raise ValueError(f"two e2m1 codes share a byte but K = {columns} is odd; pad K to even")
    per_row = triton.cdiv(columns, group)
    y = torch.empty((rows, columns // 2), dtype=torch.uint8, device=x.device)
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


def _fault(name: str, within: str, old: str, new: str, caught_by: str = "agreement") -> Fault:
    return Fault(name=name, within=within, old=old, new=new, caught_by=caught_by)


_STALE = "leaves the scale of a zero group as it was"

_FAULTS = (
    _fault("truncates", "_encode", " + 0x1FFFFF + ((magnitude >> 22) & 1)", ""),
    _fault(
        "rounds ties away from zero", "_encode", "0x1FFFFF + ((magnitude >> 22) & 1)", "0x200000"
    ),
    _fault(
        "loses the sign of zero",
        "_encode",
        "(word >> 28) & 8",
        "tl.where(code == 0, 0, (word >> 28) & 8)",
    ),
    _fault("rounds subnormals to multiples of 0.25", "MAGIC", "4194304.0", "2097152.0"),
    _fault("swaps the two codes of a byte", "_quantise", "low | (high << 4)", "high | (low << 4)"),
    _fault(
        "hides a NaN",
        "_quantise",
        '(tl.abs(x) < float("inf")).to(tl.int32) ^ 1',
        '(tl.abs(x) == float("inf")).to(tl.int32)',
    ),
    _fault(
        "keeps codes beside a NaN",
        "_quantise",
        "x = tl.where(unfit[:, None], 0.0, x)",
        "x = tl.where(x == x, x, 0.0)",
    ),
    _fault("has no floor under amax", "FLOOR", "7.052966104933725e-38", "0.0"),
    _fault(
        "writes half a byte too many in a row",
        "_quantise",
        "pair < columns // 2",
        "pair <= columns // 2",
        "memory",
    ),
    _fault(
        "leaves the last byte of a tail unwritten",
        "_quantise",
        "pair < columns // 2",
        "(pair < columns // 2 - 1) | (pair % (GROUP // 2) == GROUP // 2 - 1)",
        "memory",
    ),
    _fault(
        _STALE,
        "_quantise",
        "mask=number < count",
        "mask=(number < count) & (exponent > -126)",
        "reproducibility",
    ),
    *powers.faults(),
    # Only loads go by the element mask here, so that a GPU's guard bands see nothing of it.
    *(
        replace(fault, caught_by="agreement")
        for fault in groups.faults("does not mask the tail of a row")
    ),
    *groups.faults(
        "takes the magnitude of positive values alone",
        "shares one amax between the groups of a program",
    ),
)


def _moved(scale: Tensor, steps: int) -> Tensor:
    """The codes of 2^steps * x; a zero group keeps the floor's, 2^-126."""
    code = scale.to(torch.int64)
    return torch.where(code == 127 - 126, code, code + steps).to(torch.uint8)


def _program(output: str, index: tuple[int, ...], inputs: Inputs) -> str:
    group = inputs.params["group"]
    column = index[1] * (group if output == "scale" else 2)
    return groups.program(inputs, index[0], column, group)


SPEC = KernelSpec(
    name="e2m1_group",
    run=e2m1_group,
    case=MatrixCase,
    cases=partial(matrices, "e2m1", groups=(32, 16, 64), packed=2, kinds=POWER_KINDS, strided=True),
    oracle=quantize.e2m1_group,
    bounds={"y": exact_bits(), "scale": exact_bits()},
    faults=_FAULTS,
    reproducible=Bitwise(shown_by=_STALE),
    capturable=True,
    lowering=grid.ANYWHERE,
    invariances=(
        relations.row_alone(["x"], ["y", "scale"]),
        relations.rows_permuted(["x"], ["y", "scale"]),
        relations.negated(["x"], [], same=["scale"], packed={"y": 0x88}),
        relations.scaled("x", ["y"], {"scale": _moved}),
    ),
    strided=frozenset({"x"}),
    refuses=(ValueError,),
    program=_program,
)
