"""What a tensor core adds up, to the last bit: one step of a matrix product, and a product of many steps.

One step adds a few products of operands and the accumulator. The products are exact. Every term is aligned
to the largest exponent among products and accumulator and cut toward zero F bits below it; the cut terms
are added exactly, and the sum is rounded toward zero to the width of the result. A product's exponent is the
sum of its operands' exponents before normalisation, and a subnormal operand counts with the smallest
exponent of its format. `instructions` has the numbers of each instruction, and the sources.

All arithmetic here is on integers, and nothing is shared with a lane that computes products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitproof.oracles import formats
from bitproof.oracles.formats import Format
from bitproof.oracles.instructions import INSTRUCTIONS, Instruction

Array = NDArray[Any]
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

FP32 = formats.by_name("fp32")
# In what format the hardware reads operands of a kind.
FORMATS = {
    **{kind: formats.by_name(kind) for kind in ("bf16", "fp16", "e4m3", "e5m2")},
    "tf32": FP32,
}
# Below any exponent that a term can have, so that a zero aligns nothing.
_NOWHERE = -(1 << 20)
_NAN = np.uint32(0x7FFFFFFF)


# The products of sm_90 that were compared with a card, by operand type and what Triton makes of them.
SM_90 = {
    **INSTRUCTIONS["sm_90"],
    ("e4m3", "wgmma promoted"): replace(INSTRUCTIONS["sm_90"]["e4m3", "wgmma"], promoted=32),
    ("e5m2", "wgmma promoted"): replace(INSTRUCTIONS["sm_90"]["e5m2", "wgmma"], promoted=32),
    # fp8 operands that wgmma does not take are widened to fp16; a thread holds four of a row together.
    ("e4m3", "mma"): replace(INSTRUCTIONS["sm_90"]["fp16", "mma"], interleaved=2),
    ("e5m2", "mma"): replace(INSTRUCTIONS["sm_90"]["fp16", "mma"], interleaved=2),
}


def multiply(
    a: Array, b: Array, accumulator: Floats, fmt: Format, instruction: Instruction
) -> Floats:
    """accumulator [M, N] + a [M, K] @ b [K, N], the bits that `instruction` gives, fp32.

    `a` and `b` are codes of `fmt` (unsigned integers of its width). K is filled up with zeros to whole steps.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"a [M, K] and b [K, N] are multiplied, not {a.shape} and {b.shape}")
    if accumulator.shape != (a.shape[0], b.shape[1]):
        raise ValueError(
            f"the accumulator of {a.shape} @ {b.shape} is not of shape {accumulator.shape}"
        )
    places = order_products(a.shape[1], instruction)
    wide_a = np.concatenate([a, np.zeros((a.shape[0], 1), a.dtype)], axis=1)
    wide_b = np.concatenate([b, np.zeros((1, b.shape[1]), b.dtype)], axis=0)
    total = accumulator.astype(np.float32)
    partial = np.zeros_like(total)
    for start in range(0, len(places), instruction.terms):
        chosen = places[start : start + instruction.terms]
        left = wide_a[:, chosen][:, None, :]
        right = wide_b[chosen].T[None, :, :]
        if not instruction.promoted:
            total = add_products(left, right, total, fmt, instruction)
            continue
        partial = add_products(left, right, partial, fmt, instruction)
        done = start + instruction.terms
        if done % instruction.promoted == 0 or done >= len(places):
            with np.errstate(all="ignore"):
                total = total + partial
            partial = np.zeros_like(total)
    return total


def product(
    a: Array,
    b: Array,
    *,
    kind: str,
    instruction: Instruction,
    tile: int,
    start: Floats | None = None,
) -> Floats:
    """a [M, K] @ b [K, N] plus `start`, fp32, the bits of a kernel that goes through K in tiles of `tile`.

    For a spec that claims exact bits of a product: it states what multiplies, by `kind`, the type that the
    hardware reads operands in ("bf16", "fp16", "tf32" for fp32 operands, "e4m3", "e5m2"), and `instruction`,
    of `instructions.INSTRUCTIONS` or made of one. `a` and `b` have numpy's or ml_dtypes' types; fp8 operands
    are widened to fp16 where `kind` says so. The last tile is filled up with zeros. Raises ValueError for
    operands that `kind` does not hold exactly.
    """
    fmt = FORMATS[kind]
    codes_a, codes_b = (_convert(x, fmt) for x in (a, b))
    depth = codes_a.shape[1]
    total = np.zeros((len(a), b.shape[1]), np.float32) if start is None else start
    for first in range(0, depth, tile):
        size = min(tile, depth - first)
        part_a, part_b = (
            np.zeros((len(a), tile), fmt.storage),
            np.zeros((tile, b.shape[1]), fmt.storage),
        )
        part_a[:, :size] = codes_a[:, first : first + size]
        part_b[:size] = codes_b[first : first + size]
        total = multiply(part_a, part_b, total, fmt, instruction)
    return total


def _convert(values: Array, fmt: Format) -> Array:
    """Codes of `fmt` for values that it holds exactly."""
    codes = values.astype(fmt.numpy_dtype)
    back = codes.astype(values.dtype)
    if not np.array_equal(back, values, equal_nan=True):
        raise ValueError(f"operands in {values.dtype} are not all numbers of {fmt.name}")
    return formats.bits(codes)


