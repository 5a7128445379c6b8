"""The quantiser oracles against the same contracts in rational arithmetic, an element at a time."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bitproof.oracles import quantize
from bitproof.oracles.formats import (
    BF16,
    E2M1,
    E4M3,
    FP16,
    FP32,
    Array,
    Format,
    bits,
    decode,
    is_nan,
)
from tests.oracles import reference
from tests.oracles.patterns import SPECIAL

INPUTS = [FP32, BF16, FP16]
GROUP = 4
drawn = settings(deadline=None, max_examples=100)


@st.composite
def inputs(draw: st.DrawFn, fmt: Format, elements: int) -> Array:
    """Bit patterns of `fmt`: neighbours in magnitude that share groups and ties, or anything."""
    middle = draw(st.integers(0, (1 << fmt.exponent_bits) - 1))
    mantissa = st.integers(0, 15).map(lambda step: step << max(fmt.mantissa_bits - 4, 0))
    near = st.builds(
        lambda offset, fraction, nudge, sign: (
            (
                (min(max(middle + offset, 0), (1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits)
                + fraction
                + nudge
            )
            % fmt.sign_bit
            | sign * fmt.sign_bit
        ),
        st.integers(-10, 2),
        mantissa,
        st.integers(-1, 1),
        st.integers(0, 1),
    )
    patterns = st.one_of(
        near,
        near,
        near,
        st.integers(0, (1 << fmt.bits) - 1),
        st.sampled_from((SPECIAL >> np.uint32(32 - fmt.bits)).tolist()),
    )
    drawn_patterns = draw(st.lists(patterns, min_size=elements, max_size=elements))
    return np.array(drawn_patterns, dtype=fmt.storage)


def tensor_of(patterns: Array, fmt: Format) -> torch.Tensor:
    """The patterns as a torch tensor of the format."""
    assert fmt.torch_dtype is not None
    return torch.from_numpy(patterns.view(f"i{patterns.itemsize}")).view(fmt.torch_dtype)


def same_codes(actual: Array, expected: Sequence[int], fmt: Format) -> bool:
    """Equal codes, any NaN counting as any other."""
    wanted = np.array(expected, dtype=fmt.storage)
    return bool(((actual == wanted) | (is_nan(actual, fmt) & is_nan(wanted, fmt))).all())


def same_numbers(actual: Array, expected: Sequence[float]) -> bool:
    """Equal numbers and signs of zeros, any NaN counting as any other."""
    return all(
        (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
        for a, b in zip(actual.astype(np.float64).tolist(), expected, strict=True)
    )


@pytest.mark.parametrize("fmt", INPUTS, ids=lambda fmt: fmt.name)
@drawn
@given(data=st.data())
def test_per_token_group_is_the_contract(fmt: Format, data: st.DataObject) -> None:
    """Scales and codes of a full and a partial group are those of rational arithmetic."""
    patterns = data.draw(inputs(fmt, GROUP + 2))
    row = decode(patterns, fmt).tolist()
    out = quantize.per_token_group({"x": tensor_of(patterns[None], fmt)}, {"group": GROUP})
    for index, group in enumerate((row[:GROUP], row[GROUP:])):
        codes, scale = reference.per_token_group(group)
        assert same_numbers(out["scale"][0, index : index + 1], [scale])
        start = index * GROUP
        assert same_codes(bits(out["y"])[0, start : start + len(group)], codes, E4M3)


@pytest.mark.parametrize("fmt", INPUTS, ids=lambda fmt: fmt.name)
@drawn
@given(data=st.data(), scale_pattern=st.integers(0x00800000, 0x7E800000))
def test_per_tensor_static_is_the_contract(
    fmt: Format, data: st.DataObject, scale_pattern: int
) -> None:
    """Codes under any permitted scale, drawn by its bits, are those of rational arithmetic."""
    patterns = data.draw(inputs(fmt, GROUP))
    scale = np.array([scale_pattern], dtype=np.uint32)
    out = quantize.per_tensor_static(
        {"x": tensor_of(patterns[None], fmt), "scale": tensor_of(scale, FP32)}, {}
    )
    expected = reference.per_tensor_static(
        decode(patterns, fmt).tolist(), float(scale.view(np.float32)[0])
    )
    assert same_codes(bits(out["y"])[0], expected, E4M3)


@pytest.mark.parametrize("fmt", INPUTS, ids=lambda fmt: fmt.name)
@drawn
@given(data=st.data())
def test_power_of_two_scales_are_the_contract(fmt: Format, data: st.DataObject) -> None:
    """Scales, codes and the values written back in place are those of rational arithmetic."""
    patterns = data.draw(inputs(fmt, GROUP + 2))
    row = decode(patterns, fmt).tolist()
    tensors = {"x": tensor_of(patterns[None], fmt)}
    out = quantize.ue8m0_group(tensors, {"group": GROUP})
    written = quantize.ue8m0_inplace(tensors, {"group": GROUP})["x"]
    for index, group in enumerate((row[:GROUP], row[GROUP:])):
        codes, scale = reference.ue8m0_group(group)
        assert out["scale"][0, index] == scale
        columns = slice(index * GROUP, index * GROUP + len(group))
        assert same_codes(bits(out["y"])[0, columns], codes, E4M3)
        assert same_numbers(written[0, columns], reference.ue8m0_inplace(group, fmt))


@pytest.mark.parametrize("kind", ["int8", "fp8"])
@pytest.mark.parametrize("fmt", INPUTS, ids=lambda fmt: fmt.name)
@drawn
@given(data=st.data())
def test_cache_blocks_are_the_contract(kind: str, fmt: Format, data: st.DataObject) -> None:
    """The stored codes and scales of k and v are those of rational arithmetic."""
    patterns = data.draw(inputs(fmt, 2 * GROUP)).reshape(2, 1, 1, GROUP)
    dtype = torch.int8 if kind == "int8" else torch.float8_e4m3fn
    cache = torch.zeros(1, 1, GROUP, dtype=torch.int8).view(dtype)
    scale = torch.zeros(1, 1, 1, dtype=torch.float16)
    oracle = quantize.kv_store("int8" if kind == "int8" else "fp8")
    out = oracle(
        {
            "k": tensor_of(patterns[0], fmt),
            "v": tensor_of(patterns[1], fmt),
            "indices": torch.zeros(1, dtype=torch.int64),
            "k_cache": cache,
            "v_cache": cache,
            "k_scale": scale,
            "v_scale": scale,
        },
        {},
    )
    for name, block in zip("kv", decode(patterns, fmt).reshape(2, GROUP).tolist(), strict=True):
        codes, expected = reference.kv_block(block, kind)
        assert same_numbers(out[f"{name}_scale"].reshape(-1), [expected])
        stored = out[f"{name}_cache"].reshape(-1)
        if kind == "int8":
            assert stored.tolist() == codes
        else:
            assert same_codes(bits(stored), codes, E4M3)


@pytest.mark.parametrize("fmt", INPUTS, ids=lambda fmt: fmt.name)
@drawn
@given(data=st.data())
def test_four_bit_groups_are_the_contract(fmt: Format, data: st.DataObject) -> None:
    """Scales and packed codes of a full and a partial group are those of rational arithmetic."""
    patterns = data.draw(inputs(fmt, GROUP + 2))
    row = decode(patterns, fmt).tolist()
    out = quantize.e2m1_group({"x": tensor_of(patterns[None], fmt)}, {"group": GROUP})
    unpacked = np.stack([out["y"] & 0xF, out["y"] >> 4], axis=-1).reshape(1, -1)
    for index, group in enumerate((row[:GROUP], row[GROUP:])):
        codes, scale = reference.e2m1_group(group)
        assert out["scale"][0, index] == scale
        start = index * GROUP
        assert same_codes(unpacked[0, start : start + len(group)], codes, E2M1)
