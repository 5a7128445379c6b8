"""How far a product's sum on a tensor core may be off, on either side, from the partial sums at hand.

A step of an instruction adds a few exact products and the accumulator. With e the largest exponent among
them, each is cut toward zero to a multiple of u = 2^(e - kept), and the sum toward zero to its width. So
what is lost of a positive term, at most u and at most the term, makes the sum smaller, and of a negative one
larger: a sum of positive terms is never above the exact one. Source of the steps: `oracles.tensor_cores`.

The exact partial sums are known in float64, and with what was lost before they bound the accumulator.
Products are taken a block of `BLOCK` at a time, in any order inside: no instruction of the table deals
products to places further apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bitproof.oracles.estimates import TINY, Estimate
from bitproof.oracles.formats import Floats, Format
from bitproof.oracles.instructions import INSTRUCTIONS, Instruction

Flags = NDArray[np.bool_]

BLOCK: Final = 32
"""Products that an instruction may take in another order than that of k."""

# So many products are looked at one by one, of so many at once; more are counted.
_ONE_BY_ONE: Final = 1 << 24
_AT_ONCE: Final = 1 << 18

# A float64 sum of BLOCK products errs by less than this of their magnitudes.
_EXACT: Final = BLOCK * 2.0**-52


@dataclass(frozen=True, kw_only=True)
class Steps:
    """An instruction by what it loses: bits kept, bits of a result, steps for a block."""

    kept: int
    width: int
    additions: int

    @property
    def share(self) -> float:
        """The most that a block loses of the largest of its terms and partial sums."""
        return (BLOCK + self.additions) * 2.0**-self.kept + self.additions * 2.0 ** (1 - self.width)

    def covers(self, other: Steps) -> bool:
        """Whether none of what `other` loses is more: by cuts of products, of accumulators, of sums."""
        return self.kept <= other.kept and all(
            self.additions * 2.0**-mine >= other.additions * 2.0**-its
            for mine, its in ((self.kept, other.kept), (self.width, other.width))
        )


def find_worst(instructions: Iterable[Instruction]) -> Steps:
    """The one of `instructions` that loses most, whose bound holds for the others too.

    Raises ValueError for one that takes products from further apart than a block, or promotes (what is
    promoted is several sums), and where none loses most in every way.
    """
    found = set()
    for one in instructions:
        if one.span * one.interleaved > BLOCK or one.promoted:
            raise ValueError(f"{one} does not add up blocks of {BLOCK} products, one after another")
        found.add(Steps(kept=one.kept, width=one.width, additions=-(-BLOCK // one.terms)))
    worst = max(found, key=lambda one: one.share)
    if not all(worst.covers(other) for other in found):
        raise ValueError(f"none of {found} loses most in every way")
    return worst


def find_steps(*kinds: str) -> Steps:
    """The worst instruction of any target for operands of these kinds, such as "bf16"."""
    return find_worst(
        one for table in INSTRUCTIONS.values() for (kind, _), one in table.items() if kind in kinds
    )


def multiply(
    x: Floats,
    w: Floats,
    steps: Steps,
    fmt: Format,
    *,
    scales: tuple[Floats, Floats] | None = None,
    spread: Floats | None = None,
) -> Estimate:
    """x [M, K] times w [N, K] transposed, summed from zero in the order of k, an fp32 accumulator.

    Both are numbers of `fmt`. Or numbers times something per row, of at most `scales` [M] and [N]: then
    what an instruction aligns to is known less well. `spread` [M, K], with scales alone: how far an operand
    of x may be from what is given here.
    """
    shape = len(x), len(w)
    value, under, over = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    smallest = 2.0**fmt.minimum_exponent
    least = [smallest * (np.ones(n) if scales is None else scales[i]) for i, n in enumerate(shape)]
    # A product is a multiple of its last place, which is so far below its exponent.
    bits = 2 * fmt.mantissa_bits if scales is None and x.size * len(w) <= _ONE_BY_ONE else None
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, x.shape[1], BLOCK):
            part = slice(start, start + BLOCK)
            left, right = x[:, part], w[:, part]
            beside = None if spread is None else spread[:, part]
            block = _weigh(left, right, beside, least)
            reach = _reach(block, value - under, value + over, steps, known=scales is None)
            cut = _cut_all(block, reach) if bits is None else _cut(left, right, reach, bits)
            below, above = _lose(block, reach, cut)
            value = value + block.value
            slack = 2.0**-52 * np.abs(value)
            under, over = under + below + slack, over + above + slack
        return Estimate(value=value, low=value - under, high=value + over)


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Of the products of a block, each [M, N]: their sum, and how far operands may set it off.

    The sums of the positive and of the negative ones at most, how many there are of either, and a number that
    the power of two of no product's exponent exceeds.
    """

    value: Floats
    carried: Floats
    positive: Floats
    negative: Floats
    positives: Floats
    negatives: Floats
    largest: Floats


