"""What the codes of each format mean, and how bits travel between torch and numpy."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from bitproof.oracles import formats
from bitproof.oracles.formats import E2M1, E4M3, E4M3FNUZ, E5M2, E8M0, FORMATS, FP16, FP32, Format
from bitproof.oracles.rounding import round_to
from tests.oracles.reference import magnitudes

LISTED = [fmt for fmt in FORMATS.values() if fmt.bits <= 16]
SIGNED = [fmt for fmt in LISTED if fmt.specials != "exponent"]
# largest, smallest positive, smallest normal, as the formats' specifications print them
PRINTED = {
    "e4m3": (448.0, 2.0**-9, 2.0**-6),
    "e5m2": (57344.0, 2.0**-16, 2.0**-14),
    "bf16": (float.fromhex("0x1.fep127"), 2.0**-133, 2.0**-126),
    "fp16": (65504.0, 2.0**-24, 2.0**-14),
    "fp32": (float.fromhex("0x1.fffffep127"), 2.0**-149, 2.0**-126),
    "e2m1": (6.0, 0.5, 1.0),
    "e3m2": (28.0, 0.0625, 0.25),
    "e2m3": (7.5, 0.125, 1.0),
    "e8m0": (2.0**127, 2.0**-127, 2.0**-127),
    "e4m3fnuz": (240.0, 2.0**-10, 2.0**-7),
    "e5m2fnuz": (57344.0, 2.0**-17, 2.0**-15),
}


def every_code(fmt: Format) -> formats.Array:
    """All codes of a format of up to 16 bits."""
    return np.arange(1 << fmt.bits, dtype=np.uint32).astype(fmt.storage)


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
def test_extremes_are_those_of_the_specification(fmt: Format) -> None:
    """The largest, the smallest and the smallest normal value are the published ones."""
    assert (fmt.largest, fmt.smallest, 2.0**fmt.minimum_exponent) == PRINTED[fmt.name]


@pytest.mark.parametrize("fmt", LISTED, ids=lambda fmt: fmt.name)
def test_every_code_decodes_as_ml_dtypes_does(fmt: Format) -> None:
    """Every code of every format has the value that ml_dtypes gives it, signed zeros included."""
    codes = every_code(fmt)
    with np.errstate(invalid="ignore"):
        expected = formats.from_bits(codes, fmt).astype(np.float32).astype(np.float64)
    actual = formats.decode(codes, fmt)
    np.testing.assert_array_equal(actual, expected)
    signed = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual)[signed], np.signbit(expected)[signed])


@pytest.mark.parametrize("fmt", SIGNED, ids=lambda fmt: fmt.name)
def test_values_follow_the_definition_of_the_fields(fmt: Format) -> None:
    """The codes decode to the rational numbers that sign, exponent and mantissa define."""
    expected = magnitudes(fmt)
    codes = every_code(fmt)[: len(expected)]
    assert [Fraction(value) for value in formats.decode(codes, fmt).tolist()] == list(expected)


def test_every_e8m0_code_is_its_power_of_two() -> None:
    """Code c of e8m0 is 2^(c - 127), and 255 is its NaN."""
    values = formats.decode(every_code(E8M0), E8M0)
    assert values[:255].tolist() == [2.0 ** (code - 127) for code in range(255)]
    assert np.isnan(values[255])


def test_fp32_decodes_to_itself() -> None:
    """fp32, too wide to list, decodes from its bits, subnormals, infinities and NaN included."""
    patterns = [0, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF800000, 0x80000000]
    codes = np.array([*patterns, 0x7F800001], dtype=np.uint32)
    with np.errstate(invalid="ignore"):
        expected = codes.view(np.float32).astype(np.float64)
    actual = formats.decode(codes, FP32)
    np.testing.assert_array_equal(actual, expected)
    assert np.signbit(actual[7])


@pytest.mark.parametrize("fmt", LISTED, ids=lambda fmt: fmt.name)
def test_nan_codes_are_those_that_decode_to_nan(fmt: Format) -> None:
    """`is_nan` and the canonical NaN agree with what the codes decode to."""
    codes = every_code(fmt)
    np.testing.assert_array_equal(formats.is_nan(codes, fmt), np.isnan(formats.decode(codes, fmt)))
    assert fmt.nan is None or formats.is_nan(codes[fmt.nan], fmt)


@pytest.mark.parametrize("fmt", LISTED, ids=lambda fmt: fmt.name)
def test_midpoints_are_exactly_between_neighbours(fmt: Format) -> None:
    """The grid ascends over all finite values and each midpoint is half the sum of two neighbours."""
    grid = formats.grid(fmt)
    assert (np.diff(grid) > 0).all()
    assert grid[-1] == fmt.largest
    halves = [
        (Fraction(a) + Fraction(b)) / 2
        for a, b in zip(grid[:-1].tolist(), grid[1:].tolist(), strict=True)
    ]
    assert [Fraction(value) for value in formats.midpoints(fmt).tolist()] == halves


def test_shared_tables_cannot_be_written_to() -> None:
    """A caller cannot change the grid or the midpoints that everybody shares."""
    for table in (formats.grid(E4M3), formats.midpoints(E4M3)):
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 0.0


@pytest.mark.parametrize("fmt", [E4M3, E5M2, E2M1, E4M3FNUZ, FP16, E8M0], ids=lambda f: f.name)
def test_ulp_distance_counts_steps_along_the_grid(fmt: Format) -> None:
    """The distance of two finite codes is the number of steps between their values on the grid."""
    codes = every_code(fmt)
    codes = codes[np.isfinite(formats.decode(codes, fmt))]
    place = np.searchsorted(formats.grid(fmt), formats.decode(codes, fmt))
    other = codes[(np.arange(codes.size) * 7919) % codes.size]
    expected = np.abs(place - np.searchsorted(formats.grid(fmt), formats.decode(other, fmt)))
    np.testing.assert_array_equal(formats.ulp_distance(codes, other, fmt), expected)


def test_ulp_distance_of_special_values() -> None:
    """Zeros are at distance 0, infinity one past the largest, NaN at 0 from NaN and far from numbers."""
    left = np.array([0x00, 0x7B, 0x7D, 0x7F, 0x7C], dtype=np.uint8)
    right = np.array([0x80, 0x7C, 0xFE, 0x00, 0xFC], dtype=np.uint8)
    expected = [0, 1, 0, 256, 2 * 0x7C]
    assert formats.ulp_distance(left, right, E5M2).tolist() == expected
    signs = formats.zero_signs_differ(left, right, E5M2)
    assert signs.tolist() == [True, False, False, False, False]


def test_formats_without_negative_zero_have_no_zero_sign_to_differ() -> None:
    """0x80 is fnuz's NaN and e8m0's 2^1, never a zero of the other sign."""
    zero, other = np.array([0x00], dtype=np.uint8), np.array([0x80], dtype=np.uint8)
    for fmt in (E4M3FNUZ, E8M0):
        assert not formats.zero_signs_differ(zero, other, fmt).any()


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
def test_types_map_back_to_their_format(fmt: Format) -> None:
    """A format is found again by its name and by each of its types."""
    assert formats.by_name(fmt.name) is fmt
    assert formats.of_dtype(fmt.numpy_dtype) is fmt
    assert fmt.torch_dtype is None or formats.of_dtype(fmt.torch_dtype) is fmt
    assert fmt.numpy_dtype.itemsize == fmt.storage.itemsize


@pytest.mark.parametrize(
    "fmt", [fmt for fmt in LISTED if fmt.torch_dtype], ids=lambda fmt: fmt.name
)
def test_bits_survive_the_way_from_torch(fmt: Format) -> None:
    """Every code, NaN payloads included, passes from torch to numpy unchanged, strided or not."""
    assert fmt.torch_dtype is not None
    codes = every_code(fmt).reshape(16, -1)
    tensor = torch.from_numpy(codes.view(f"i{fmt.storage.itemsize}")).view(fmt.torch_dtype)
    for view, expected in (
        (tensor, codes),
        (tensor.T, codes.T),
        (tensor[1::3, ::2], codes[1::3, ::2]),
    ):
        array = formats.to_numpy(view)
        assert array.dtype == fmt.numpy_dtype
        np.testing.assert_array_equal(formats.bits(array), expected)
        np.testing.assert_array_equal(formats.bits(view), expected)


def test_bits_of_wider_and_integer_tensors() -> None:
    """fp32 with NaN payloads, parameters, scalars and integers have their bits taken as they are."""
    patterns = torch.tensor([0x7F800001, -1, 0x7FC12345, 5], dtype=torch.int32)
    expected = [0x7F800001, 0xFFFFFFFF, 0x7FC12345, 5]
    assert formats.bits(patterns).tolist() == expected
    floats = patterns.view(torch.float32)
    assert formats.bits(floats).tolist() == expected
    assert formats.bits(torch.nn.Parameter(floats)).tolist() == expected
    assert formats.bits(floats[2]).item() == 0x7FC12345
    assert formats.bits(torch.tensor([-1], dtype=torch.int64)).dtype == np.uint64


def test_from_bits_undoes_bits() -> None:
    """Codes become an array of the format's type without a conversion."""
    codes = every_code(E4M3)
    array = formats.from_bits(codes, E4M3)
    assert array.dtype == E4M3.numpy_dtype
    np.testing.assert_array_equal(formats.bits(array), codes)


