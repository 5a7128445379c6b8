"""What the dsReLU backward pass takes and gives: operands, tiles, shapes of outputs and workspaces."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

SCALED = 32


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How the product is cut: tiles of block_m x block_n, block_k at a time.

    The epilogue takes a tile in `subtiles` (1, 2 or 4) pieces of its columns. The slots of deterministic
    mode depend on block_m and block_n.
    """

    block_m: int = 128
    block_n: int = 128
    block_k: int = 64
    subtiles: int = 2
    num_warps: int = 4
    num_stages: int = 3


@dataclass(frozen=True, kw_only=True)
class Operands:
    """What the backward pass reads; M rows, G groups, X experts, all dense along the last axis.

    a          [M, K] bf16, or e4m3 with a_scale; rows any stride apart
    b          [X, N, K] of the same type, contiguous
    c          [M, N] bf16, the saved pre-activation; rows any stride apart
    prob       [M] fp32
    alpha      [X] fp32
    offsets    [G + 1] int32, from 0 upwards: group g is rows offsets[g] to offsets[g + 1]
    experts    [G] int32: whose weights a group takes; -1: its rows belong to somebody else
    a_scale    [M, ceil(K / 32)] uint8, e8m0 codes, contiguous; b_scale [X, N, ceil(K / 32)] alike

    Every scaled element has to be a normal number of bf16 or zero. Rows past offsets[G], or of a group
    whose expert is -1, have zeros in D and d_srelu and add to nothing.
    """

    a: Tensor
    b: Tensor
    c: Tensor
    prob: Tensor
    alpha: Tensor
    offsets: Tensor
    experts: Tensor
    a_scale: Tensor | None = None
    b_scale: Tensor | None = None

    def __post_init__(self) -> None:
        """Reject shapes and types that do not fit together, naming the tensor."""
        (m, k), (x, n, _), (groups,) = self.a.shape, self.b.shape, self.experts.shape
        small = self.a_scale is not None
        operand = torch.float8_e4m3fn if small else torch.bfloat16
        blocks = -(-k // SCALED)
        expected = {
            "a": ((m, k), operand),
            "b": ((x, n, k), operand),
            "c": ((m, n), torch.bfloat16),
            "prob": ((m,), torch.float32),
            "alpha": ((x,), torch.float32),
            "offsets": ((groups + 1,), torch.int32),
            "experts": ((groups,), torch.int32),
        }
        if small or self.b_scale is not None:
            expected["a_scale"] = ((m, blocks), torch.uint8)
            expected["b_scale"] = ((x, n, blocks), torch.uint8)
        if not (n and k and x and groups):
            raise ValueError("b and experts must not be empty: pass at least one expert and group")
        for name, (shape, dtype) in expected.items():
            require(name, getattr(self, name), shape, dtype, dense=name not in ("a", "c"))

    @property
    def rows(self) -> int:
        """M."""
        return self.a.shape[0]

    @property
    def columns(self) -> int:
        """N."""
        return self.b.shape[1]

    @property
    def groups(self) -> int:
        """G."""
        return self.experts.shape[0]


def m_tiles(rows: int, groups: int, tiling: Tiling) -> int:
    """How many M tiles there can be at most, whatever the offsets are."""
    return int(triton.cdiv(rows, tiling.block_m)) + groups


def dprob_slots_shape(rows: int, columns: int, tiling: Tiling) -> tuple[int, int]:
    """The fp32 workspace of dprob: a slot for each N tile and row."""
    return triton.cdiv(columns, tiling.block_n), rows


def dbias_slots_shape(rows: int, columns: int, groups: int, tiling: Tiling) -> tuple[int, int]:
    """The fp32 workspace of dbias: a slot for each M tile and column."""
    return m_tiles(rows, groups, tiling), columns


def output_shapes(
    rows: int, columns: int, groups: int, *, quantised: bool
) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and type of each output but dprob [M] and dbias [G, N], which the caller has.

    d_row [M, N] is D in bf16, or its codes in e4m3 with a scale for 32 columns in d_row_scale. d_col
    [M, N] are its codes with a scale for 32 rows of a group: row r of d_col_scale belongs to the r-th
    such block, counted through all groups, the last block of each being partial; later rows are 0.
    Scales are e8m0 codes. Without `quantised`, d_col and the scales are never written.
    """
    code = torch.float8_e4m3fn
    return {
        "d_row": ((rows, columns), code if quantised else torch.bfloat16),
        "d_row_scale": ((rows, triton.cdiv(columns, SCALED)), torch.uint8),
        "d_col": ((rows, columns), code),
        "d_col_scale": ((triton.cdiv(rows, SCALED) + groups, columns), torch.uint8),
        "d_srelu": ((rows, columns), torch.bfloat16),
        "amax": ((groups,), torch.float32),
    }


def require(
    name: str,
    tensor: Tensor | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    *,
    dense: bool = True,
) -> None:
    """Raise ValueError where a tensor is missing, of another shape or type, or not dense."""
    if tensor is None:
        raise ValueError(f"{name} is missing: pass {dtype} of shape {shape}")
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(
            f"{name} must be {dtype} of shape {shape}, got {tensor.dtype} {tuple(tensor.shape)}"
        )
    if not (tensor.is_contiguous() if dense else tensor.stride(-1) == 1 or not tensor.numel()):
        raise ValueError(f"{name} must be dense along its last axis: pass {name}.contiguous()")
