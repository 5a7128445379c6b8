"""Rounding on the bits of float64 against the rounding oracle and closed forms; what a policy says."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from bitproof.oracles import precision
from bitproof.oracles.formats import BF16, FP16, FP32, Array, Format, midpoints
from bitproof.oracles.precision import (
    ALL_FP32,
    BACKWARD,
    FORWARD,
    TARGETED,
    UPSTREAM,
    Precision,
    exact,
    make_store,
    nearest,
    tf32,
)
from bitproof.oracles.rounding import round_value
from tests.oracles.patterns import SPECIAL, around_midpoints, both_signs, hashed, numbers

FORMATS = [BF16, FP16, FP32]
DTYPES = {BF16: torch.bfloat16, FP16: torch.float16, FP32: torch.float32}


def bits(x: Tensor | Array) -> Array:
    """The patterns of float64 numbers, every NaN as one."""
    values = np.where(np.isnan(x), np.nan, x)
    return values.view(np.int64)


def agree(values: Array, fmt: Format) -> None:
    """Every value rounds as the oracle of the casts says, signs of zeros included."""
    values = values.astype(np.float64)
    expected = round_value(values, fmt, overflow="inf")
    assert np.array_equal(bits(nearest(torch.from_numpy(values), fmt).numpy()), bits(expected))


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_fp32_numbers_round_as_the_rounding_oracle_rounds_them(fmt: Format) -> None:
    """Hashed patterns, subnormals, infinities and NaN of both signs."""
    patterns = both_signs(np.concatenate([hashed(1 << 15), SPECIAL]))
    with np.errstate(invalid="ignore"):
        agree(patterns.view(np.float32), fmt)


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
def test_every_midpoint_and_its_neighbours_round_as_the_oracle_rounds_them(fmt: Format) -> None:
    """Also where the neighbours are float64's, which no fp32 rounding comes near."""
    agree(numbers(both_signs(around_midpoints(fmt))), fmt)
    middle = midpoints(fmt).astype(np.float64)
    agree(np.concatenate([np.nextafter(middle, 0), middle, np.nextafter(middle, np.inf)]), fmt)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_float64_numbers_round_as_the_oracle_rounds_them(fmt: Format) -> None:
    """All exponents of the format and some beyond, with low bits that are ties, nearly ties, and any."""
    words = hashed(3 << 12).astype(np.uint64)
    low, high = fmt.minimum_exponent - fmt.mantissa_bits - 3, fmt.bias + 2
    exponent = (words % np.uint64(high - low)).astype(np.int64) + low
    kept = (hashed(3 << 12, seed=1) >> np.uint32(32 - fmt.mantissa_bits)).astype(np.int64)
    tie = 1 << (51 - fmt.mantissa_bits)
    rest = np.tile([0, tie - 1, tie, tie + 1, 1, 2 * tie - 1], 1 << 11)
    significand = (kept << (52 - fmt.mantissa_bits)) + rest
    agree(both(np.ldexp(1.0 + significand * 2.0**-52, exponent)), fmt)


def both(values: Array) -> Array:
    """The numbers and their negatives."""
    return np.concatenate([values, -values])


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_the_ends_of_a_format_are_where_its_fields_put_them(fmt: Format) -> None:
    """From the closed forms: a tie with infinity overflows, half the smallest number is an even zero."""
    largest = (2 - 2.0**-fmt.mantissa_bits) * 2.0**fmt.bias
    beyond = (2 - 2.0 ** -(fmt.mantissa_bits + 1)) * 2.0**fmt.bias
    smallest = 2.0 ** (fmt.minimum_exponent - fmt.mantissa_bits)
    expected = {
        largest: largest,
        math.nextafter(beyond, 0): largest,
        beyond: math.inf,
        1.7e308: math.inf,
        math.inf: math.inf,
        smallest: smallest,
        smallest / 2: 0.0,
        math.nextafter(smallest / 2, 1): smallest,
        1.5 * smallest: 2 * smallest,
        2.5 * smallest: 2 * smallest,
        2.0**fmt.minimum_exponent - smallest / 2: 2.0**fmt.minimum_exponent,
        2.0**-1074: 0.0,
        0.0: 0.0,
    }
    x = both(np.array([*expected]))
    found = nearest(torch.from_numpy(x), fmt).numpy()
    assert np.array_equal(bits(found), bits(both(np.array([*expected.values()]))))