def test_mistaken_names_types_and_codes_are_refused() -> None:
    """An unknown name, a foreign type, codes of another width or with spare bits set: ValueError."""
    with pytest.raises(ValueError, match="no format named 'fp8'"):
        formats.by_name("fp8")
    with pytest.raises(ValueError, match="not the type of a known format"):
        formats.of_dtype(torch.int8)
    with pytest.raises(ValueError, match="codes of fp16 are uint16 but these are uint8"):
        formats.from_bits(np.zeros(1, dtype=np.uint8), FP16)
    with pytest.raises(ValueError, match="0x10 is no e2m1 code"):
        formats.decode(np.array([0x10], dtype=np.uint8), E2M1)
    with pytest.raises(ValueError, match="too many to list"):
        formats.grid(FP32)


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
def test_the_range_ends_half_a_step_past_the_largest(fmt: Format) -> None:
    """Where rounding to nearest gives the infinity, in formats that have one; below, the largest."""
    step = fmt.largest - float(formats.decode(np.array(fmt.largest_code - 1), fmt))
    assert fmt.beyond == fmt.largest + (step if fmt is not E8M0 else 2 * step) / 2
    if fmt.infinity is not None:
        ends = np.array([fmt.beyond, np.nextafter(fmt.beyond, 0.0)])
        assert round_to(ends, fmt, overflow="inf").tolist() == [fmt.infinity, fmt.largest_code]
