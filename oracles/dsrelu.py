"""What the backward pass of a grouped GEMM with activation prob * relu(C)^2 computes, and how exactly.

Source of the formulas: cudnn-frontend pull request 521, kernel and test reference (its documentation
writes relu(G) where they have G). Every answer is an `Estimate`: float64 from the operands as they are
stored, with a forward error that follows each rounding of fp32 arithmetic, in any order of the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch

from bitproof.oracles import partial_sums
from bitproof.oracles.estimates import (
    TINY,
    Estimate,
    around,
    exactly,
    gamma,
    product,
    round_estimate,
    total,
)
from bitproof.oracles.formats import BF16, E4M3, E8M0, Array, Floats, decode, to_numpy
from bitproof.oracles.rounding import round_value

SCALED: Final = 32
LARGEST: Final = 448.0
_NO_NUMBER: Final = 255.0

# A tensor core of sm_90 takes 16 products and the accumulator at a time, aligns them to the largest and
# cuts what falls below its last place, then cuts the sum: 18 errors of at most 2^-23 of the magnitudes
# (Fasi et al., Numerical behavior of NVIDIA tensor cores, PeerJ CS 2021). Plain fp32 sums err less.
_STEP: Final = 16
_CUTS: Final = 18
_CUT: Final = 2.0**-23
_STEPS: Final = partial_sums.find_steps("bf16")


def backward(
    tensors: Mapping[str, torch.Tensor], params: Mapping[str, Any], *, in_order: bool = False
) -> dict[str, Estimate]:
    """The outputs of one call, as `kernels.dsrelu.backward` describes them.

    The product may be summed in any order and grouping; of a kernel that goes through k `in_order`, in one
    accumulator of a tensor core, less is admitted.

    a [M, K] and b [X, N, K] bf16, or e4m3 with e8m0 codes a_scale and b_scale for 32 elements; c [M, N]
    bf16; prob [M], alpha [X] fp32; offsets [G + 1], experts [G] int32; dprob [M], dbias [G, N] fp32, the
    buffers that are added to.
    -> d_row, d_srelu [M, N]; dprob; dbias; amax [G], and with params["quantised"] d_row as values of
    e4m3 with d_row_scale, and d_col with d_col_scale, scales as the numbers of their e8m0 codes.
    """
    c, prob, alpha = (to_numpy(tensors[name]).astype(np.float64) for name in ("c", "prob", "alpha"))
    offsets, experts = (to_numpy(tensors[name]) for name in ("offsets", "experts"))
    groups = list(list_groups(offsets, experts))
    owned = np.zeros(c.shape[0], dtype=np.bool_)
    factor = np.zeros(c.shape[0])
    for _, rows, expert in groups:
        owned[rows], factor[rows] = True, alpha[expert]
    relu = np.where(owned[:, None] & (c > 0), c, 0.0)
    weight = np.where(owned, prob, 0.0)[:, None] * np.ones_like(c)
    gradient = product(
        exactly(factor[:, None] * np.ones_like(c)), _product(tensors, groups, in_order)
    )
    square = product(exactly(relu), exactly(relu))
    d = product(product(exactly(2.0 * weight), exactly(relu)), gradient)
    d = _only(d, owned[:, None])
    share = _only(product(square, gradient), owned[:, None])
    dprob = _add_columns(share, tensors["dprob"], owned)
    found = {
        "d_srelu": round_estimate(_only(product(exactly(weight), square), owned[:, None]), BF16),
        "dprob": dprob,
        "dbias": _dbias(d, tensors["dbias"], groups),
        "amax": _amax(d, len(experts), groups),
    }
    if not params["quantised"]:
        return {**found, "d_row": round_estimate(d, BF16)}
    d_row, d_row_scale = _blocks(d)
    d_col, d_col_scale = _columns(d, offsets)
    return {
        **found,
        "d_row": d_row,
        "d_row_scale": d_row_scale,
        "d_col": d_col,
        "d_col_scale": d_col_scale,
    }


def dtypes(
    tensors: Mapping[str, torch.Tensor], params: Mapping[str, Any]
) -> dict[str, torch.dtype]:
    """Those of the outputs: D in bf16 or quantised to e4m3, scales as e8m0 codes, sums in fp32."""
    code = torch.float8_e4m3fn
    return {
        "d_row": code if params["quantised"] else torch.bfloat16,
        "d_col": code,
        **dict.fromkeys(("d_row_scale", "d_col_scale"), torch.uint8),
        "d_srelu": torch.bfloat16,
        **dict.fromkeys(("dprob", "dbias", "amax"), torch.float32),
    }


def dequantise(codes: torch.Tensor, scale: torch.Tensor | None) -> Floats:
    """An operand in float64: [..., K], scale [..., ceil(K / 32)] e8m0 codes or None."""
    values = to_numpy(codes).astype(np.float64)
    if scale is None:
        return values
    powers = decode(to_numpy(scale), E8M0)
    return np.asarray(values * np.repeat(powers, SCALED, axis=-1)[..., : values.shape[-1]])


def accumulate(exact: Floats, magnitude: Floats, terms: int) -> Estimate:
    """A product of `terms` exact products an element, summed in fp32 by a tensor core or otherwise.

    `magnitude` is the product of the operands' absolute values.
    """
    steps = _CUTS * -(-terms // _STEP)
    lost = gamma(steps, _CUT) * magnitude
    return around(exact, lost + np.where(magnitude > 0, terms * TINY, 0.0))


def list_groups(offsets: Array, experts: Array) -> Iterator[tuple[int, slice, int]]:
    """(group, its rows, its expert) of the groups that are owned and not empty."""
    for group, expert in enumerate(experts):
        start, stop = int(offsets[group]), int(offsets[group + 1])
        if expert >= 0 and stop > start:
            yield group, slice(start, stop), int(expert)


def _product(
    tensors: Mapping[str, torch.Tensor], groups: list[tuple[int, slice, int]], in_order: bool
) -> Estimate:
    """sum_k A[m, k] B[n, k] of each row with its group's weights."""
    a = dequantise(tensors["a"], tensors.get("a_scale"))
    b = dequantise(tensors["b"], tensors.get("b_scale"))
    shape = a.shape[0], b.shape[1]
    value, low, high = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for _, rows, expert in groups:
        found = (sum_in_order if in_order else _in_any_order)(a[rows], b[expert])
        value[rows], low[rows], high[rows] = found.value, found.low, found.high
    return Estimate(value=value, low=low, high=high)


