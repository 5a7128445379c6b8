"""Block-scaled fp8 linear for one token: x stays in bf16, K is split, partial sums have a fixed order.

    y[n] = sum over k of x[k] b[n, k] * sb[n // 128, k // 128]

Each program adds some K blocks of a few columns: exact products, taken into fp32 sums by fused multiply-adds
with the scale. A split parks its sums in a slot of its own; a second kernel adds the slots from the first
split to the last.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.fp8_gemm.arguments import (
    CODES,
    blocks,
    output_type,
    require,
    require_dense,
    require_dense_rows,
)
from bitproof.kernels.fp8_gemm.tiles import SCALED, scale_of

ADDED = 256  # columns that one program of the second kernel adds


@triton.jit
def _add_blocks(
    x_ptr,
    b_ptr,
    b_scale_ptr,
    slots_ptr,
    columns,
    depth,
    b_stride,
    ORDERED: tl.constexpr,
    POWERS: tl.constexpr,
    DECODED: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Sums of one split's K blocks into its slot; if not ORDERED, added to the only slot as they come."""
    first_column = tl.program_id(0) * BLOCK_N
    column = first_column + tl.arange(0, BLOCK_N)
    per_row = tl.cdiv(depth, SCALED)
    each = tl.cdiv(per_row, SPLITS)
    first = tl.program_id(1) * each
    b_place = b_ptr + column.to(tl.int64)[:, None] * b_stride
    b_scale_ptr += (first_column // SCALED).to(tl.int64) * per_row
    acc = tl.zeros((BLOCK_N, SCALED), tl.float32)
    for block in range(first, tl.minimum(first + each, per_row)):
        k = block * SCALED + tl.arange(0, SCALED)
        x = tl.load(x_ptr + k, mask=k < depth, other=0.0).to(tl.float32)
        mask = (column < columns)[:, None] & (k < depth)
        b = tl.load(b_place + k, mask=mask, other=0.0)
        if DECODED:
            b = b.to(tl.bfloat16)
        scale = scale_of(tl.load(b_scale_ptr + block), POWERS)
        acc = tl.fma(b.to(tl.float32) * x, tl.broadcast_to(scale, acc.shape), acc)
    share = tl.sum(acc, 1)
    inside = column < columns
    if ORDERED:
        slot = slots_ptr + tl.program_id(1).to(tl.int64) * columns
        tl.store(slot + column, share, mask=inside)
    else:
        tl.atomic_add(slots_ptr + column, share, mask=inside, sem="relaxed")


@triton.jit
def _add_slots(slots_ptr, y_ptr, columns, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    total = tl.load(slots_ptr + column, mask=inside, other=0.0)
    for _ in tl.static_range(1, SLOTS):
        slots_ptr += columns
        total += tl.load(slots_ptr + column, mask=inside, other=0.0)
    tl.store(y_ptr + column, total.to(y_ptr.dtype.element_ty), mask=inside)


def multiply_vector(
    x: Tensor,
    b: Tensor,
    b_scale: Tensor,
    *,
    splits: int = 8,
    block_n: int = 16,
    out: str = "bf16",
    decoded: bool = False,
    ordered: bool = True,
    num_warps: int = 4,
    num_stages: int = 3,
) -> Tensor:
    """x [1, K] bf16 or fp16 times b [N, K] e4m3 transposed -> y [1, N] in `out`.

    b has rows any stride apart; b_scale [ceil(N / 128), ceil(K / 128)] is contiguous, fp32 or e8m0 codes in
    uint8. `splits` is a power of two, `block_n` one that divides 128. `decoded` reads b by way of bf16, which
    changes no bit; not `ordered` adds the splits in the order in which they end. ValueError: operands that do
    not fit together.
    """
    if x.dim() != 2 or b.dim() != 2:
        raise ValueError(f"x and b must be matrices, they are {x.dim()}-D and {b.dim()}-D")
    n, k = b.shape
    require("x", x, (1, k), (torch.bfloat16, torch.float16))
    require("b", b, (n, k), (CODES,))
    require("b_scale", b_scale, (blocks(n), blocks(k)), (torch.float32, torch.uint8))
    require_dense_rows("x", x)
    require_dense_rows("b", b)
    require_dense("b_scale", b_scale)
    if splits < 1 or splits & (splits - 1):
        raise ValueError(f"splits must be a power of two, it is {splits}")
    if block_n < 1 or SCALED.value % block_n:
        raise ValueError(f"block_n must be a power of two up to {SCALED.value}, it is {block_n}")
    y = torch.empty((1, n), dtype=output_type(out), device=x.device)
    if not n:
        return y
    kept = splits if ordered else 1
    slots = torch.empty((kept, n), dtype=torch.float32, device=x.device)
    if not ordered:
        slots.zero_()
    _add_blocks[(triton.cdiv(n, block_n), splits)](
        x,
        b,
        b_scale,
        slots,
        n,
        k,
        b.stride(0),
        ORDERED=ordered,
        POWERS=b_scale.dtype == torch.uint8,
        DECODED=decoded,
        SPLITS=splits,
        BLOCK_N=block_n,
        num_warps=num_warps,
        num_stages=num_stages,
    )
    _add_slots[(triton.cdiv(n, ADDED),)](slots, y, n, SLOTS=kept, BLOCK=ADDED)
    return y


def split_k_linear(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`multiply_vector` on x, b and b_scale of a case -> y."""
    launch = params["launch"]
    y = multiply_vector(
        *(tensors[name] for name in ("x", "b", "b_scale")),
        splits=params["splits"],
        block_n=launch.block,
        out=params["out"],
        decoded=params["decoded"],
        ordered=params.get("ordered", True),
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    return {"y": y}


def split_k_unordered(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """The same with partial sums added as they come: the control of the fixed order."""
    return split_k_linear(tensors, {**params, "ordered": False})