def order_products(k: int, instruction: Instruction) -> Integers:
    """The order in which K products are taken, in whole instructions; K itself stands for a zero.

    An instruction reads an eighth of its depth of a row from each of eight places in a row's registers.
    Where a thread holds w times as much side by side, w instructions share it: the first takes the first of
    the w parts at every place, the second the second.
    """
    packed = instruction.span // 8
    block = instruction.span * instruction.interleaved
    numbers = np.arange(-(-k // block) * block).reshape(-1, 8, instruction.interleaved, packed)
    places = numbers.swapaxes(1, 2).reshape(-1)
    return np.where(places < k, places, k).astype(np.int64)


def add_products(
    a: Array, b: Array, accumulator: Floats, fmt: Format, instruction: Instruction
) -> Floats:
    """One step: accumulator [...] + the sum over the last axis of a * b, codes of `fmt` [..., terms]."""
    a, b = np.broadcast_arrays(a, b)
    ones, others = (_split(codes, fmt, instruction.ignored) for codes in (a, b))
    carried = _split(accumulator.view(np.uint32), FP32, 0)
    products = ones.significand * others.significand
    exponents = np.where(products != 0, ones.exponent + others.exponent, _NOWHERE)
    own = np.where(carried.significand != 0, carried.exponent, _NOWHERE)
    largest = np.maximum(exponents.max(axis=-1), own)
    lowest = largest - instruction.kept
    bits = 2 * fmt.mantissa_bits
    cut = _shift(products, exponents - bits - lowest[..., None])
    signed = np.where(ones.negative != others.negative, -cut, cut).sum(axis=-1)
    start = _shift(carried.significand, own - FP32.mantissa_bits - lowest)
    signed += np.where(carried.negative, -start, start)
    result = _round(signed, lowest, instruction.width)
    return _with_specials(result, a, b, accumulator, fmt)


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Numbers as significand * 2^(exponent - mantissa bits), the sign apart."""

    significand: Integers
    exponent: Integers
    negative: NDArray[np.bool_]


def _split(codes: Array, fmt: Format, ignored: int) -> _Parts:
    codes = codes.astype(np.int64)
    magnitude = codes & fmt.magnitude_mask & ~((1 << ignored) - 1)
    field = magnitude >> fmt.mantissa_bits
    mantissa = magnitude & ((1 << fmt.mantissa_bits) - 1)
    normal = field > 0
    return _Parts(
        significand=np.where(normal, mantissa | 1 << fmt.mantissa_bits, mantissa),
        exponent=np.where(normal, field, 1) - fmt.bias,
        negative=(codes & fmt.sign_bit) != 0,
    )


def _shift(magnitudes: Integers, places: Integers) -> Integers:
    """magnitudes * 2^places, cut toward zero."""
    left = np.clip(places, 0, 62)
    right = np.clip(-places, 0, 63)
    return np.where(places >= 0, magnitudes << left, magnitudes >> right)


def _round(total: Integers, unit: Integers, width: int) -> Floats:
    """total * 2^unit as fp32, its significand cut toward zero to `width` bits."""
    magnitude = np.abs(total)
    _, length = np.frexp(magnitude.astype(np.float64))
    # A float64 of more than 53 bits may round up to the next power of two; sums here have fewer.
    surplus = np.maximum(length - width, -149 - unit)
    surplus = np.maximum(surplus, 0)
    kept = np.where(
        surplus > 62, 0, magnitude >> np.minimum(surplus, 62) << np.minimum(surplus, 62)
    )
    value = np.ldexp(kept.astype(np.float64), np.clip(unit, -1000, 1000).astype(np.int64))
    largest = np.float64(FP32.largest)
    with np.errstate(over="ignore"):
        wide = np.where(value > largest, np.inf, value).astype(np.float32)
    return np.where(total < 0, -wide, wide).astype(np.float32)


def _with_specials(result: Floats, a: Array, b: Array, accumulator: Floats, fmt: Format) -> Floats:
    """`result` with NaN and infinities where operands have them."""
    nan_a, nan_b = (formats.is_nan(codes, fmt) for codes in (a, b))
    magnitude_a, magnitude_b = ((codes.astype(np.int64) & fmt.magnitude_mask) for codes in (a, b))
    infinity = fmt.infinity
    inf_a, inf_b = (
        (magnitude == infinity) if infinity is not None else np.zeros(magnitude.shape, np.bool_)
        for magnitude in (magnitude_a, magnitude_b)
    )
    invalid = nan_a | nan_b | (inf_a & (magnitude_b == 0)) | (inf_b & (magnitude_a == 0))
    infinite = (inf_a | inf_b) & ~invalid
    negative = ((a ^ b).astype(np.int64) & fmt.sign_bit) != 0
    up = (infinite & ~negative).any(-1) | np.isposinf(accumulator)
    down = (infinite & negative).any(-1) | np.isneginf(accumulator)
    nan = invalid.any(-1) | np.isnan(accumulator) | (up & down)
    answer = np.where(up, np.float32(np.inf), np.where(down, np.float32(-np.inf), result))
    return np.where(nan, _NAN.view(np.float32), answer.astype(np.float32))
