"""Rounding against published values, closed forms and rational arithmetic."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from bitproof.oracles import rounding
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
    FORMATS,
    FP16,
    FP32,
    Array,
    Format,
    bits,
    decode,
    grid,
    is_nan,
    ulp_distance,
)
from bitproof.oracles.rounding import Mode, OracleDisagreement, Overflow, round_to, round_value
from tests.oracles.patterns import SPECIAL, around_midpoints, both_signs, hashed, numbers
from tests.oracles.reference import code_of, magnitudes, nearest_code, rounded

BYTES = [E4M3, E5M2, E2M1, E3M2, E2M3, E4M3FNUZ, E5M2FNUZ]
SIGNED = [*BYTES, BF16, FP16]
SAMPLE = both_signs(np.concatenate([hashed(1 << 12), SPECIAL]))


def fp32(*values: float) -> Array:
    """Numbers as an fp32 array; each has to be one."""
    array = np.array(values, dtype=np.float32)
    assert array.astype(np.float64).tolist() == list(values)
    return array


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (126.24, 128.0),
        (31.9, 32.0),
        (1.0625, 1.0),
        (1.0625001, 1.125),
        (0.0029296875, 0.00390625),
        (464.0, 448.0),
        (0.0078125 * 1.5, 0.01171875),
        (400.199585, 416.0),
        (272.156555, 288.0),
        (136.002075, 144.0),
        (500.0, 448.0),
    ],
)
def test_e4m3_of_inputs_that_kernels_got_wrong(x: float, expected: float) -> None:
    """Ties to even, carries into the exponent and subnormals: published failures of e4m3 kernels."""
    for sign in (1.0, -1.0):
        assert round_value(np.float32(sign * x), E4M3) == sign * expected


def test_e5m2_ties_go_to_even() -> None:
    """1.125 lies between 1 and 1.25 and goes to the even 1; 126.24 carries to 128."""
    assert round_value(np.array([1.125, 126.24], dtype=np.float32), E5M2).tolist() == [1.0, 128.0]


def test_e2m1_ties_go_to_even() -> None:
    """Each of the seven ties of the four-bit format goes to the even code, of either sign."""
    ties = fp32(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -1.25)
    assert round_value(ties, E2M1).tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -1.0]


@pytest.mark.parametrize("x", [465.0, 480.0, 1e4, math.inf])
def test_what_is_above_the_range_is_up_to_the_policy(x: float) -> None:
    """The same e4m3 input saturates under one contract and is NaN under another."""
    value = np.float32(x)
    assert round_value(value, E4M3, overflow="saturate") == 448.0
    assert np.isnan(round_value(value, E4M3, overflow="nan"))
    assert round_value(-value, E4M3, overflow="saturate") == -448.0


def test_the_tie_at_the_end_of_the_range_is_no_overflow() -> None:
    """464 goes to the even 448 under every policy, as 65519.996 does in fp16 and 65520 does not."""
    assert round_value(np.float32(464.0), E4M3, overflow="nan") == 448.0
    ends = round_value(np.array([65519.996, 65520.0], dtype=np.float32), FP16, overflow="inf")
    assert ends.tolist() == [65504.0, math.inf]


@pytest.mark.parametrize("fmt", SIGNED, ids=lambda fmt: fmt.name)
def test_zeros_keep_their_sign(fmt: Format) -> None:
    """-0 and negative numbers that round to zero are -0, except where there is none."""
    codes = round_to(fp32(-0.0, -(2.0**-149), 0.0), fmt)
    negative = 0 if fmt.specials == "fnuz" else fmt.sign_bit
    assert codes.tolist() == [negative, negative, 0]


@pytest.mark.parametrize("fmt", [f for f in SIGNED if f.nan is not None], ids=lambda f: f.name)
def test_nan_is_the_canonical_one_of_its_sign(fmt: Format) -> None:
    """Whatever the payload, quiet or signalling, a NaN gives the canonical NaN and keeps its sign."""
    patterns = both_signs(np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF], dtype=np.uint32))
    assert fmt.nan is not None
    expected = [fmt.nan] * 3 + [fmt.nan | fmt.sign_bit] * 3
    assert round_to(patterns.view(np.float32), fmt).tolist() == expected
    assert round_to(np.array([math.nan]), fmt).tolist() == [fmt.nan]


@pytest.mark.parametrize("fmt", [E2M1, E3M2, E2M3], ids=lambda fmt: fmt.name)
def test_nan_is_refused_where_there_is_no_code_for_it(fmt: Format) -> None:
    """A format of numbers alone names the NaN input instead of inventing a code."""
    with pytest.raises(ValueError, match=f"{fmt.name} has no NaN but an input is 0x7fc00001"):
        round_to(np.array([0x3F800000, 0x7FC00001], dtype=np.uint32).view(np.float32), fmt)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fmt", [*BYTES, BF16, FP16], ids=lambda fmt: fmt.name)
def test_every_value_rounds_to_itself(fmt: Format, dtype: type) -> None:
    """Each finite value of a format is a fixed point under every rounding."""
    values = grid(fmt)
    for mode in ("rne", "rz", "half_away"):
        actual = round_value(values.astype(dtype), fmt, mode=mode)
        np.testing.assert_array_equal(actual, values)


@pytest.mark.parametrize("fmt", BYTES, ids=lambda fmt: fmt.name)
def test_midpoints_and_their_neighbours_go_to_the_nearest_code(fmt: Format) -> None:
    """Around every midpoint the answer is the one found by trying every code in rational numbers."""
    x = around_midpoints(fmt).view(np.float32)
    expected = [code_of(value, fmt) for value in x.tolist()]
    assert round_to(x, fmt).tolist() == expected
    assert round_to(x.astype(np.float64), fmt).tolist() == expected


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
def test_wide_midpoints_go_to_even_and_their_neighbours_to_their_side(fmt: Format) -> None:
    """At each of the tens of thousands of midpoints: below goes down, above goes up, itself to even."""
    codes = np.arange(fmt.largest_code, dtype=fmt.storage)
    values = decode(np.append(codes, fmt.storage.type(fmt.largest_code)), fmt)
    middle = ((values[:-1] + values[1:]) / 2).astype(np.float32)
    one = fmt.storage.type(1)
    np.testing.assert_array_equal(round_to(middle, fmt), codes + (codes & one))
    np.testing.assert_array_equal(round_to(np.nextafter(middle, np.float32(0)), fmt), codes)
    above = round_to(np.nextafter(middle, np.float32(np.inf)), fmt)
    np.testing.assert_array_equal(above, codes + one)


@pytest.mark.parametrize("fmt", BYTES, ids=lambda fmt: fmt.name)
def test_any_pattern_goes_to_the_nearest_code(fmt: Format) -> None:
    """Uniform bit patterns agree with the search over all codes in rational numbers."""
    x = numbers(SAMPLE[::32])
    assert round_to(x, fmt).tolist() == [code_of(value, fmt) for value in x.tolist()]


@pytest.mark.parametrize("fmt", [*BYTES, BF16, FP16, FP32], ids=lambda fmt: fmt.name)
@settings(deadline=None, max_examples=200)
@given(pattern=st.integers(0, 2**64 - 1), exponent=st.integers(-160, 160))
def test_float64_is_rounded_once(fmt: Format, pattern: int, exponent: int) -> None:
    """A float64 of any exponent rounds to the rational nearest, with no step through fp32."""
    x = math.ldexp(1.0 + (pattern & (2**52 - 1)) / 2**52, exponent)
    expected = min(rounded(Fraction(x), fmt), Fraction(fmt.largest))
    assert Fraction(float(round_value(np.float64(x), fmt))) == expected
    assert Fraction(float(round_value(np.float64(-x), fmt))) == -expected


def test_float64_does_not_round_twice() -> None:
    """Just above a bf16 tie, fp32 would round to the tie and bf16 then to the even below."""
    assert round_value(np.float64(1 + 2.0**-8 + 2.0**-40), BF16) == 1 + 2.0**-7


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
def test_half_precision_inputs_are_widened_exactly(fmt: Format) -> None:
    """Every fp16 and bf16 pattern rounds to e4m3 as its exact value does."""
    x = np.arange(1 << 16, dtype=np.uint16).view(fmt.numpy_dtype)
    exact = decode(bits(x), fmt)
    actual = round_to(x, E4M3)
    same = (actual == round_to(exact, E4M3)) | (is_nan(actual, E4M3) & np.isnan(exact))
    assert same.all()


def _larger_nearest(value: Fraction, ascending: list[Fraction]) -> int:
    return min(range(len(ascending)), key=lambda code: (abs(ascending[code] - value), -code))


def test_e8m0_goes_to_the_nearest_power_the_larger_of_two() -> None:
    """e8m0 agrees with a search over its 255 powers of two; zero and negative numbers are NaN."""
    powers = [Fraction(2) ** (code - 127) for code in range(255)]
    x = numbers(np.concatenate([hashed(1 << 8), SPECIAL]) & np.uint32(0x7FFFFFFF))
    for value in x[(x > 0) & np.isfinite(x)].tolist():
        expected = _larger_nearest(Fraction(value), powers)
        assert round_to(np.float32(value), E8M0) == expected
    assert round_to(fp32(0.0, -0.0, -1.0, -math.inf), E8M0).tolist() == [255] * 4
    ends = np.array([2.0**127, 1.5 * 2.0**127, math.inf], dtype=np.float32)
    assert round_to(ends, E8M0).tolist() == [254] * 3
    assert round_to(ends, E8M0, overflow="nan").tolist() == [254, 255, 255]


def test_ml_dtypes_speaks_for_e8m0_below_its_normal_inputs_from_0_7_on() -> None:
    """Earlier ones send 1.36 · 2^-127 to 2^-126: the reason why they are not asked there."""
    x = np.array([0x00571F87], dtype=np.uint32).view(np.float32)
    mended = Version(ml_dtypes.__version__) >= Version("0.7")
    assert bits(x.astype(ml_dtypes.float8_e8m0fnu)).tolist() == [0 if mended else 1]
    assert round_to(x, E8M0).tolist() == [0]


@pytest.mark.parametrize("fmt", SIGNED, ids=lambda fmt: fmt.name)
def test_toward_zero_keeps_the_largest_value_not_beyond(fmt: Format) -> None:
    """Truncation gives the grid's neighbour on the side of zero, up to the largest finite value."""
    x = numbers(np.concatenate([SAMPLE, both_signs(around_midpoints(fmt))]))
    values = np.array([float(value) for value in magnitudes(fmt)])
    place = np.searchsorted(values, np.abs(x.astype(np.float64)), side="right") - 1
    actual = round_value(x, fmt, mode="rz")
    np.testing.assert_array_equal(actual, np.copysign(values[place], x))


