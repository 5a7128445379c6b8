"""The table of a rounding against the rounding, and what can be counted from tables alone."""

import numpy as np
import pytest

from bitproof.oracles.breakpoints import breakpoints
from bitproof.oracles.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FP16,
    FP32,
    Array,
    Format,
    bits,
    decode,
    is_nan,
    ulp_distance,
)
from bitproof.oracles.rounding import Mode, Overflow, round_to
from tests.oracles.patterns import SPECIAL, both_signs, hashed, numbers

FORMATS = [E4M3, E5M2, BF16, FP16, E2M1, E3M2, E2M3, E4M3FNUZ, E5M2FNUZ]


def look_up(table: tuple[Array, Array], patterns: Array) -> Array:
    """The codes that a table gives for bit patterns."""
    starts, codes = table
    found: Array = codes[np.searchsorted(starts, patterns, side="right") - 1]
    return found


@pytest.mark.parametrize("overflow", ["saturate", "nan", "inf"])
@pytest.mark.parametrize("mode", ["rne", "rz", "half_away"])
@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_table_is_the_rounding(fmt: Format, mode: Mode, overflow: Overflow) -> None:
    """At both ends of every run, and on a sample, the table gives what rounding the pattern gives."""
    if (overflow == "inf" and fmt.infinity is None) or (overflow == "nan" and fmt.nan is None):
        with pytest.raises(ValueError, match=f"has no {overflow}"):
            breakpoints(fmt, mode=mode, overflow=overflow)
        return
    table = breakpoints(fmt, mode=mode, overflow=overflow)
    ends = np.concatenate([table[0], table[0] - np.uint32(1)])
    patterns = np.concatenate([ends, both_signs(SPECIAL), hashed(1 << 14)])
    if fmt.nan is None:
        patterns = bits(numbers(patterns))
    expected = round_to(patterns.view(np.float32), fmt, mode=mode, overflow=overflow)
    np.testing.assert_array_equal(look_up(table, patterns), expected)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_runs_ascend_and_neighbours_differ(fmt: Format) -> None:
    """The starts ascend from pattern 0 and no run could be merged with the next."""
    starts, codes = breakpoints(fmt)
    assert starts.dtype == np.uint32
    assert codes.dtype == fmt.storage
    assert starts[0] == 0
    assert (np.diff(starts.astype(np.int64)) > 0).all()
    assert (codes[1:] != codes[:-1]).all()


def test_nan_runs_are_flagged() -> None:
    """Every NaN pattern is in a run of the canonical NaN of its sign, or of all ones without one."""
    patterns = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF], dtype=np.uint32)
    assert look_up(breakpoints(E4M3), patterns).tolist() == [0x7F, 0x7F, 0xFF, 0xFF]
    assert look_up(breakpoints(BF16), patterns).tolist() == [0x7FC0, 0x7FC0, 0xFFC0, 0xFFC0]
    assert look_up(breakpoints(E2M1), patterns).tolist() == [0xFF] * 4
    assert is_nan(look_up(breakpoints(E5M2FNUZ), patterns), E5M2FNUZ).all()


@pytest.mark.parametrize("fmt", [FP32, E8M0], ids=lambda fmt: fmt.name)
def test_formats_without_a_table_are_refused(fmt: Format) -> None:
    """fp32 would be a run a pattern and e8m0 has no zero: a ValueError says what to use instead."""
    with pytest.raises(ValueError, match=f"no table of breakpoints for {fmt.name}; use round_to"):
        breakpoints(fmt)


def test_truncation_through_fp16_is_wrong_on_516033_inputs() -> None:
    """Of the fp32 values in [0, 448], RZ to fp16 then RNE to e4m3 misses 516033, one step down each.

    Both conversions are constant between the breakpoints of either, so that counting needs no sweep.
    """
    through, direct = breakpoints(FP16, mode="rz", overflow="inf"), breakpoints(E4M3)
    last = int(np.float32(448.0).view(np.uint32))
    starts = np.union1d(through[0], direct[0])
    starts = starts[starts <= last]
    lengths = np.diff(starts.astype(np.int64), append=last + 1)
    halfway = decode(look_up(through, starts), FP16).astype(np.float32)
    twice, once = look_up(direct, bits(halfway)), look_up(direct, starts)
    wrong = twice != once
    assert int(lengths.sum()) == 1_138_753_537
    assert int(lengths[wrong].sum()) == 516_033
    assert set(ulp_distance(twice, once, E4M3)[wrong].tolist()) == {1}
    assert (twice[wrong] < once[wrong]).all()
