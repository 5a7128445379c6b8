"""What a tensor core adds up, to the last bit: one step of a matrix product, and a product of many steps.

One step adds a few products of operands and the accumulator. The products are exact. Every term is aligned
to the largest exponent among products and accumulator and cut toward zero F bits below it; the cut terms
are added exactly, and the sum is rounded toward zero to the width of the result. A product's exponent is the
sum of its operands' exponents before normalisation, and a subnormal operand counts with the smallest
exponent of its format. (Published in "MMA-Sim", arXiv 2511.10909, and "FTTN", arXiv 2403.00232;
docs/tensor-cores.md says what was confirmed on which card.)

All arithmetic here is on integers, and nothing is shared with a lane that computes products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitproof.oracles import formats
from bitproof.oracles.formats import Format

Array = NDArray[Any]
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

# "k": as they come. "pairs": of each 32, first those with k mod 4 in {0, 1}, then those in {2, 3}.
Order = Literal["k", "pairs"]
Start = Literal["accumulator", "zero"]

FP32 = formats.by_name("fp32")
# Below any exponent that a term can have, so that a zero aligns nothing.
_NOWHERE = -(1 << 20)
_NAN = np.uint32(0x7FFFFFFF)


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """How one instruction adds up.

    terms   products in one step
    kept    F: bits below the largest exponent at which terms are cut
    width   bits of the result's significand, at most fp32's 24
    ignored low bits of an fp32 operand that the hardware does not read
    order   in which products are taken
    start   what a step begins with: the accumulator, or zero, after which the step's result is added to the
            accumulator in fp32, to nearest
    """

    terms: int
    kept: int
    width: int = 24
    ignored: int = 0
    order: Order = "k"
    start: Start = "accumulator"


# Of sm_90, by operand type and the instruction that Triton chooses; wgmma takes tiles of 64 rows or more.
SM_90 = {
    ("bf16", "wgmma"): Instruction(terms=16, kept=25),
    ("bf16", "mma"): Instruction(terms=16, kept=25),
    ("fp16", "wgmma"): Instruction(terms=16, kept=25),
    ("fp16", "mma"): Instruction(terms=16, kept=25),
    ("tf32", "wgmma"): Instruction(terms=8, kept=25, ignored=13),
    ("tf32", "mma"): Instruction(terms=8, kept=25, ignored=13),
    ("e4m3", "wgmma"): Instruction(terms=32, kept=13, width=14),
    ("e5m2", "wgmma"): Instruction(terms=32, kept=13, width=14),
    ("e4m3", "wgmma promoted"): Instruction(terms=32, kept=13, width=14, start="zero"),
    ("e5m2", "wgmma promoted"): Instruction(terms=32, kept=13, width=14, start="zero"),
    # fp8 operands that wgmma does not take are widened to fp16.
    ("e4m3", "mma"): Instruction(terms=16, kept=25, order="pairs"),
    ("e5m2", "mma"): Instruction(terms=16, kept=25, order="pairs"),
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
    for start in range(0, len(places), instruction.terms):
        chosen = places[start : start + instruction.terms]
        left = wide_a[:, chosen][:, None, :]
        right = wide_b[chosen].T[None, :, :]
        if instruction.start == "accumulator":
            total = add_products(left, right, total, fmt, instruction)
        else:
            fresh = add_products(left, right, np.zeros_like(total), fmt, instruction)
            with np.errstate(all="ignore"):
                total = total + fresh
    return total


def order_products(k: int, instruction: Instruction) -> Integers:
    """The order in which K products are taken, in whole steps; K itself stands for a zero."""
    if instruction.order == "k":
        places = np.arange(-(-k // instruction.terms) * instruction.terms)
    else:
        numbers = np.arange(-(-k // 32) * 32).reshape(-1, 32)
        first = numbers % 4 < 2
        places = np.concatenate(
            [numbers[first].reshape(-1, 1, 16), numbers[~first].reshape(-1, 1, 16)], axis=1
        ).reshape(-1)
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