@pytest.mark.parametrize("fmt", BYTES, ids=lambda fmt: fmt.name)
def test_half_away_differs_from_even_only_at_ties(fmt: Format) -> None:
    """Ties go to the larger magnitude, everything else where ties-to-even sends it."""
    x = numbers(np.concatenate([SAMPLE, around_midpoints(fmt)]))
    values = np.array([float(value) for value in magnitudes(fmt)])
    middle = (values[:-1] + values[1:]) / 2
    place = np.searchsorted(middle, np.abs(x.astype(np.float64)), side="right")
    actual = round_value(x, fmt, mode="half_away")
    np.testing.assert_array_equal(actual, np.copysign(values[place], x))


def test_toward_zero_overflows_only_from_infinity() -> None:
    """Truncation of the largest fp32 gives the largest value under every policy; infinity does not."""
    x = fp32(float.fromhex("0x1.fffffep127"), math.inf)
    assert round_value(x, FP16, mode="rz", overflow="inf").tolist() == [65504.0, math.inf]
    assert round_value(x, FP16, mode="rz").tolist() == [65504.0, 65504.0]
    assert round_to(x, E4M3, mode="rz", overflow="nan").tolist() == [0x7E, 0x7F]


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
def test_integers_and_ml_dtypes_agree_on_a_sample(fmt: Format) -> None:
    """On 2^20 uniform patterns the two answers coincide under every policy the format has."""
    x = hashed(1 << 20).view(np.float32)
    x = x if fmt.nan is not None else numbers(bits(x))
    policies: list[Overflow] = ["saturate"]
    policies += ["nan"] if fmt.nan is not None else []
    policies += ["inf"] if fmt.infinity is not None else []
    for overflow in policies:
        assert round_to(x, fmt, overflow=overflow).shape == x.shape


