"""Kernels as a stranger has them, who knows nothing of bitproof."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _row_norm(x_ptr, w_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < n
    x = tl.load(x_ptr + row * n + column, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x * x) / n
    tl.store(y_ptr + row * n + column, x * tl.rsqrt(mean + eps) * w, mask=inside)


def row_norm(x, w, eps):
    """x [rows, n], w [n] -> x / sqrt(mean(x^2) + eps) * w, in the type of x."""
    y = torch.empty_like(x)
    rows, n = x.shape
    _row_norm[(rows,)](x, w, y, n, eps, BLOCK=triton.next_power_of_2(n))
    return y


@triton.jit
def _masked_softmax(x_ptr, keep_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < n
    x = tl.load(x_ptr + row * n + column, mask=inside, other=float("-inf")).to(tl.float32)
    keep = tl.load(keep_ptr + row * n + column, mask=inside, other=0) != 0
    x = tl.where(keep, x, float("-inf"))
    largest = tl.max(x, 0)
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    e = tl.exp(x - largest)
    total = tl.sum(e, 0)
    y = tl.where(total > 0.0, e / total, 0.0)
    tl.store(y_ptr + row * n + column, y, mask=inside)


def masked_softmax(x, keep):
    """x [rows, n], keep [rows, n] bool -> softmax over what is kept; zeros where nothing is."""
    y = torch.empty_like(x)
    rows, n = x.shape
    _masked_softmax[(rows,)](x, keep, y, n, BLOCK=triton.next_power_of_2(n))
    return y


@triton.jit
def _swiglu_int8(x_ptr, q_ptr, scale_ptr, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < n
    gate = tl.load(x_ptr + row * 2 * n + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * n + n + column, mask=inside, other=0.0).to(tl.float32)
    h = gate / (1.0 + tl.exp(-gate)) * up
    largest = tl.maximum(tl.max(tl.abs(h), 0), 1e-8)
    scale = largest / 127.0
    q = h / scale
    q = tl.where(q >= 0.0, tl.floor(q + 0.5), -tl.floor(0.5 - q))
    q = tl.minimum(tl.maximum(q, -127.0), 127.0)
    tl.store(q_ptr + row * n + column, q.to(tl.int8), mask=inside)
    tl.store(scale_ptr + row, scale)


def swiglu_int8(x):
    """x [rows, 2n], gates, then values -> int8 codes [rows, n] of silu(gate) * value, scales [rows] fp32."""
    rows, n = x.shape[0], x.shape[1] // 2
    q = torch.empty((rows, n), dtype=torch.int8, device=x.device)
    scale = torch.empty((rows,), dtype=torch.float32, device=x.device)
    _swiglu_int8[(rows,)](x, q, scale, n, BLOCK=triton.next_power_of_2(n))
    return q, scale


@triton.jit
def _gather_add(x_ptr, index_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < n
    into = tl.load(index_ptr + row)
    x = tl.load(x_ptr + row * n + column, mask=inside, other=0.0)
    tl.atomic_add(y_ptr + into * n + column, x, mask=inside & (into >= 0))


def scatter_add(x, index, rows):
    """x [tokens, n] fp32, index [tokens] -> y [rows, n]: the sum of the tokens of each row; -1 is none."""
    tokens, n = x.shape
    y = torch.zeros((rows, n), dtype=torch.float32, device=x.device)
    _gather_add[(tokens,)](x, index, y, n, BLOCK=triton.next_power_of_2(n))
    return y


@triton.jit
def _packed_mean(x_ptr, cu_ptr, y_ptr, n, BLOCK: tl.constexpr):
    sequence, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < n
    first, end = tl.load(cu_ptr + sequence), tl.load(cu_ptr + sequence + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(first, end):
        total += tl.load(x_ptr + row * n + column, mask=inside, other=0.0).to(tl.float32)
    count = tl.maximum(end - first, 1)
    tl.store(y_ptr + sequence * n + column, total / count, mask=inside)


def packed_mean(x, cu_seqlens):
    """x [tokens, n], cu_seqlens [sequences + 1] -> each sequence's mean [sequences, n] fp32; 0 of none."""
    sequences, n = cu_seqlens.numel() - 1, x.shape[1]
    y = torch.empty((sequences, n), dtype=torch.float32, device=x.device)
    _packed_mean[(sequences,)](x, cu_seqlens, y, n, BLOCK=triton.next_power_of_2(n))
    return y
