"""Matrix products as tensor cores sum them, vectorised: 64 x 64 outputs a step take some microseconds.

One step adds a few exact products and the accumulator: each term is cut toward zero some bits below the
largest exponent among them, the cut terms are added exactly, and the sum is cut to the result's width
(docs/tensor-cores.md). Here terms are float64 numbers, scaled so that the last bit kept is 1: cutting is
`trunc`, and sums of at most 33 terms below 2^27 are exact. What judges this code shares nothing with it but
the table of instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bitproof.harness.targets import roundings as r
from bitproof.oracles.formats import Format
from bitproof.oracles.instructions import Instruction

Doubles = NDArray[np.float64]
Exponents = NDArray[np.int16]

# Of a zero, which aligns nothing; twice this is still an int16.
_NOWHERE = np.int16(-16000)
# Below every exponent that a term can have, and within reach of a float64's scale.
_LOWEST = np.int16(-400)
_SMALLEST = -126  # the exponent with which a subnormal accumulator counts
# Outputs that are computed together: what they need stays in a core's own cache.
_TOGETHER = 8192
# Products that are computed by one call: a call costs what some thousand of them do.
_AT_ONCE = 4096


def multiply_add(a: r.Array, b: r.Array, acc: r.Array, fmt: Format, one: Instruction) -> r.Array:
    """acc [..., M, N] + a [..., M, K] @ b [..., K, N] as instruction `one` sums it, all of them float32.

    `a` and `b` hold numbers of `fmt`, whose smallest exponent is what a subnormal operand counts with; of
    fp32 numbers the hardware reads all but the low bits that `one` ignores.
    """
    *batch, rows, depth = a.shape
    columns = b.shape[-1]
    wide_a, wide_b = (_read(x, one.ignored) for x in (a, b))
    taken = _order(depth, one)
    if taken is not None:
        wide_a, wide_b = _arrange(wide_a, taken, -1), _arrange(wide_b, taken, -2)
    wide_a = wide_a.reshape(-1, rows, wide_a.shape[-1])
    wide_b = wide_b.reshape(-1, wide_b.shape[-2], columns)
    start = acc.astype(np.float64).reshape(-1, rows, columns)
    out = np.empty(start.shape, dtype=np.float32)
    for left, right, begin, end in zip(wide_a, wide_b, start, out, strict=True):
        _multiply(left, right, begin, end, fmt, one)
    return out.reshape(*batch, rows, columns)


def _multiply(
    a: r.Array, b: r.Array, start: Doubles, out: r.Array, fmt: Format, one: Instruction
) -> None:
    """out [M, N] = start [M, N] + a [M, K] @ b [K, N].

    Padded tiles hold many zeros. A row or column of zeros adds nothing but what it makes of infinities and
    NaN, so that it is left out where there are none.
    """
    own, other = split(a.T, fmt), split(b, fmt)
    if own.specials is None and other.specials is None:
        used_rows, used_columns = a.any(axis=1), b.any(axis=0)
        if not (used_rows.all() and used_columns.all()):
            nothing = start if one.promoted else add_products(own, other, slice(0, 0), start, one)
            out[...] = nothing + 0.0
            chosen = np.ix_(used_rows, used_columns)
            part = np.empty((used_rows.sum(), used_columns.sum()), dtype=np.float32)
            if part.size:
                _multiply(a[used_rows], b[:, used_columns], start[chosen], part, fmt, one)
                out[chosen] = part
            return
    height = max(_TOGETHER // len(b[0]), 1)
    for first in range(0, len(a), height):
        some = slice(first, first + height)
        out[some] = _sum(own.of(some), other, start[some], one)


@dataclass(frozen=True)
class Terms:
    """[K, rows] of one operand: finite values and their exponents, and `specials` where any is not finite."""

    values: Doubles
    exponents: Exponents
    specials: Doubles | None

    def of(self, rows: slice) -> Terms:
        """Those of some rows."""
        specials = None if self.specials is None else self.specials[:, rows]
        return Terms(self.values[:, rows], self.exponents[:, rows], specials)


def split(values: r.Array, fmt: Format) -> Terms:
    """The terms of float32 values [K, rows], those of one k together; what is not finite counts as zero."""
    values = np.ascontiguousarray(values)
    finite = np.isfinite(values)
    specials = None
    if not finite.all():
        specials = np.where(finite, np.sign(values), values).astype(np.float64)
        values = np.where(finite, values, np.float32(0))
    field = (values.view(np.uint32) >> np.uint32(23) & np.uint32(0xFF)).astype(np.int16)
    exponents = np.maximum(field - np.int16(127), np.int16(fmt.minimum_exponent))
    return Terms(values.astype(np.float64), np.where(values == 0, _NOWHERE, exponents), specials)


def _sum(a: Terms, b: Terms, total: Doubles, one: Instruction) -> r.Array:
    """`total` [M, N] and the products of a [K, M] and b [K, N], step by step, as float32."""
    depth = len(a.values)
    special = a.specials is not None or b.specials is not None
    live = np.asarray(a.values.any(axis=1) & b.values.any(axis=1)) | special
    partial = np.zeros_like(total) if one.promoted else total
    for first in range(0, depth, one.terms):
        terms = slice(first, first + one.terms)
        # The first step cuts an accumulator that is wider than its result; zeros change nothing more.
        if live[terms].any() or (first == 0 and not one.promoted):
            before = partial
            partial = add_products(a, b, terms, before, one)
            if special:
                partial = _with_specials(partial, before, a, b, terms)
        done = first + one.terms
        if one.promoted and (done % one.promoted == 0 or done >= depth):
            added = total.astype(np.float32) + partial.astype(np.float32)
            total, partial = added.astype(np.float64), np.zeros_like(total)
    return np.asarray((total if one.promoted else partial).astype(np.float32))


def add_products(a: Terms, b: Terms, terms: slice, total: Doubles, one: Instruction) -> Doubles:
    """One step: `total` [M, N] and the products numbered `terms`, float64 that fp32 holds."""
    largest = _exponents_of(total)
    few = max(_AT_ONCE // max(total.size, 1), 1)
    parts = [slice(n, min(n + few, terms.stop)) for n in range(terms.start, terms.stop, few)]
    for part in parts:
        sums = a.exponents[part, :, None] + b.exponents[part, None, :]
        np.maximum(largest, sums[0] if len(sums) == 1 else sums.max(axis=0), out=largest)
    places = np.maximum(largest, _LOWEST).astype(np.int64)
    places -= one.kept
    scale = _powers(-places)
    result = np.trunc(total * scale)
    for part in parts:
        products = a.values[part, :, None] * b.values[part, None, :]
        products *= scale
        np.trunc(products, out=products)
        result += products[0] if len(products) == 1 else products.sum(axis=0)
    result *= _powers(places)
    return _cut(result, one.width)


def _cut(values: Doubles, width: int) -> Doubles:
    """Toward zero to `width` bits and to fp32's exponents; too large is infinite."""
    low = np.int64(-1) << np.int64(53 - width)
    values = (values.view(np.int64) & low).view(np.float64)
    sizes = np.abs(values)
    if sizes.size and not sizes.max() < 2.0**128:  # a NaN counts as well
        values = np.where(sizes >= 2.0**128, np.copysign(np.inf, values), values)
    tiny = (sizes < 2.0**-126) & (sizes > 0)
    if tiny.any():
        values = np.where(tiny, np.trunc(values * 2.0**149) * 2.0**-149, values)
    return values + 0.0  # a sum that is zero is +0


