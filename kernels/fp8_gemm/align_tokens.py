"""Token alignment: routes of a mixture of experts by expert, each expert's filled up to whole blocks.

A route is one choice of one token: route t * top_k + j is token t's choice j. Routes of an expert keep their
order, so that the table is one function of the choices, whatever the order in which programs run.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.harness.spec import Params, Tensors

CHUNK = 128  # routes that one program counts and places
COUNTED = tl.constexpr(8)  # chunks whose counts are read at once


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Which route each row of each block is, and whose weights each block takes.

    routes   [blocks * block] int32: routes sorted by expert; `count` of routes where a row is padding
    experts  [blocks] int32: the expert of a block, -1 of one that nobody needs
    filled   [1] int32: rows of the blocks that have an expert
    """

    routes: Tensor
    experts: Tensor
    filled: Tensor


@triton.jit(do_not_specialize=["routes"])
def _count(choices_ptr, counts_ptr, routes, experts, EXPERTS: tl.constexpr, CHUNK: tl.constexpr):
    """How many routes of this chunk each expert has: [chunks, EXPERTS] int32."""
    route = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    choice = tl.load(choices_ptr + route, mask=route < routes, other=-1)
    expert = tl.arange(0, EXPERTS)
    hits = (choice[:, None] == expert[None, :]) & (expert < experts)[None, :]
    tl.store(counts_ptr + tl.program_id(0) * EXPERTS + expert, tl.sum(hits.to(tl.int32), 0))


@triton.jit(do_not_specialize=["routes", "chunks", "blocks"])
def _place(
    choices_ptr,
    counts_ptr,
    routes_ptr,
    experts_ptr,
    filled_ptr,
    routes,
    chunks,
    blocks,
    experts,
    EXPERTS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Puts this chunk's routes in their rows, and says whose the blocks are that it is to speak for."""
    chunk = tl.program_id(0)
    expert = tl.arange(0, EXPERTS)
    total = tl.zeros((EXPERTS,), tl.int32)
    earlier = total
    for start in range(0, chunks, COUNTED):
        other = start + tl.arange(0, COUNTED)
        place = counts_ptr + other[:, None] * EXPERTS + expert[None, :]
        counts = tl.load(place, mask=(other < chunks)[:, None], other=0)
        total += tl.sum(counts, 0)
        earlier += tl.sum(tl.where((other < chunk)[:, None], counts, 0), 0)
    padded = tl.cdiv(total, BLOCK) * BLOCK
    ends = tl.cumsum(padded, 0)
    route = chunk * CHUNK + tl.arange(0, CHUNK)
    choice = tl.load(choices_ptr + route, mask=route < routes, other=-1)
    begin = tl.where(choice[:, None] == expert[None, :], (ends - padded + earlier)[None, :], 0)
    index = tl.arange(0, CHUNK)
    same = (choice[:, None] == choice[None, :]) & (index[None, :] < index[:, None])
    row = tl.sum(begin, 1) + tl.sum(same.to(tl.int32), 1)
    tl.store(routes_ptr + row, route, mask=(choice >= 0) & (choice < experts))
    filled = tl.sum(padded, 0)
    if chunk == 0:
        tl.store(filled_ptr, filled)
    block = chunk * CHUNK + tl.arange(0, CHUNK)
    owner = tl.sum((ends[None, :] <= (block * BLOCK)[:, None]).to(tl.int32), 1)
    tl.store(experts_ptr + block, tl.where(block * BLOCK < filled, owner, -1), mask=block < blocks)


def align(choices: Tensor, *, experts: int, block: int) -> Alignment:
    """The alignment of choices [T, top_k] int32, experts 0 to `experts` - 1 or -1, which nobody here owns.

    Rows are sorted by expert, then by route; every expert's begin a new block of `block` rows, a power of
    two. There are as many blocks as any choices of this shape can need.

    ValueError: choices of another type or shape, no expert, or a block that is no power of two.
    """
    if choices.dtype != torch.int32 or choices.dim() != 2 or not choices.is_contiguous():
        raise ValueError(
            f"choices must be a contiguous int32 matrix, got {choices.dtype} {tuple(choices.shape)}"
        )
    if experts < 1:
        raise ValueError(f"experts must be at least 1, it is {experts}")
    if block < 1 or block & (block - 1):
        raise ValueError(f"block must be a power of two, it is {block}")
    count = choices.numel()
    number = most_blocks(count, experts, block)
    device = choices.device
    routes = torch.full((number * block,), count, dtype=torch.int32, device=device)
    owners = torch.empty((number,), dtype=torch.int32, device=device)
    filled = torch.empty((1,), dtype=torch.int32, device=device)
    chunks = triton.cdiv(count, CHUNK)
    width = triton.next_power_of_2(experts)
    counts = torch.empty((chunks, width), dtype=torch.int32, device=device)
    if count:
        _count[(chunks,)](choices, counts, count, experts, EXPERTS=width, CHUNK=CHUNK)
    # Blocks outnumber routes where a block is one row; each program speaks for CHUNK blocks.
    programs = max(chunks, triton.cdiv(number, CHUNK), 1)
    _place[(programs,)](
        choices,
        counts,
        routes,
        owners,
        filled,
        count,
        chunks,
        number,
        experts,
        EXPERTS=width,
        CHUNK=CHUNK,
        BLOCK=block,
    )
    return Alignment(routes=routes, experts=owners, filled=filled)


def most_blocks(routes: int, experts: int, block: int) -> int:
    """How many blocks of `block` rows so many routes to so many experts fill at most."""
    used = min(routes, experts)
    return int(used + (routes - used) // block)


def align_tokens(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`align` on the choices of a case -> routes, experts, filled."""
    found = align(tensors["choices"], experts=params["experts"], block=params["block"])
    return {"routes": found.routes, "experts": found.experts, "filled": found.filled}