def test_tf32_is_fp32_cut_to_ten_bits_toward_zero() -> None:
    """With integers: the fp32 number's low thirteen bits are dropped, whatever they are."""
    patterns = hashed(1 << 12)
    low = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF], dtype=np.uint32)
    patterns = (patterns[:, None] & np.uint32(0x7FFFE000) | low).reshape(-1)
    # Normal numbers: what is subnormal has fewer bits to cut.
    normal = (patterns >= 0x00800000) & (patterns < 0x7F800000)
    patterns = both_signs(patterns[normal])
    x = torch.from_numpy(patterns.view(np.float32).astype(np.float64))
    expected = (patterns & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    assert np.array_equal(bits(tf32(x).numpy()), bits(expected))


def test_tf32_reads_a_float64_number_as_the_fp32_number_nearest_to_it() -> None:
    """A number just below a power of two is that power in fp32, which is not cut."""
    values = [2.0 - 2.0**-30, 2.0 - 2.0**-23, 1e39, -1e39, -0.0, math.nan]
    x = torch.tensor(values, dtype=torch.float64)
    expected = np.array([2.0, 2.0 - 2.0**-10, math.inf, -math.inf, -0.0, math.nan])
    assert np.array_equal(bits(tf32(x).numpy()), bits(expected))


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
def test_a_tensor_core_reads_narrow_numbers_exactly(fmt: Format) -> None:
    """bf16 values, and fp16's, have no bit below the tenth."""
    x = nearest(torch.from_numpy(numbers(hashed(1 << 12)).astype(np.float64)), fmt)
    assert torch.equal(tf32(x), x)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_a_store_rounds_the_intermediates_that_it_is_told_to(fmt: Format) -> None:
    """The others come back as they are."""
    x = torch.linspace(-3, 3, 101, dtype=torch.float64) / 3
    store = make_store(frozenset({"u", "state"}), DTYPES[fmt])
    for name in FORWARD:
        if name in ("u", "state"):
            assert torch.equal(store(name, x), nearest(x, fmt))
            assert not torch.equal(store(name, x), x)
        else:
            assert store(name, x) is x
        assert exact(name, x) is x


def test_a_stretched_grid_has_the_formats_values_over_its_factor() -> None:
    """Against fractions: x is answered by the multiple of the unit that is nearest to x times the factor."""
    grids = torch.tensor([1.0, 1.25, 1.75], dtype=torch.float64)[:, None]
    x = torch.linspace(1, 1.125, 300, dtype=torch.float64).expand(3, 300)
    found = make_store(frozenset({"u"}), torch.bfloat16, grids)("u", x)
    for row, factor in enumerate(grids.flatten().tolist()):
        for value, answer in zip(x[row].tolist(), found[row].tolist(), strict=True):
            # The product is rounded to float64 before it is compared with the format's values.
            product = Fraction(value * factor)
            unit = Fraction(1, 128) * (1 if product < 2 else 2)
            assert answer == float(round(product / unit) * unit) / factor
    assert len({float((found[row] - x[row]).abs().sum()) for row in range(3)}) == 3


def test_every_policy_by_name() -> None:
    """Nothing, the three that decide, or everything stays in fp32."""
    assert {name: policy.fp32 for name, policy in precision.NAMED.items()} == {
        "upstream": frozenset(),
        "targeted": {"scores", "u", "v_new"},
        "fp32": {*FORWARD, *BACKWARD},
        "narrow": frozenset(),
    }
    assert [precision.find_policy(name) for name in ("upstream", "targeted", "fp32")] == [
        UPSTREAM,
        TARGETED,
        ALL_FP32,
    ]
    assert len({*FORWARD, *BACKWARD}) == len(FORWARD) + len(BACKWARD) == 15


def test_policies_that_do_not_exist_are_refused() -> None:
    """With the name that is wrong and those that there are."""
    with pytest.raises(ValueError, match="no intermediate is called 'Aqk': there are qk, scores, "):
        Precision(fp32=frozenset({"u", "Aqk"}))
    with pytest.raises(ValueError, match="no intermediate is called 'o'"):
        Precision(fp32=frozenset({"o"}))
    expected = "no precision policy is called 'ieee': there are upstream, targeted, fp32"
    with pytest.raises(ValueError, match=expected):
        precision.find_policy("ieee")