def _exponents_of(total: Doubles) -> Exponents:
    """Those of an accumulator: a subnormal one counts with fp32's smallest."""
    fields = (total.view(np.int64) >> 52).astype(np.int16)
    fields &= np.int16(0x7FF)
    exponents = np.maximum(fields - np.int16(1023), np.int16(_SMALLEST))
    return np.where(total == 0, _NOWHERE, exponents)


def _powers(exponents: NDArray[np.int64]) -> Doubles:
    """2^exponents, within float64's normal range."""
    return (exponents + 1023 << 52).view(np.float64)


def _with_specials(result: Doubles, before: Doubles, a: Terms, b: Terms, terms: slice) -> Doubles:
    """`result` with the infinities and NaN that this step's operands bring to what was there `before`."""
    # Of finite numbers the sign is enough: infinity times zero is NaN, opposite infinities are.
    left, right = ((np.sign(x.values) if x.specials is None else x.specials)[terms] for x in (a, b))
    brought = np.einsum("km,kn->mn", left, right)
    kept = np.where(np.isfinite(before), 0.0, before)
    return np.where(np.isfinite(brought), result, kept + brought)


def _read(x: r.Array, ignored: int) -> r.Array:
    """float32 numbers without their low bits."""
    if not ignored:
        return x.astype(np.float32, copy=False)
    mask = np.uint32(0xFFFFFFFF << ignored & 0xFFFFFFFF)
    return (x.astype(np.float32, copy=False).view(np.uint32) & mask).view(np.float32)


@cache
def _order(depth: int, one: Instruction) -> NDArray[np.int64] | None:
    """Which product is taken when, in whole instructions, `depth` standing for a zero; None: as they come.

    Eight groups of threads hold a row together: of what lies side by side in one of them, one instruction
    takes the first part, the next the second.
    """
    packed = one.span // 8
    block = 8 * packed * one.interleaved
    if one.interleaved == 1 and depth % block == 0:
        return None
    taken: list[int] = []
    for start in range(0, depth, block):
        for part in range(one.interleaved):
            for group in range(8):
                first = start + (group * one.interleaved + part) * packed
                taken += range(first, first + packed)
    return np.minimum(np.array(taken, dtype=np.int64), depth)


def _arrange(x: r.Array, taken: NDArray[np.int64], axis: int) -> r.Array:
    """`x` in that order along `axis`, with zeros for the places that no product fills."""
    shape = list(x.shape)
    shape[axis] = 1
    return np.take(np.concatenate([x, np.zeros(shape, x.dtype)], axis=axis), taken, axis=axis)
