"""The quantiser oracles on the inputs that broke real kernels, and at the edges of their contracts."""

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from bitproof.oracles import quantize
from bitproof.oracles.formats import (
    BF16,
    E4M3,
    E5M2,
    E8M0,
    FP16,
    Array,
    bits,
    decode,
    is_nan,
    of_dtype,
)
from bitproof.oracles.quantize import Oracle, covering_exponent
from tests.oracles.patterns import hashed

LARGEST_FP32 = float.fromhex("0x1.fffffep127")
GROUPED: dict[str, Oracle] = {
    "per_token_group": quantize.per_token_group,
    "ue8m0_group": quantize.ue8m0_group,
    "e2m1_group": quantize.e2m1_group,
}


def values(codes: Array) -> Any:
    """e4m3 codes, viewed as floats or not, as numbers."""
    return decode(bits(codes), E4M3).tolist()


def powers_of(codes: Array) -> Any:
    """e8m0 codes as numbers."""
    return decode(codes, E8M0).tolist()


def row(*elements: float) -> torch.Tensor:
    """One row of fp32."""
    return torch.tensor([elements], dtype=torch.float32)


def smooth(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Finite numbers between -4 and 4 from a hash."""
    u = hashed(rows * columns).reshape(rows, columns)
    return torch.from_numpy((u.astype(np.float64) / 2.0**29 - 4.0).astype(np.float32)).to(dtype)


def caches(kind: str, slots: int, heads: int, dim: int) -> dict[str, torch.Tensor]:
    """Caches full of hashed bits, NaN patterns included, so that a stray write shows."""
    dtype = torch.int8 if kind == "int8" else torch.float8_e4m3fn
    blocks = -(-dim // 32)
    result = {}
    for seed, name in enumerate(("k", "v")):
        codes = hashed(slots * heads * dim, seed=seed).astype(np.uint8)
        scale = hashed(slots * heads * blocks, seed=seed).astype(np.uint16).view(np.int16)
        result[f"{name}_cache"] = torch.from_numpy(codes).view(dtype).reshape(slots, heads, dim)
        result[f"{name}_scale"] = (
            torch.from_numpy(scale).view(torch.float16).reshape(slots, heads, blocks)
        )
    return result


def stored_block(kind: str, elements: list[float]) -> tuple[list[float], float]:
    """One block's stored numbers and scale after a store of `elements` padded with zeros."""
    block = torch.zeros(1, 1, 32)
    block[0, 0, : len(elements)] = torch.tensor(elements)
    oracle = quantize.kv_store("int8" if kind == "int8" else "fp8")
    indices = torch.zeros(1, dtype=torch.int64)
    out = oracle({"k": block, "v": block, "indices": indices, **caches(kind, 1, 1, 32)}, {})
    codes = out["k_cache"][0, 0, : len(elements)]
    numbers = codes.tolist() if kind == "int8" else values(codes)
    return numbers, float(out["k_scale"][0, 0, 0])


def test_casts_overflow_as_compiled_code_does() -> None:
    """e4m3 and e5m2 saturate, infinities included; bf16 and fp16 go to infinity; NaN stays NaN."""
    x = torch.tensor([465.0, 1e6, math.inf, -math.inf, math.nan, -0.0])
    big = torch.tensor([LARGEST_FP32, -math.inf])
    assert values(quantize.round_e4m3({"x": x}, {})["y"])[:4] == [448.0, 448.0, 448.0, -448.0]
    assert bits(quantize.round_e4m3({"x": x}, {})["y"]).tolist()[4:] == [0x7F, 0x80]
    e5m2 = quantize.cast("e5m2")({"x": x}, {})["y"]
    assert e5m2.dtype == ml_dtypes.float8_e5m2
    assert decode(bits(e5m2), E5M2).tolist()[1:4] == [57344.0, 57344.0, -57344.0]
    for fmt in (BF16, FP16):
        y = quantize.cast(fmt.name)({"x": big}, {})["y"]
        assert decode(bits(y), fmt).tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize("name", GROUPED)
def test_zero_group_beside_a_normal_one(name: str) -> None:
    """An all-zero group has zero codes and a positive finite scale, and no say in its neighbour."""
    group = 32
    normal = smooth(1, group)
    both = GROUPED[name]({"x": torch.cat([torch.zeros(1, group), normal], 1)}, {"group": group})
    alone = GROUPED[name]({"x": normal}, {"group": group})
    half = both["y"].shape[1] // 2
    assert not bits(both["y"])[:, :half].any()
    scale = both["scale"] if name == "per_token_group" else decode(both["scale"], E8M0)
    assert 0.0 < scale[0, 0] < math.inf
    np.testing.assert_array_equal(bits(both["y"])[:, half:], bits(alone["y"]))
    np.testing.assert_array_equal(both["scale"][:, 1:], alone["scale"])


def test_scales_of_zero_groups_are_the_contracts_floors() -> None:
    """fl32(1e-10) / 448, the power covering fl32(1e-4) / 448, and 2^-126: bit for bit."""
    x = torch.zeros(1, 32)
    scale = quantize.per_token_group({"x": x}, {})["scale"]
    assert scale.tolist() == [[float(np.float32(1e-10) / np.float32(448.0))]]
    # 448 · 2^-23 is 5.3e-5, below 1e-4, and 448 · 2^-22 is 1.07e-4.
    assert quantize.ue8m0_group({"x": x}, {})["scale"].tolist() == [[127 - 22]]
    assert quantize.e2m1_group({"x": x}, {})["scale"].tolist() == [[1]]


def test_tiny_group_keeps_finite_codes_and_scales() -> None:
    """With every element 1.3e-36, amax / 448 is subnormal; the dequantised error is within a step."""
    x = torch.full((1, 32), 1.3e-36)
    exact = Fraction(float(x[0, 0]))
    group = quantize.per_token_group({"x": x}, {"group": 32})
    power = quantize.ue8m0_group({"x": x}, {"group": 32})
    for codes, scale in (
        (values(group["y"])[0], float(group["scale"][0, 0])),
        (values(power["y"])[0], powers_of(power["scale"])[0][0]),
    ):
        assert 0.0 < scale < math.inf
        assert all(
            abs(Fraction(code) * Fraction(scale) - exact) <= Fraction(scale) / 512 for code in codes
        )
    four_bit = quantize.e2m1_group({"x": x}, {})
    scale = powers_of(four_bit["scale"])[0][0]
    assert 3.0 * scale < float(exact) <= 6.0 * scale


def test_scale_exponent_is_exact_around_every_power_of_two() -> None:
    """At 2^e the exponent is e, one float above it is e + 1, one below it is e; 16.000002 needs 32."""
    one = np.float32(1.0)
    exponents = np.arange(-126, 128)
    exact = np.ldexp(np.float32(1.0), exponents)
    above = (exact.view(np.uint32) + np.uint32(1)).view(np.float32)
    below = (exact[1:].view(np.uint32) - np.uint32(1)).view(np.float32)
    np.testing.assert_array_equal(covering_exponent(exact, one), exponents)
    np.testing.assert_array_equal(covering_exponent(above, one), exponents + 1)
    np.testing.assert_array_equal(covering_exponent(below, one), exponents[1:])
    assert covering_exponent(np.array([0x41800001], dtype=np.uint32).view(np.float32), one) == 5


@pytest.mark.parametrize(
    ("oracle", "largest", "lowest", "highest"),
    [(quantize.ue8m0_group, 448.0, -22, 119), (quantize.e2m1_group, 6.0, -126, 125)],
    ids=["ue8m0_group", "e2m1_group"],
)
def test_largest_element_decides_the_scale_to_the_last_bit(
    oracle: Oracle, largest: float, lowest: int, highest: int
) -> None:
    """amax at the largest code times a power of two takes that power, one float above the next."""
    exponents = np.arange(lowest, highest + 1)
    exact = np.ldexp(np.float32(largest), exponents)
    above = (exact.view(np.uint32) + np.uint32(1)).view(np.float32)
    for amax, shift in ((exact, 0), (above, 1)):
        x = np.zeros((amax.size, 2), dtype=np.float32)
        x[:, 1] = -amax
        scale = oracle({"x": torch.from_numpy(x)}, {"group": 2})["scale"]
        assert scale[1:, 0].tolist() == (exponents + 127 + shift).tolist()[1:]


@pytest.mark.parametrize("name", GROUPED)
def test_one_nan_among_ones_stays_visible(name: str) -> None:
    """A single NaN in a group of ones leaves a NaN element or a NaN scale; other groups are whole."""
    x = torch.ones(2, 64)
    x[1, 40] = math.nan
    out = GROUPED[name]({"x": x}, {"group": 32})
    if name == "e2m1_group":
        assert out["scale"].tolist() == [[125, 125], [125, 255]]
        assert not out["y"][1, 16:].any()
        assert out["y"][1, :16].all()
    else:
        nan = is_nan(bits(out["y"]), E4M3)
        assert np.argwhere(nan).tolist() == [[1, 40]]
        assert (out["scale"] == out["scale"][0, 0]).all()


def test_infinity_in_a_group() -> None:
    """Each contract's answer to an infinity: an infinite scale, a NaN scale, a NaN group."""
    x = row(1.0, -2.0, math.inf, -math.inf)
    group = quantize.per_token_group({"x": x}, {"group": 4})
    assert group["scale"].tolist() == [[math.inf]]
    assert bits(group["y"])[0, :2].tolist() == [0x00, 0x80]
    assert is_nan(bits(group["y"])[0, 2:], E4M3).all()
    power = quantize.ue8m0_group({"x": x}, {"group": 4})
    assert power["scale"].tolist() == [[255]]
    assert is_nan(bits(power["y"]), E4M3).all()
    assert np.isnan(quantize.ue8m0_inplace({"x": x}, {"group": 4})["x"]).all()
    four_bit = quantize.e2m1_group({"x": x}, {"group": 4})
    assert four_bit["scale"].tolist() == [[255]]
    assert not four_bit["y"].any()
    static = quantize.per_tensor_static({"x": x, "scale": torch.ones(1)}, {})
    assert values(static["y"]) == [[1.0, -2.0, 448.0, -448.0]]


def test_static_scale_is_applied_by_its_reciprocal() -> None:
    """The product with the rounded reciprocal, not the quotient, decides a code at a tie."""
    scale = torch.tensor([63.0])
    x = row(63.0 * 1.0625)
    # fl(1/63) is above 1/63 and pushes the tie 1.0625 up; the division keeps it a tie.
    assert values(quantize.per_tensor_static({"x": x, "scale": scale}, {})["y"]) == [[1.125]]
    assert quantize.round_e4m3({"x": x / scale}, {})["y"].tolist() == [[1.0]]


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**-127, 2.0**127])
def test_static_scales_without_an_exact_enough_reciprocal_are_refused(scale: float) -> None:
    """A scale whose reciprocal is not a positive normal number is named in a ValueError."""
    with pytest.raises(ValueError, match=r"scale must be one number in \[2\^-126, 2\^126\]"):
        quantize.per_tensor_static({"x": torch.ones(1, 1), "scale": torch.tensor([scale])}, {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_inplace_is_the_group_quantiser_dequantised(dtype: torch.dtype) -> None:
    """The values written back are the codes times the scales, in the input's type and layout."""
    wide = smooth(5, 256, dtype)
    x = wide[:, 32:160]
    out = quantize.ue8m0_inplace({"x": x}, {})["x"]
    group = quantize.ue8m0_group({"x": x}, {"group": 64})
    product = decode(bits(group["y"]), E4M3) * np.repeat(decode(group["scale"], E8M0), 64, axis=1)
    assert out.dtype == of_dtype(dtype).numpy_dtype
    np.testing.assert_array_equal(out.astype(np.float64), product)


def test_inplace_saturates_at_the_input_types_largest_value() -> None:
    """fp16's 65504 quantises to 65536, which its own type cannot hold: the largest value comes back."""
    for x in (torch.tensor([[65504.0, -65504.0]], dtype=torch.float16), row(LARGEST_FP32, 1.0)):
        out = quantize.ue8m0_inplace({"x": x}, {})["x"]
        assert out[0, 0] == x[0, 0].item()
    infinite = torch.tensor([[math.inf, 1.0]], dtype=torch.bfloat16)
    assert np.isnan(quantize.ue8m0_inplace({"x": infinite}, {})["x"].astype(np.float32)).all()


@pytest.mark.parametrize("name", GROUPED)
def test_last_partial_group_is_a_group_of_its_own(name: str) -> None:
    """K = 10944 ends with half a group of 128, quantised as if it stood alone."""
    x = smooth(3, 10944)
    whole = GROUPED[name]({"x": x}, {"group": 128})
    tail = GROUPED[name]({"x": x[:, 85 * 128 :]}, {"group": 128})
    assert whole["scale"].shape == (3, 86)
    np.testing.assert_array_equal(whole["scale"][:, 85:], tail["scale"])
    width = tail["y"].shape[1]
    np.testing.assert_array_equal(bits(whole["y"])[:, -width:], bits(tail["y"]))


@pytest.mark.parametrize("shape", [(0, 0), (0, 64), (3, 0)])
@pytest.mark.parametrize("name", GROUPED)
def test_empty_inputs_have_empty_answers(name: str, shape: tuple[int, int]) -> None:
    """No rows or no columns: outputs of the contract's shapes and nothing in them."""
    out = GROUPED[name]({"x": torch.zeros(shape)}, {})
    columns = shape[1] // 2 if name == "e2m1_group" else shape[1]
    group = {"e2m1_group": 32}.get(name, 128)
    assert out["y"].shape == (shape[0], columns)
    assert out["scale"].shape == (shape[0], -(-shape[1] // group))


def test_four_bit_codes_are_packed_low_half_first() -> None:
    """The even index is in a byte's low four bits; ties go to even and -0 keeps its sign."""
    x = row(6.0, -0.5, 0.25, -0.25, 2.5, 5.0)
    out = quantize.e2m1_group({"x": x}, {})
    assert out["scale"].tolist() == [[127]]
    assert out["y"].tolist() == [[0x97, 0x80, 0x64]]
    with pytest.raises(ValueError, match="K = 3 is odd"):
        quantize.e2m1_group({"x": torch.zeros(1, 3)}, {})


def test_int8_blocks_round_half_away_exactly() -> None:
    """Ties go away from zero, and 0.49999997, to which adding a half gives 1 in fp32, goes to 0."""
    below = float.fromhex("0x1.fffffep-2")
    numbers, scale = stored_block("int8", [127.0, 0.5, -0.5, 1.5, -2.5, below, -below, 126.5])
    assert scale == 1.0
    assert numbers == [127, 1, -1, 2, -3, 0, 0, 127]


def test_fp8_blocks_round_half_to_even() -> None:
    """The same store in e4m3 sends ties to even codes."""
    numbers, scale = stored_block("fp8", [448.0, 1.0625, -1.1875, 0.0029296875, -0.0])
    assert scale == 1.0
    assert numbers == [448.0, 1.0, -1.25, 0.00390625, 0.0]


@pytest.mark.parametrize(("kind", "largest"), [("int8", 127), ("fp8", 448)])
def test_subnormal_cache_scales_cover_the_block(kind: str, largest: int) -> None:
    """From the smallest float up to fp16's normal scales: 0 < scale, and amax / scale <= MAG."""
    exponents = np.arange(-149, math.frexp(largest)[1] - 14)
    tops = np.ldexp(np.float64(1.0), exponents) * np.array([[1.0], [1.25], [1.9990234375]])
    for top in tops.astype(np.float32).ravel().tolist():
        numbers, scale = stored_block(kind, [top, -top])
        assert scale > 0.0
        assert scale >= 2.0**-14 or Fraction(top) <= Fraction(scale) * largest
        assert numbers[0] == -numbers[1]
        assert abs(numbers[0]) <= largest


def test_special_elements_of_cache_blocks() -> None:
    """Zero blocks, NaN and infinities: scale 1, NaN codes or a NaN scale, and saturation at 65504."""
    for kind in ("int8", "fp8"):
        assert stored_block(kind, [0.0, -0.0]) == ([0, 0], 1.0)
    assert stored_block("int8", [math.inf, -math.inf, 65504.0]) == ([127, -127, 1], 65504.0)
    assert stored_block("fp8", [math.inf, -math.inf, 65504.0]) == ([448.0, -448.0, 1.0], 65504.0)
    numbers, scale = stored_block("int8", [1.0, math.nan])
    assert numbers == [0, 0]
    assert math.isnan(scale)
    numbers, scale = stored_block("fp8", [448.0, math.nan])
    assert scale == 1.0
    assert numbers[0] == 448.0
    assert math.isnan(numbers[1])


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_only_named_slots_are_written(kind: str) -> None:
    """Slots that no token names keep their bits, tokens with -1 go nowhere, the inputs stay."""
    heads, dim = 2, 80
    tensors = caches(kind, 6, heads, dim)
    before = {name: bits(tensor).copy() for name, tensor in tensors.items()}
    k = smooth(4, heads * dim).reshape(4, heads, dim)
    tensors |= {"k": k, "v": -2 * k, "indices": torch.tensor([4, -1, 0, 2])}
    oracle = quantize.kv_store("int8" if kind == "int8" else "fp8")
    out = oracle(tensors, {})
    single = oracle({**tensors, "k": k[2:3], "v": -2 * k[2:3], "indices": torch.tensor([0])}, {})
    for name, kept in before.items():
        np.testing.assert_array_equal(bits(out[name])[[1, 3, 5]], kept[[1, 3, 5]])
        np.testing.assert_array_equal(bits(out[name])[0], bits(single[name])[0])
        assert (bits(out[name])[[0, 2, 4]] != kept[[0, 2, 4]]).any()
        np.testing.assert_array_equal(bits(tensors[name]), kept)


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_a_store_of_no_tokens_changes_nothing(kind: str) -> None:
    """Zero tokens leave all four caches bit for bit as they were."""
    tensors = caches(kind, 3, 1, 32)
    nothing = torch.zeros(0, 1, 32)
    indices = torch.zeros(0, dtype=torch.int64)
    oracle = quantize.kv_store("int8" if kind == "int8" else "fp8")
    out = oracle({"k": nothing, "v": nothing, "indices": indices, **tensors}, {})
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(bits(out[name]), bits(tensor))


@pytest.mark.parametrize(
    ("indices", "message"),
    [([0, 0], "distinct"), ([0, -2], "distinct"), ([0, 3], "slot 3 is outside a cache of 3")],
)
def test_slots_that_cannot_be_stored_to_are_refused(indices: list[int], message: str) -> None:
    """Repeated slots would race, and slots outside the cache do not exist: ValueError."""
    k = torch.zeros(2, 1, 32)
    tensors = {"k": k, "v": k, "indices": torch.tensor(indices), **caches("int8", 3, 1, 32)}
    with pytest.raises(ValueError, match=message):
        quantize.kv_store("int8")(tensors, {})


def test_mistaken_arguments_are_refused() -> None:
    """A vector, an integer tensor, an impossible group, an unknown kind of cache: ValueError."""
    with pytest.raises(ValueError, match=r"x must be \[M, K\] but has shape \(4,\)"):
        quantize.per_token_group({"x": torch.zeros(4)}, {})
    for dtype in (torch.int32, torch.float64, torch.float8_e4m3fn):
        with pytest.raises(ValueError, match=f"takes fp32, fp16 or bf16 but got {dtype}"):
            quantize.per_token_group({"x": torch.zeros(1, 4).to(dtype)}, {})
    with pytest.raises(ValueError, match="group must be a positive integer but is 0"):
        quantize.per_token_group({"x": torch.zeros(1, 4)}, {"group": 0})
    with pytest.raises(ValueError, match="no cache kind 'int4'"):
        quantize.kv_store("int4")  # type: ignore[arg-type]


def test_answers_share_no_memory_with_the_inputs() -> None:
    """Writing to an answer leaves the tensor it came from as it was."""
    x = smooth(2, 64)
    before = x.clone()
    for oracle in (quantize.cast("fp32"), quantize.ue8m0_inplace, *GROUPED.values()):
        for array in oracle({"x": x}, {}).values():
            bits(array)[...] = 0
    assert torch.equal(x, before)