def sum_in_order(a: Floats, b: Floats) -> Estimate:
    """a [M, K] times b [N, K] transposed, numbers of bf16, in one accumulator in the order of k."""
    return partial_sums.multiply(a, b, _STEPS, BF16)


def _in_any_order(a: Floats, b: Floats) -> Estimate:
    with np.errstate(invalid="ignore"):
        return accumulate(a @ b.T, np.abs(a) @ np.abs(b).T, a.shape[1])


def _only(x: Estimate, mask: Array) -> Estimate:
    """`x` where the mask is on, exact zeros elsewhere."""
    value, low, high = (np.where(mask, part, 0.0) for part in (x.value, x.low, x.high))
    return Estimate(value=value, low=low, high=high)


def _add_columns(terms: Estimate, buffer: torch.Tensor, owned: Array) -> Estimate:
    """`buffer` plus the sums over columns; exact for a row that belongs to no group."""
    start = exactly(to_numpy(buffer).astype(np.float64))
    summed = total(terms, 1, start)
    parts = (np.where(owned, part, start.value) for part in (summed.value, summed.low, summed.high))
    value, low, high = parts
    return Estimate(value=value, low=low, high=high)


def _dbias(d: Estimate, buffer: torch.Tensor, groups: list[tuple[int, slice, int]]) -> Estimate:
    value = to_numpy(buffer).astype(np.float64)
    low, high = value.copy(), value.copy()
    value = value.copy()
    for group, rows, _ in groups:
        summed = total(_part(d, rows), 0, exactly(value[group]))
        value[group], low[group], high[group] = summed.value, summed.low, summed.high
    return Estimate(value=value, low=low, high=high)