def _weigh(x: Floats, w: Floats, spread: Floats | None, least: list[Floats]) -> _Block:
    size_x, size_w = np.abs(x), np.abs(w)
    value = x @ w.T
    carried = np.zeros_like(value)
    if spread is not None:
        size_x = size_x + spread
        carried = spread @ size_w.T
    on_x, on_w = size_x > 0, size_w > 0
    count = on_x.astype(np.float32) @ on_w.T.astype(np.float32)
    more = (
        np.sign(x).astype(np.float32) @ np.sign(w).T.astype(np.float32)
        if spread is None
        else np.zeros_like(count)
    )
    magnitude = size_x @ size_w.T
    slack = _EXACT * magnitude
    raised_x, raised_w = (
        np.where(on, np.maximum(size, one[:, None]), 0.0)
        for on, size, one in zip((on_x, on_w), (size_x, size_w), least, strict=True)
    )
    uncertain = 1 if spread is None else 2
    return _Block(
        value=value,
        carried=carried + slack,
        positive=(magnitude + value + carried) / 2 + slack,
        negative=(magnitude - value + carried) / 2 + slack,
        positives=uncertain * (count + more) / 2,
        negatives=uncertain * (count - more) / 2,
        largest=np.minimum(raised_x.max(1)[:, None] * raised_w.max(1), raised_x @ raised_w.T),
    )


@dataclass(frozen=True, kw_only=True)
class _Reach:
    """How large the terms and sums of a block may be [M, N]: what it may lose of them.

    A place below which no term is cut, what the accumulator and the sums of all steps lose together, and
    whether a sum may be positive, negative.
    """

    unit: Floats
    again: Floats
    rises: Flags
    falls: Flags


def _reach(block: _Block, low: Floats, high: Floats, steps: Steps, *, known: bool) -> _Reach:
    """From an accumulator in [low, high]; exponents are `known` where numbers are what is multiplied."""
    lowest, highest = low - block.negative, high + block.positive
    most = np.maximum(-lowest, highest)
    # What is lost on the way may add to partial sums itself.
    top = np.maximum(most, block.largest) / (1.0 - steps.share)
    lost = steps.share * top
    power = _power if known else np.asarray
    unit = power(top) * 2.0**-steps.kept
    last = power(most + lost) * 2.0 ** (1 - steps.width)
    # A step of zeros leaves an accumulator as it is: no sum is wider than what is kept of it.
    taken = np.minimum(steps.additions, block.positives + block.negatives)
    return _Reach(
        unit=unit,
        again=taken * (unit + last),
        # Cuts keep signs: without a negative term no sum is negative.
        rises=(high > 0) | ((block.positives > 0) & (highest + lost > 0)),
        falls=(low < 0) | ((block.negatives > 0) & (lowest - lost < 0)),
    )


def _cut_all(block: _Block, reach: _Reach) -> tuple[Floats, Floats]:
    """What cuts may take from the positive and from the negative products, if from all of them."""
    return (
        np.minimum(block.positives * reach.unit, block.positive),
        np.minimum(block.negatives * reach.unit, block.negative),
    )


def _cut(x: Floats, w: Floats, reach: _Reach, bits: int) -> tuple[Floats, Floats]:
    """The same, one by one: a product with exponent e is a multiple of 2^(e - bits), and below 2^(e + 2).

    So those of at least 2^(bits + 1) units lose nothing.
    """
    below, above = np.zeros_like(reach.unit), np.zeros_like(reach.unit)
    rows = max(_AT_ONCE // max(w.size, 1), 1)
    for start in range(0, len(x), rows):
        part = slice(start, start + rows)
        terms = x[part, None, :] * w[None, :, :]
        unit = reach.unit[part, :, None]
        size = np.abs(terms)
        lost = np.where(size < 2.0 ** (bits + 1) * unit, np.minimum(size, unit), 0.0)
        both = lost.sum(-1)
        below[part] = np.where(terms > 0, lost, 0.0).sum(-1)
        above[part] = both - below[part]
    return below, np.maximum(above, 0.0)


def _lose(block: _Block, reach: _Reach, cut: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """How far below and above the exact sum a block may end."""
    count = block.positives + block.negatives
    # Adding up what is lost errs, too, and what is subnormal may be flushed.
    exactly = block.carried + np.where(count > 0, BLOCK * TINY, 0.0)
    below = cut[0] + np.where(reach.rises, reach.again, 0.0)
    above = cut[1] + np.where(reach.falls, reach.again, 0.0)
    return exactly + below, exactly + above


def _power(x: Floats) -> Floats:
    """The power of two at or below each positive number; itself where it is 0, infinite or NaN."""
    _, exponent = np.frexp(x)
    return np.where(np.isfinite(x) & (x > 0), np.ldexp(0.5, exponent), x)
