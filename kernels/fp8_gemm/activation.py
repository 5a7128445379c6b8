"""Beside the two products of a mixture of experts: activation, requantisation, top-k sum."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from bitproof.kernels.fp8_gemm.arguments import CODES, SCALED
from bitproof.kernels.quantise.e4m3_rounding import to_e4m3
from bitproof.kernels.quantise.groups import largest_magnitude
from bitproof.kernels.quantise.per_token_group import FLOOR, LARGEST

ROUTES = 16  # rows of 128 elements that one program takes
COLUMNS = 512  # columns of a token that one program of the sum takes


@triton.jit
def _silu(x):
    """x / (1 + exp(-x)) in fp32; -0 far below zero, NaN for NaN."""
    return x / (1.0 + tl.exp(-x))


@triton.jit(do_not_specialize=["routes"])
def _activate(
    gate_up_ptr,
    choices_ptr,
    y_ptr,
    scale_ptr,
    routes,
    width,
    GROUP: tl.constexpr,
    ROUTES: tl.constexpr,
):
    route = tl.program_id(0) * ROUTES + tl.arange(0, ROUTES)
    choice = tl.load(choices_ptr + route, mask=route < routes, other=-1)
    owned = choice >= 0
    group = tl.program_id(1)
    row = route.to(tl.int64)
    column = group * GROUP + tl.arange(0, GROUP)
    place = gate_up_ptr + row[:, None] * (2 * width) + column
    gate = tl.load(place, mask=owned[:, None], other=0.0).to(tl.float32)
    up = tl.load(place + width, mask=owned[:, None], other=0.0).to(tl.float32)
    value = _silu(gate) * up
    scale = tl.math.div_rn(tl.maximum(largest_magnitude(value), FLOOR), LARGEST)
    y = to_e4m3(tl.math.div_rn(value, scale[:, None]))
    tl.store(y_ptr + row[:, None] * width + column, y, mask=owned[:, None])
    tl.store(scale_ptr + row * (width // GROUP) + group, scale, mask=owned)


def activate(gate_up: Tensor, choices: Tensor) -> tuple[Tensor, Tensor]:
    """silu(gate) * up of gate_up [routes, 2 I] bf16, quantised with a scale for 128 columns.

    -> codes [routes, I] e4m3, scales [routes, I / 128] fp32. gate is the first half of a row.
    Rows of routes whose choice is -1 are neither read nor written.
    """
    routes, width = gate_up.shape[0], gate_up.shape[1] // 2
    y = torch.empty((routes, width), dtype=CODES, device=gate_up.device)
    scale = torch.empty((routes, width // SCALED), dtype=torch.float32, device=gate_up.device)
    if routes:
        grid = (triton.cdiv(routes, ROUTES), width // SCALED)
        _activate[grid](gate_up, choices, y, scale, routes, width, GROUP=SCALED, ROUTES=ROUTES)
    return y, scale


@triton.jit
def _add_choices(shares_ptr, choices_ptr, y_ptr, width, TOP_K: tl.constexpr, COLUMNS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    for choice in tl.static_range(TOP_K):
        route = token * TOP_K + choice
        owned = tl.load(choices_ptr + route) >= 0
        mask = owned & (column < width)
        share = tl.load(shares_ptr + route * width + column, mask=mask, other=0.0)
        total += share.to(tl.float32)
    tl.store(y_ptr + token * width + column, total.to(tl.bfloat16), mask=column < width)


def add_choices(shares: Tensor, choices: Tensor) -> Tensor:
    """The sum of each token's rows of shares [T * top_k, H] bf16, in fp32, first choice first.

    -> [T, H] bf16. Rows of choices that are -1 are not read; a token without any other has zeros.
    """
    tokens, top_k = choices.shape
    width = shares.shape[1]
    y = torch.empty((tokens, width), dtype=torch.bfloat16, device=shares.device)
    if tokens:
        grid = (tokens, triton.cdiv(width, COLUMNS))
        _add_choices[grid](shares, choices, y, width, TOP_K=top_k, COLUMNS=COLUMNS)
    return y
