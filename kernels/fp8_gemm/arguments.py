"""What block-scaled products take: shapes and types of operands and scales, and how a product is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from bitproof.harness.case import Launch

SCALED = 128
CODES = torch.float8_e4m3fn
OUTPUTS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How a product is cut: tiles of block_m x block_n; `parts` products of block_m / parts rows each.

    block_n divides 128, so that a tile has one scale of the weights for each K block. Fewer rows at once
    (`parts` of 2) need fewer registers for what is not promoted yet. `tall` M tiles take each N tile in turn.
    """

    block_m: int = 64
    block_n: int = 128
    parts: int = 1
    tall: int = 32
    num_warps: int = 4
    num_stages: int = 3

    def __post_init__(self) -> None:
        """ValueError for tiles that the kernels cannot have."""
        if self.block_n < 16 or SCALED % self.block_n:
            raise ValueError(f"block_n must be 16, 32, 64 or 128, it is {self.block_n}")
        if self.parts not in (1, 2):
            raise ValueError(f"parts must be 1 or 2, it is {self.parts}")
        height = self.block_m // self.parts
        if height < 16 or height & (height - 1):
            raise ValueError(
                f"block_m / parts must be a power of two from 16 on, it is {height}: pass larger tiles"
            )


def by_columns(scales: Tensor) -> Tensor:
    """A copy that lies column by column: strides (1, rows), for a single row too.

    For `.t().contiguous()` a single row is contiguous already, so that its strides would be the other
    layout's and its kernel another compiled variant.
    """
    rows, columns = scales.shape
    there = torch.empty_strided(
        (rows, columns), (1, rows), dtype=scales.dtype, device=scales.device
    )
    return there.copy_(scales)


def tiling_of(params: Any) -> Tiling:
    """The tiling that a case's parameters and launch ask for."""
    launch: Launch = params["launch"]
    return Tiling(
        block_m=params["block_m"],
        block_n=launch.block,
        parts=params["parts"],
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )


def blocks(count: int) -> int:
    """How many scales serve `count` elements."""
    return int(triton.cdiv(count, SCALED))


def require(
    name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]
) -> None:
    """ValueError, naming the tensor, unless it has that shape and one of those types."""
    if tuple(tensor.shape) != shape or tensor.dtype not in dtypes:
        types = " or ".join(str(dtype) for dtype in dtypes)
        raise ValueError(
            f"{name} must be {types} of shape {shape}, got {tensor.dtype} {tuple(tensor.shape)}"
        )


def require_dense(name: str, tensor: Tensor) -> None:
    """ValueError, naming the tensor, unless it is contiguous."""
    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous: pass {name}.contiguous()")


def require_dense_rows(name: str, tensor: Tensor) -> None:
    """ValueError, naming the tensor, unless the elements of a row are side by side."""
    if tensor.numel() and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(f"{name} must be dense along its last axis: pass {name}.contiguous()")


def require_linear(
    a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, scales: tuple[torch.dtype, ...]
) -> None:
    """ValueError unless a [M, K], b [N, K] and their scales fit together, both scales in one of some types.

    Rows of a and b are dense, any stride apart; a_scale is [M, ceil(K / 128)], any strides, and b_scale
    [ceil(N / 128), ceil(K / 128)] contiguous.
    """
    if a.dim() != 2 or b.dim() != 2:
        raise ValueError(f"a and b must be matrices, they are {a.dim()}-D and {b.dim()}-D")
    (m, k), n = a.shape, b.shape[0]
    require("a", a, (m, k), (CODES,))
    require("b", b, (n, k), (CODES,))
    require("a_scale", a_scale, (m, blocks(k)), scales)
    require("b_scale", b_scale, (blocks(n), blocks(k)), (a_scale.dtype,))
    require_dense_rows("a", a)
    require_dense_rows("b", b)
    require_dense("b_scale", b_scale)


def require_whole_blocks(**sizes: int) -> None:
    """ValueError, naming the size, where one is no positive multiple of 128."""
    for name, size in sizes.items():
        if size < 1 or size % SCALED:
            raise ValueError(
                f"{name} must be a multiple of {SCALED}, it is {size}: pad the weights"
            )


def output_type(name: str) -> torch.dtype:
    """The type called "bf16", "fp16" or "fp32"; ValueError for another."""
    if name not in OUTPUTS:
        raise ValueError(f"out must be one of {', '.join(OUTPUTS)}, it is {name!r}")
    return OUTPUTS[name]


def describable(tensor: Tensor) -> bool:
    """Whether a tensor memory accelerator can read the matrix: 16-byte alignment of start and rows."""
    pitch = tensor.stride(-2) * tensor.element_size()
    return tensor.data_ptr() % 16 == 0 and pitch % 16 == 0 and pitch > 0
