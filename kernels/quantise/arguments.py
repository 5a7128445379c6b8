"""What the quantisers' launchers share: matrices cut into groups, the cache's names, who wrote an element."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from bitproof.harness.case import Inputs, Launch

WIDTH = 128  # columns of a tile where one scale serves all
BLOCK = 32  # elements of a cache that share a scale
MOST = 4096  # elements of a matrix that may share one: a program holds them all
CACHES = ("k_cache", "v_cache", "k_scale", "v_scale")
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def require_floats(name: str, x: Tensor, axes: int) -> None:
    """ValueError unless `x` has that many axes, the last one dense, and is fp32, bf16 or fp16."""
    if x.dtype not in _FLOATS:
        raise ValueError(f"{name} must be fp32, bf16 or fp16, it is {x.dtype}")
    if x.dim() != axes:
        raise ValueError(f"{name} must have {axes} axes, its shape is {tuple(x.shape)}")
    if x.shape[-1] > 1 and x.numel() and x.stride(-1) != 1:
        raise ValueError(f"{name} must be dense along its last axis: pass {name}.contiguous()")


def require_matrix(x: Tensor, group: int, least: int = 1) -> None:
    """ValueError unless `x` is a matrix as `require_floats` has it, `group` a power of two up to 4096."""
    require_floats("x", x, 2)
    if not least <= group <= MOST or group & (group - 1):
        raise ValueError(f"group must be a power of two from {least} to {MOST}, it is {group}")


def groups_per_program(launch: Launch, group: int) -> int:
    """How many groups of `group` elements a program takes: `launch.block` counts elements, one at least."""
    return max(launch.block // group, 1)


def options(launch: Launch) -> dict[str, int]:
    """The keywords of a kernel call that choose how it is compiled."""
    return {"num_warps": launch.num_warps, "num_stages": launch.num_stages}


def allocate_quantised(
    x: Tensor, group: int, y: torch.dtype, scale: torch.dtype, *, packed: int = 1
) -> dict[str, Tensor]:
    """Memory for y [M, K / packed] and scale [M, ceil(K / group)] of a matrix x [M, K].

    ValueError where x is no such matrix, or `group` no power of two from `packed` to 4096.
    """
    require_matrix(x, group, packed)
    rows, columns = x.shape
    return {
        "y": torch.empty((rows, columns // packed), dtype=y, device=x.device),
        "scale": torch.empty((rows, triton.cdiv(columns, group)), dtype=scale, device=x.device),
    }


def require_dense_rows(**tensors: Tensor) -> None:
    """ValueError, naming the tensor, where the elements of a row are apart in memory."""
    for name, tensor in tensors.items():
        if tensor.numel() and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"{name} must be dense along its last axis: pass {name}.contiguous()")


def require_dense(**tensors: Tensor) -> None:
    """ValueError, naming the tensor, where one is not contiguous."""
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous: pass {name}.contiguous()")


def launch_groups(
    kernel: Any, x: Tensor, *others: Tensor, group: int, launch: Launch, **constants: Any
) -> None:
    """Call `kernel` on the groups of x [M, K], rows any stride apart; nothing where x is empty.

    It gets x and the `others`, then the stride of rows, K, the number of groups in all and in a row, and
    as constants GROUP, TILE (the groups of a program) and `constants`.

    ValueError as from `allocate_quantised`, and where a row is not dense.
    """
    require_matrix(x, group)
    if not x.numel():
        return
    require_dense_rows(x=x)
    rows, columns = x.shape
    per_row = triton.cdiv(columns, group)
    tile = groups_per_program(launch, group)
    kernel[(triton.cdiv(rows * per_row, tile),)](
        x,
        *others,
        x.stride(0),
        columns,
        rows * per_row,
        per_row,
        **constants,
        GROUP=group,
        TILE=tile,
        **options(launch),
    )


def program_of_element(output: str, index: tuple[int, ...], inputs: Inputs) -> str:
    """The program of an elementwise kernel that wrote `output[index]`, for reports."""
    return f"program ({index[0] // inputs.launch.block},)"


def program_of_group(
    output: str, index: tuple[int, ...], inputs: Inputs, *, packed: int = 1
) -> str:
    """The program that wrote `output[index]` of a matrix in groups, `packed` elements of y together."""
    group = inputs.params.get("group", WIDTH)
    row, column = index[0], index[1] * (group if output == "scale" else packed)
    per_row = triton.cdiv(inputs.tensors["x"].shape[1], group)
    number = row * per_row + column // group
    return f"program ({number // groups_per_program(inputs.launch, group)},)"


def program_of_slot(output: str, index: tuple[int, ...], inputs: Inputs) -> str:
    """The program that wrote `output[index]` of a cache, if any did."""
    token = torch.nonzero(inputs.tensors["indices"] == index[0]).flatten().tolist()
    if not token:
        return "no program: no token names this slot"
    _, heads, dim = inputs.tensors["k"].shape
    block = index[2] if output.endswith("scale") else index[2] // BLOCK
    number = (token[0] * heads + index[1]) * triton.cdiv(dim, BLOCK) + block
    return f"program ({number // groups_per_program(inputs.launch, BLOCK)},)"
