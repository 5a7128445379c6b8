"""Gates of a tile: as they are stored, and the log-decay that a raw gate stands for, with its gradient.

With a = e^A_log of the head, 1 where there is no A_log, a raw gate x includes the head's dt_bias;
`oracles.delta.gates` has the formulas.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bitproof.kernels.delta.tiles import CHUNK, load_rows


@triton.jit
def load_gate(
    ptr,
    first,
    end,
    heads,
    head,
    column,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    SCALAR: tl.constexpr,
):
    """A gate as fp32 [64, BLOCK], one number a token and head repeated where it is SCALAR."""
    if SCALAR:
        one = load_rows(ptr, first, end, heads, head, 0, 1, 1).to(tl.float32)
        inside = (column + tl.arange(0, BLOCK) < WIDTH)[None, :]
        gate = tl.where(inside, tl.broadcast_to(one, (CHUNK, BLOCK)), 0.0)
    else:
        gate = load_rows(ptr, first, end, heads, head, column, WIDTH, BLOCK).to(tl.float32)
    return gate


@triton.jit
def factor(a_log_ptr, head):
    """e^A_log of a head, 1 where there is no A_log."""
    a = 1.0
    if a_log_ptr is not None:
        a = tl.exp(tl.load(a_log_ptr + head))
    return a


@triton.jit
def biased(
    ptr, bias_ptr, first, end, heads, head, column, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Raw gates plus the head's dt_bias, fp32 [64, BLOCK]."""
    x = load_rows(ptr, first, end, heads, head, column, WIDTH, BLOCK).to(tl.float32)
    if bias_ptr is not None:
        index = column + tl.arange(0, BLOCK)
        x += tl.load(bias_ptr + head * WIDTH + index, mask=index < WIDTH, other=0.0)[None, :]
    return x


@triton.jit
def steep(x, a):
    """a * x, zero where x is, however steep."""
    return tl.where(x == 0.0, 0.0, a * x)


@triton.jit
def softplus(x):
    """log(1 + e^x), with a relative error of at most 80 units of 2^-24 wherever e^x is at least 2^-126.

    It errs most at x near -4.2, where 1 + e^x is rounded, and on a card also where x is lowest.
    """
    small = tl.exp(-tl.abs(x))
    series = small * (1.0 - small * (0.5 - small * (1.0 / 3.0)))
    return tl.maximum(x, 0.0) + tl.where(small < 1.0 / 64.0, series, tl.log(1.0 + small))


@triton.jit
def activated(x, a, lower_bound, GATE: tl.constexpr):
    """The log-decay of biased raw gates."""
    if GATE == "bounded":
        x = lower_bound * tl.sigmoid(steep(x, a))
    elif GATE == "plain":
        x = -a * softplus(x)
    return x


@triton.jit
def raw_gradient(x, dg, a, lower_bound, GATE: tl.constexpr):
    """(gradient of biased raw gates `x`, that of A_log per element), from the log-decay's `dg`."""
    if GATE == "bounded":
        z = steep(x, a)
        slope = dg * lower_bound * tl.sigmoid(z) * tl.sigmoid(-z)
        dx = tl.where(slope == 0.0, 0.0, slope * a)
        da_log = dx * x
    elif GATE == "plain":
        dx = -a * tl.sigmoid(x) * dg
        da_log = dg * activated(x, a, lower_bound, GATE)
    else:
        dx = dg
        da_log = tl.zeros_like(dg)
    return dx, da_log