def _amax(d: Estimate, count: int, groups: list[tuple[int, slice, int]]) -> Estimate:
    """The largest magnitude of each group, NaN where one is NaN, -inf where there is nothing."""
    value = np.full(count, -np.inf)
    low, high = value.copy(), value.copy()
    for group, rows, _ in groups:
        inner, outer = _magnitudes(_part(d, rows))
        value[group] = np.abs(d.value[rows]).max()
        low[group], high[group] = inner.max(), outer.max()
    return Estimate(value=value, low=low, high=high)


def _part(x: Estimate, rows: slice) -> Estimate:
    return Estimate(value=x.value[rows], low=x.low[rows], high=x.high[rows])


def _magnitudes(x: Estimate) -> tuple[Floats, Floats]:
    """The least and the largest |x| that the interval of each element holds."""
    ends = np.abs(x.low), np.abs(x.high)
    inner = np.where(x.low * x.high > 0, np.minimum(*ends), 0.0)
    return np.where(np.isnan(x.value), np.nan, inner), np.maximum(*ends)


def _blocks(d: Estimate) -> tuple[Estimate, Estimate]:
    """(values of codes, numbers of scales) of rows quantised in blocks of 32 along the last axis.

    The scale is 2^e with the smallest e of at least -127 so that |x| <= 448 * 2^e for all of a block,
    e + 127 its code; a block with a value that is not finite has code 255 and NaN throughout. A code is
    the value over its scale, to nearest even. Where the interval of the largest magnitude admits
    several scales, a code may be that of any of them.
    """
    *rows, columns = d.shape
    width = -(-columns // SCALED) * SCALED

    def blocked(x: Floats) -> Floats:
        filled = np.zeros((*rows, width))
        filled[..., :columns] = x
        return filled.reshape(*rows, width // SCALED, SCALED)

    def flat(x: Floats) -> Floats:
        return x.reshape(*rows, width)[..., :columns]

    blocks = Estimate(value=blocked(d.value), low=blocked(d.low), high=blocked(d.high))
    finite: Array = np.asarray(np.isfinite(blocks.value).all(axis=-1))
    inner, outer = _magnitudes(blocks)
    tops = (np.abs(blocks.value), inner, outer)
    exponents = [_exponent(np.where(finite, top.max(axis=-1), 0.0)) for top in tops]
    scale = [np.where(finite, e + 127.0, _NO_NUMBER) for e in exponents]

    def coded(x: Floats, e: Array) -> Floats:
        return round_value(np.where(finite[..., None], np.ldexp(x, -e[..., None]), 0.0), E4M3)

    value = np.where(finite[..., None], coded(blocks.value, exponents[0]), np.nan)
    low = np.minimum(*(coded(blocks.low, e) for e in exponents[1:]))
    high = np.maximum(*(coded(blocks.high, e) for e in exponents[1:]))
    codes = Estimate(value=flat(value), low=flat(low), high=flat(high))
    return codes, Estimate(value=scale[0], low=scale[1], high=scale[2])


def _exponent(amax: Floats) -> Array:
    """The smallest integers e >= -127 with amax <= 448 * 2^e, exactly."""
    fraction, exponent = np.frexp(amax)
    # 448 is 0.875 * 2^9.
    covering = exponent - 9 + (fraction > LARGEST / 512)
    return np.where(amax == 0, -127, np.maximum(covering, -127))


def _columns(d: Estimate, offsets: Array) -> tuple[Estimate, Estimate]:
    """`_blocks` down the columns, from the first row of each group; scales of all groups in turn."""
    rows, columns = d.shape
    codes = [np.zeros((rows, columns)) for _ in range(3)]
    scales = [np.zeros((-(-rows // SCALED) + len(offsets) - 1, columns)) for _ in range(3)]
    at = 0
    for start, stop in zip(offsets, [*offsets[1:], rows], strict=True):
        if start == stop:
            continue
        part = _part(d, slice(int(start), int(stop)))
        turned = Estimate(value=part.value.T, low=part.low.T, high=part.high.T)
        found, scale = _blocks(turned)
        count = scale.shape[1]
        for kept, name in enumerate(("value", "low", "high")):
            codes[kept][start:stop] = getattr(found, name).T
            scales[kept][at : at + count] = getattr(scale, name).T
        at += count
    return (
        Estimate(value=codes[0], low=codes[1], high=codes[2]),
        Estimate(value=scales[0], low=scales[1], high=scales[2]),
    )
