"""fp8 with one given scale for the whole tensor, read on the device.

The reciprocal is taken once and multiplied: y = x * (1 / scale) rounded to e4m3, saturating. That is the
contract, so that a division here would be the error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import invariances as relations
from bitproof.harness.bounds import exact_bits
from bitproof.harness.case import Inputs, Launch, Scale
from bitproof.harness.spec import Bitwise, Fault, KernelSpec, Params, Tensors
from bitproof.harness.strategies import floats
from bitproof.harness.strategies.values import CAST_KINDS, ONE, Values
from bitproof.kernels.quantise import grid, groups
from bitproof.kernels.quantise.grid import to_e4m3
from bitproof.kernels.quantise.groups import tile_of_groups
from bitproof.kernels.quantise.matrices import MatrixCase, matrices
from bitproof.oracles import quantize

# Columns of a tile; there are no groups to respect.
WIDTH = 128


@triton.jit
def _quantise(
    x_ptr,
    scale_ptr,
    y_ptr,
    x_stride,
    columns,
    count,
    per_row,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    _, row, column, inside = tile_of_groups(columns, count, per_row, WIDTH, TILE)
    x = tl.load(x_ptr + row[:, None] * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    inverse = tl.math.div_rn(1.0, tl.load(scale_ptr))
    y = to_e4m3(x * inverse)
    tl.store(y_ptr + row[:, None] * columns + column, y, mask=inside)


def per_tensor_static(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [M, K] fp32, bf16 or fp16, rows any stride apart; scale [1] fp32 -> y [M, K] e4m3.

    The scale is in [2^-126, 2^126]; M and K may be 0. The dequantised value is y * scale.
    """
    x, scale, launch = tensors["x"], tensors["scale"], params["launch"]
    rows, columns = x.shape
    y = torch.empty((rows, columns), dtype=torch.float8_e4m3fn, device=x.device)
    if x.numel():
        per_row = triton.cdiv(columns, WIDTH)
        tile = groups.tile(launch, WIDTH)
        _quantise[(triton.cdiv(rows * per_row, tile),)](
            x,
            scale,
            y,
            x.stride(0),
            columns,
            rows * per_row,
            per_row,
            WIDTH=WIDTH,
            TILE=tile,
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
    return {"y": y}


_PLAIN = MatrixCase(values=Values(kind="lattice"))


@dataclass(frozen=True, kw_only=True)
class StaticCase:
    """A matrix and its scale, as fp32 bits."""

    matrix: MatrixCase = _PLAIN
    scale: str = ONE

    @property
    def launch(self) -> Launch:
        """The matrix's launch configuration."""
        return self.matrix.launch

    @property
    def seed(self) -> int:
        """What a check derives its choices from."""
        return self.matrix.seed

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """x [rows, columns] and scale [1]."""
        scale = Values(kind="constant", bits=(self.scale,)).build((1,), device)
        return {**self.matrix.tensors(device), "scale": scale}

    def params(self) -> dict[str, Any]:
        """None."""
        return {}

    def features(self) -> list[str]:
        """The matrix's, and whether the scale is a power of two."""
        whole = floats.word(self.scale) & 0x7FFFFF == 0
        return [*self.matrix.features(), f"{'a' if whole else 'no'} power of two for scale"]

    def narrow(self, output: str | None, index: tuple[int, ...]) -> StaticCase:
        """The one element at `index`, as its bits, with the scale."""
        return replace(self, matrix=self.matrix.element(index))


@st.composite
def cases(draw: Any, *, scale: Scale = Scale()) -> StaticCase:
    """Matrices, half of them of what rounding decides in units of the kernel's scale."""
    unit = draw(scales())
    matrix = draw(matrices("e4m3", groups=(WIDTH,), kinds=CAST_KINDS, strided=True, scale=scale))
    if matrix.values.kind == "lattice":
        matrix = replace(matrix, values=replace(matrix.values, unit=unit))
    return StaticCase(matrix=matrix, scale=unit)


def scales() -> st.SearchStrategy[str]:
    """Powers of two, ordinary numbers, anything from 2^-126 to 2^126."""
    powers = st.integers(-20, 20).map(lambda exponent: exponent + 127 << 23)
    ordinary = st.integers(floats.word("0x38000000"), floats.word("0x47000000"))
    extreme = st.integers(floats.word("0x00800000"), floats.word("0x7e800000"))
    return st.one_of(powers, ordinary, extreme).map(floats.hexadecimal)


def _fault(name: str, old: str, new: str, caught_by: str = "agreement") -> Fault:
    return Fault(name=name, within="_quantise", old=old, new=new, caught_by=caught_by)


_STALE = "keeps what the output held where the value is zero"

_FAULTS = (
    _fault("divides by the scale", "x * inverse", "tl.math.div_rn(x, tl.load(scale_ptr))"),
    _fault("multiplies by the scale", "x * inverse", "x * tl.load(scale_ptr)"),
    _fault("takes the rows for dense", "row[:, None] * x_stride", "row[:, None] * columns"),
    _fault(
        _STALE,
        "y_ptr + row[:, None] * columns + column, y, mask=inside",
        "y_ptr + row[:, None] * columns + column, y, mask=inside & (x != 0.0)",
        "reproducibility",
    ),
    *grid.faults(
        "truncates",
        "rounds twice, first toward zero to fp16",
        "rounds negatives to +0",
        "loses NaN where it saturates",
    ),
    *groups.faults(
        "does not mask the tail of a row", "does not mask the last program's surplus groups"
    ),
)


def _program(output: str, index: tuple[int, ...], inputs: Inputs) -> str:
    row, column = index
    return groups.program(inputs, row, column, WIDTH)


SPEC = KernelSpec(
    name="per_tensor_static",
    run=per_tensor_static,
    case=StaticCase,
    cases=cases,
    oracle=quantize.per_tensor_static,
    bounds={"y": exact_bits()},
    faults=_FAULTS,
    reproducible=Bitwise(shown_by=_STALE),
    capturable=True,
    lowering=grid.ON_GRID,
    invariances=(
        relations.row_alone(["x"], ["y"]),
        relations.rows_permuted(["x"], ["y"]),
        relations.negated(["x"], ["y"]),
        relations.scaled("x", ["y"], {}, along=["scale"]),
    ),
    strided=frozenset({"x"}),
    program=_program,
)
