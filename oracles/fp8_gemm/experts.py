"""A mixture of experts in float64: which route goes where, and an interval for each element of the outputs.

`kernels.fp8_gemm.moe_prefill` says what is computed. Quantised inputs are exact. Everything after the first
product is an interval: what a kernel stores in bf16 or e4m3 may be any code that a value in the interval is
rounded to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from bitproof.oracles.estimates import UNIT, Estimate, exactly, product, round_estimate, total
from bitproof.oracles.formats import BF16, E4M3, Array, Floats, to_numpy
from bitproof.oracles.fp8_gemm.products import (
    SCALED,
    dequantise,
    multiply,
    rows_of_blocks,
)
from bitproof.oracles.quantize import per_token_group
from bitproof.oracles.rounding import round_value

_LARGEST: Final = 448.0
_FLOOR: Final = float(np.float32(1e-10))
# Where x / (1 + exp(-x)) is least, and what it is there.
_LEAST_AT: Final = -1.2784645427610738
_LEAST: Final = -0.27846454276107380
# Once exp(-x) passes 2^126, a quotient by it may be zero.
_VANISHED: Final = 2.0**-119


def align_tokens(
    tensors: Mapping[str, torch.Tensor], params: Mapping[str, Any]
) -> dict[str, Array]:
    """choices [T, top_k] int32, -1 or an expert below params["experts"] -> the alignment in blocks.

    routes [blocks * block] int32: the routes t * top_k + j by expert, then in order, each expert's from a new
    block of params["block"] rows; T * top_k where a row is padding. experts [blocks] int32: whose a block is,
    -1 after the last. filled [1] int32: rows of blocks that have an expert. There are as many blocks as any
    choices of this shape can need.
    """
    choices = to_numpy(tensors["choices"]).reshape(-1)
    experts, block = int(params["experts"]), int(params["block"])
    used = min(choices.size, experts)
    number = used + (choices.size - used) // block
    routes = np.full(number * block, choices.size, dtype=np.int32)
    owners = np.full(number, -1, dtype=np.int32)
    row = 0
    for expert in range(experts):
        mine = np.flatnonzero(choices == expert)
        routes[row : row + mine.size] = mine
        after = row + -(-mine.size // block) * block
        owners[row // block : after // block] = expert
        row = after
    return {"routes": routes, "experts": owners, "filled": np.array([row], dtype=np.int32)}


def prefill(tensors: Mapping[str, torch.Tensor], params: Mapping[str, Any]) -> dict[str, Estimate]:
    """hidden [T, H] bf16 through the experts of choices [T, top_k] -> y [T, H] bf16.

    w1 [E, 2 I, H], w2 [E, H, I] e4m3; w1_scale, w2_scale fp32, one for 128 x 128; weights [T, top_k] fp32;
    params["decoded"] for products in bf16.
    """
    choices = to_numpy(tensors["choices"])
    tokens, top_k = choices.shape
    width = tensors["hidden"].shape[1]
    quantised = per_token_group({"x": tensors["hidden"]}, {"group": SCALED})
    token_scales = quantised["scale"].astype(np.float64)
    hidden = quantised["y"].astype(np.float64) * np.repeat(token_scales, SCALED, axis=1)
    weights = to_numpy(tensors["weights"]).astype(np.float64).reshape(-1)
    shape = (tokens * top_k, width)
    value, low, high = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    flat = choices.reshape(-1)
    for expert in np.unique(flat[flat >= 0]):
        routes = np.flatnonzero(flat == expert)
        share = _share(
            hidden[routes // top_k],
            token_scales[routes // top_k],
            _weights(tensors, "w1", int(expert)),
            _weights(tensors, "w2", int(expert)),
            weights[routes],
            decoded=bool(params["decoded"]),
        )
        value[routes], low[routes], high[routes] = share.value, share.low, share.high
    ends = (part.reshape(tokens, top_k, width) for part in (value, low, high))
    exact, least, most = ends
    return {"y": round_estimate(total(Estimate(value=exact, low=least, high=most), 1), BF16)}


def dtypes(
    tensors: Mapping[str, torch.Tensor], params: Mapping[str, Any]
) -> dict[str, torch.dtype]:
    """The outputs are bf16."""
    return {"y": torch.bfloat16}


_Scaled = tuple[Floats, Floats]


def _weights(tensors: Mapping[str, torch.Tensor], name: str, expert: int) -> _Scaled:
    """(values, a scale for each row and K block)."""
    codes = tensors[name][expert]
    scales = rows_of_blocks(tensors[f"{name}_scale"][expert], codes.shape[0])
    return dequantise(codes, scales), scales


def _share(
    hidden: Floats,
    scales: Floats,
    w1: _Scaled,
    w2: _Scaled,
    weights: Floats,
    *,
    decoded: bool,
) -> Estimate:
    """What one expert adds to some routes, in bf16: hidden [R, H] with scales, weights [R].

    w1 [2 I, H] and w2 [H, I] with their scales.
    """
    first = multiply(exactly(hidden), w1[0], (scales, w1[1]), decoded=decoded)
    gate_up = round_estimate(first, BF16)
    inner = w2[0].shape[1]
    gate, up = _columns(gate_up, slice(0, inner)), _columns(gate_up, slice(inner, None))
    codes, most = requantised(product(silu(gate), up))
    down = multiply(codes, w2[0], (most, w2[1]), decoded=decoded)
    return round_estimate(product(down, exactly(weights[:, None] * np.ones_like(down.value))), BF16)


def silu(x: Estimate) -> Estimate:
    """x / (1 + exp(-x)) in fp32.

    exp is 2^y with y = x log2(e): two roundings of y are |x| 2^-23 of the result, 2^y itself has 2^-22, the
    sum 2^-24 and the quotient 2^-22 (PTX ISA: ex2.approx, div.full).
    """
    ends = _silu(x.low), _silu(x.high)
    low, high = np.minimum(*ends), np.maximum(*ends)
    low = np.where((x.low < _LEAST_AT) & (x.high > _LEAST_AT), _LEAST, low)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.maximum(np.abs(x.low), np.abs(x.high))
        relative = (2.0 * largest + 12.0) * UNIT
        lost = relative * np.maximum(np.abs(low), np.abs(high)) + _VANISHED
        return Estimate(value=_silu(x.value), low=low - lost, high=high + lost)


def _silu(x: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x / (1.0 + np.exp(-x)))


def requantised(x: Estimate) -> tuple[Estimate, Floats]:
    """x [R, I] quantised with a scale for 128 columns, and multiplied by it again: codes times scales.

    And the largest that a scale [R, I / 128] may be.

    scale = fl(max(amax, 1e-10) / 448) with amax the largest magnitude that is no NaN, code = e4m3(fl(x /
    scale)). Both are monotone in what they are made from: any amax in its interval gives a scale between
    those of the ends, and any element a code between those of its own ends.
    """
    rows, columns = x.shape
    groups = Estimate(
        **{
            name: getattr(x, name).reshape(rows, columns // SCALED, SCALED)
            for name in ("value", "low", "high")
        }
    )
    sizes = np.abs(groups.low), np.abs(groups.high)
    inner = np.where(groups.low * groups.high > 0, np.minimum(*sizes), 0.0)
    scale = _scales(np.abs(groups.value), 1.0)
    least = _scales(inner, 1.0 - 2.0**-50)
    most = _scales(np.maximum(*sizes), 1.0 + 2.0**-50)
    value = _codes(groups.value, scale, 0.0) * scale
    low_codes = [_codes(groups.low, s, -1.0) for s in (least, most)]
    high_codes = [_codes(groups.high, s, 1.0) for s in (least, most)]
    lows = [np.minimum(*low_codes) * s for s in (least, most)]
    highs = [np.maximum(*high_codes) * s for s in (least, most)]
    low, high = np.minimum(*lows), np.maximum(*highs)
    flat = (part.reshape(rows, columns) for part in (value, low, high))
    exact, lower, upper = flat
    found = Estimate(value=exact, low=np.minimum(lower, exact), high=np.maximum(upper, exact))
    return found, most[..., 0]


def _scales(sizes: Floats, widened: float) -> Floats:
    """The scale of each group of magnitudes [..., 128], [..., 1]; `widened` makes up for rounding twice."""
    amax = np.where(np.isnan(sizes), 0.0, sizes).max(axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        scale = (np.maximum(amax, _FLOOR) / _LARGEST * widened).astype(np.float32)
    return np.asarray(scale.astype(np.float64))


def _codes(x: Floats, scale: Floats, side: float) -> Floats:
    """The e4m3 values of x / scale; `side` moves the quotient by its own rounding, down or up."""
    with np.errstate(invalid="ignore", over="ignore"):
        quotient = x / scale
        return round_value(quotient + side * 2.0 * UNIT * np.abs(quotient), E4M3)


def _columns(x: Estimate, part: slice) -> Estimate:
    return Estimate(value=x.value[:, part], low=x.low[:, part], high=x.high[:, part])