@pytest.mark.parametrize("fmt", [E4M3, E5M2, BF16, FP16, E2M1], ids=lambda fmt: fmt.name)
def test_two_answers_that_differ_are_no_answer(
    fmt: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the integer path rounded ties away, the first tie would raise and name its bits."""
    ties = around_midpoints(fmt)
    right = rounding._shift_and_round

    def ties_away(significand: Array, shift: Array, mode: Mode, word: type) -> Array:
        return right(significand, shift, "half_away", word)

    monkeypatch.setattr(rounding, "_shift_and_round", ties_away)
    with pytest.raises(OracleDisagreement, match="^fp32 0x[0-9a-f]{8} to " + fmt.name):
        round_to(ties.view(np.float32), fmt)


def test_fp16_is_what_numpy_gives() -> None:
    """A million patterns spread over fp16's range convert as numpy's float16 does."""
    u = hashed(1 << 20)
    # Exponents from below the smallest subnormal to above the largest value.
    exponent = np.uint32(127 - 27) + (u >> np.uint32(9)) % np.uint32(45)
    x = ((u & np.uint32(0x807FFFFF)) | (exponent << np.uint32(23))).view(np.float32)
    with np.errstate(over="ignore"):
        expected = bits(x.astype(np.float16))
    np.testing.assert_array_equal(round_to(x, FP16, overflow="inf"), expected)


def test_e4m3_is_what_torch_gives_after_a_clamp() -> None:
    """torch's own conversion, a third implementation, agrees on clamped inputs."""
    x = numbers(np.concatenate([hashed(1 << 18), both_signs(around_midpoints(E4M3))]))
    tensor = torch.from_numpy(x.clip(-448.0, 448.0)).to(torch.float8_e4m3fn)
    np.testing.assert_array_equal(round_to(x, E4M3), bits(tensor))


@pytest.mark.parametrize("mode", ["rne", "rz", "half_away"])
@pytest.mark.parametrize("fmt", SIGNED, ids=lambda fmt: fmt.name)
def test_rounding_is_monotone_odd_and_idempotent(fmt: Format, mode: Mode) -> None:
    """Larger inputs never give smaller results, signs mirror, and a second rounding changes nothing."""
    x = np.sort(numbers(np.concatenate([SAMPLE, both_signs(around_midpoints(fmt))])))
    values = round_value(x, fmt, mode=mode)
    assert (np.diff(values) >= 0).all()
    np.testing.assert_array_equal(round_value(-x, fmt, mode=mode), -values)
    np.testing.assert_array_equal(round_value(values, fmt, mode=mode), values)


def test_truncation_through_fp16_costs_one_step_toward_zero() -> None:
    """The two-step conversion of older compilers is off by one step at its published witnesses."""
    x = np.array([400.199585, 272.156555, 136.002075], dtype=np.float32)
    halfway = round_value(x, FP16, mode="rz", overflow="inf")
    assert round_value(halfway, E4M3).tolist() == [384.0, 256.0, 128.0]
    distance = ulp_distance(round_to(halfway, E4M3), round_to(x, E4M3), E4M3)
    assert distance.tolist() == [1, 1, 1]


def test_shapes_strides_and_scalars_are_kept() -> None:
    """The result has the input's shape: scalars, empty arrays and strided views included."""
    x = hashed(24).view(np.float32).reshape(2, 3, 4)
    codes = round_to(x, E4M3)
    assert codes.shape == x.shape
    np.testing.assert_array_equal(round_to(x[:, ::2, 1:].T, E4M3), codes[:, ::2, 1:].T)
    assert round_to(1.0, E4M3).shape == ()
    assert round_to(np.zeros((0, 3), dtype=np.float32), E4M3).shape == (0, 3)


def test_long_inputs_are_rounded_to_the_last_element() -> None:
    """Inputs longer than the block that is rounded at a time agree with their parts."""
    x = hashed(3 * rounding._BLOCK + 5).view(np.float32)
    parts = [round_to(part, E4M3) for part in np.array_split(x, 7)]
    np.testing.assert_array_equal(round_to(x, E4M3), np.concatenate(parts))


def test_requests_that_have_no_answer_are_refused() -> None:
    """A policy the format lacks, an unknown mode or policy, another input type: ValueError."""
    one = np.float32(1.0)
    with pytest.raises(ValueError, match="e4m3 has no inf to overflow to"):
        round_to(one, E4M3, overflow="inf")
    with pytest.raises(ValueError, match="e2m1 has no nan to overflow to"):
        round_to(one, E2M1, overflow="nan")
    with pytest.raises(ValueError, match="no rounding mode 'up'"):
        round_to(one, E4M3, mode="up")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no overflow policy 'wrap'"):
        round_to(one, E4M3, overflow="wrap")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot round int64"):
        round_to(np.array([1]), E4M3)


def test_flushed_subnormals_are_noticed() -> None:
    """Where a library has switched subnormals off, no oracle answers."""
    assert torch.set_flush_denormal(True)
    try:
        with pytest.raises(ValueError, match=r"torch.set_flush_denormal\(False\)"):
            round_to(np.float32(1.0), E4M3)
    finally:
        torch.set_flush_denormal(False)
    assert round_to(np.float32(1.0), E4M3) == 0x38


def test_the_reference_is_nearest_on_a_known_grid() -> None:
    """The slow reference itself gives the e2m1 ties as the Microscaling specification does."""
    ties = [Fraction(n, 4) for n in (1, 3, 5, 7, 10, 14, 20)]
    assert [nearest_code(tie, E2M1) for tie in ties] == [0, 2, 2, 4, 4, 6, 6]
