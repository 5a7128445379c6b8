"""Casts on the interpreter lane against the rounding oracle, and what compiled code does beyond it."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness.errors import Uncompilable
from bitproof.harness.targets import roundings
from bitproof.oracles import formats
from bitproof.oracles.rounding import round_to

TARGETS = {
    "e4m3": (torch.float8_e4m3fn, formats.E4M3, "saturate"),
    "e5m2": (torch.float8_e5m2, formats.E5M2, "saturate"),
    "bf16": (torch.bfloat16, formats.BF16, "inf"),
    "fp16": (torch.float16, formats.FP16, "inf"),
}
CODES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@triton.jit
def _explicit(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty))


@triton.jit
def _implicit(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i))


@triton.jit
def _truncate(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty, fp_downcast_rounding="rtz"))


@triton.jit
def _constant(y, C: tl.constexpr, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.full((N,), C, y.dtype.element_ty))


def _codes_of(tensor):
    size = tensor.element_size()
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return tensor.view(whole).numpy().view(CODES[size])


def _tensor_of(codes, dtype):
    signed = codes.view(codes.dtype.str.replace("u", "i")) if codes.itemsize > 1 else codes
    return torch.from_numpy(signed.copy()).view(dtype)


def _cast(interpret, x, dtype, kernel=_explicit):
    n = 1 << (x.numel() - 1).bit_length()
    padded = torch.zeros(n, dtype=x.dtype)
    padded[: x.numel()] = x
    y = torch.empty(n, dtype=dtype)
    interpret(kernel, padded, y, n)
    return y[: x.numel()]


def fp32_probes(fmt):
    """fp32 around every midpoint of `fmt`, and 2^18 patterns a full-cycle stride apart."""
    codes = np.arange(fmt.largest_code + 1)
    grid = formats.decode(codes.astype(fmt.storage), fmt)
    middles = ((grid[1:] + grid[:-1]) / 2).astype(np.float32).view(np.uint32)
    near = (middles[:, None] + np.array([-1, 0, 1], dtype=np.int64)).astype(np.uint32).ravel()
    strided = (np.arange(1 << 18, dtype=np.uint64) * 0x9E3779B1).astype(np.uint32)
    special = np.array([0, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 1], dtype=np.uint32)
    positive = np.concatenate([near, special])
    return np.concatenate([positive, positive | np.uint32(1 << 31), strided]).view(np.float32)


def differing(got, expected, fmt):
    """Codes that differ; one NaN is as good as another."""
    both_nan = formats.is_nan(got, fmt) & formats.is_nan(expected, fmt)
    return np.flatnonzero((got != expected) & ~both_nan)


@pytest.mark.parametrize("kernel", [_explicit, _implicit])
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_fp32_is_rounded_to_a_small_format_as_the_oracle_rounds(interpret, name, kernel):
    """A cast and a store of fp32 round to nearest even and saturate or overflow as compiled."""
    dtype, fmt, overflow = TARGETS[name]
    x = fp32_probes(fmt)
    got = _codes_of(_cast(interpret, torch.from_numpy(x), dtype, kernel))
    expected = round_to(x, fmt, overflow=overflow)
    wrong = differing(got, expected, fmt)
    assert wrong.size == 0, f"{x[wrong[0]].hex()}: {got[wrong[0]]:#x}, {expected[wrong[0]]:#x}"


@pytest.mark.parametrize(
    ("x", "e4m3", "e5m2"),
    [
        (126.24, 128.0, 128.0),
        (31.9, 32.0, 32.0),
        (1.0625, 1.0, 1.0),
        (1.0625001, 1.125, 1.0),
        (1.125, 1.125, 1.0),
        (0.0029296875, 0.00390625, 0.0029296875),
        (0.0078125 * 1.5, 0.01171875, 0.01171875),
        (464.0, 448.0, 448.0),
        (480.0, 448.0, 512.0),
        (1e4, 448.0, 10240.0),
        (float("inf"), 448.0, 57344.0),
        (-float("inf"), -448.0, -57344.0),
    ],
)
def test_reported_values_round_right(interpret, x, e4m3, e5m2):
    """Values that real kernels and the stock interpreter got wrong: ties, carries, subnormals, overflow."""
    given = torch.tensor([x])
    assert _cast(interpret, given, torch.float8_e4m3fn).item() == e4m3
    assert _cast(interpret, given, torch.float8_e5m2).item() == e5m2


@pytest.mark.parametrize("name", sorted(TARGETS))
@pytest.mark.parametrize("source", ["bf16", "fp16"])
def test_every_16_bit_input_is_rounded_as_the_oracle_rounds(interpret, source, name):
    """All 65 536 bf16 and fp16 inputs convert to each other and to fp8 as the oracle says."""
    dtype, fmt, overflow = TARGETS[name]
    x = _tensor_of(np.arange(1 << 16, dtype=np.uint16), TARGETS[source][0])
    if source == name:
        assert torch.equal(_cast(interpret, x, dtype).view(torch.int16), x.view(torch.int16))
        return
    got = _codes_of(_cast(interpret, x, dtype))
    expected = round_to(x.float().numpy(), fmt, overflow=overflow)
    assert differing(got, expected, fmt).size == 0


@pytest.mark.parametrize("target", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_every_fp8_code_widens_to_its_value(interpret, name, target):
    """All 256 codes of each fp8 format widen exactly; e5m2 to bf16 only where finite."""
    dtype, fmt, _ = TARGETS[name]
    codes = np.arange(256, dtype=np.uint8)
    got = _cast(interpret, _tensor_of(codes, dtype), target).double().numpy()
    expected = formats.decode(codes, fmt)
    if name == "e5m2" and target is torch.bfloat16:
        got, expected = got[np.isfinite(expected)], expected[np.isfinite(expected)]
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])


def test_bf16_has_no_infinity_when_it_comes_from_e5m2(interpret):
    """Compiled code shifts and scales e5m2 to bf16, which turns infinity into 65536."""
    x = _tensor_of(np.array([0x7C, 0xFC, 0x7E], dtype=np.uint8), torch.float8_e5m2)
    assert _cast(interpret, x, torch.bfloat16).tolist() == [65536.0, -65536.0, 98304.0]


@pytest.mark.parametrize("name", ["bf16", "e5m2", "fp16"])
def test_rounding_toward_zero_truncates(interpret, name):
    """`fp_downcast_rounding="rtz"` never leaves the finite range and keeps infinity."""
    dtype, fmt, _ = TARGETS[name]
    x = fp32_probes(fmt)
    got = _codes_of(_cast(interpret, torch.from_numpy(x), dtype, _truncate))
    expected = round_to(x, fmt, mode="rz", overflow="inf")
    assert differing(got, expected, fmt).size == 0


def test_nan_codes_are_those_of_the_instruction(interpret):
    """Every NaN, whatever its sign and payload, becomes 0x7FFF or 0x7F."""
    x = torch.tensor([0x7F800001, 0x7FC00000, -1], dtype=torch.int32).view(torch.float32)
    for dtype, _, _ in TARGETS.values():
        expected = 0x7F if dtype.itemsize == 1 else 0x7FFF
        assert set(_codes_of(_cast(interpret, x, dtype)).tolist()) == {expected}


def test_fp64_is_rounded_once(interpret):
    """A value that two roundings (by way of fp32) would round up is rounded down in one."""
    x = torch.tensor([1 + 2**-8 - 2**-40, 1 + 2**-8, 1 + 2**-8 + 2**-40], dtype=torch.float64)
    assert _cast(interpret, x, torch.bfloat16).tolist() == [1.0, 1.0, 1 + 2**-7]
    x = torch.tensor([1 + 2**-11 + 2**-40, 1 + 2**-11], dtype=torch.float64)
    assert _cast(interpret, x, torch.float16).tolist() == [1 + 2**-10, 1.0]


def test_integers_are_rounded_once(interpret):
    """int32 and int64 reach bf16 and fp16 in one rounding, as `cvt.rn.bf16.s64` does."""
    just_above = (1 << 62) + (1 << 54) + 1
    x = torch.tensor([just_above, just_above - 1, -just_above], dtype=torch.int64)
    up = float((1 << 62) + (1 << 55))
    assert _cast(interpret, x, torch.bfloat16).tolist() == [up, 2.0**62, -up]
    x = torch.tensor([2049, 2051, 65519, 65520, -7], dtype=torch.int32)
    expected = [2048.0, 2052.0, 65504.0, float("inf"), -7.0]
    assert _cast(interpret, x, torch.float16).tolist() == expected


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.int8, [44, -44, -1, 0, 0, 2]),
        (torch.uint8, [44, 0, 255, 0, 0, 2]),
        (torch.int16, [300, -300, 32767, -32768, 0, 2]),
        (torch.int32, [300, -300, 2**31 - 1, -(2**31), 0, 2]),
        (torch.int64, [300, -300, 2**63 - 1, -(2**63), -(2**63), 2]),
    ],
)
def test_floats_are_clamped_into_integers(interpret, dtype, expected):
    """`cvt.rzi` clamps; 8-bit targets keep the low byte of a clamped 16-bit value; NaN is 0."""
    x = torch.tensor([300.7, -300.7, float("inf"), -float("inf"), float("nan"), 2.999])
    assert _cast(interpret, x, dtype).tolist() == expected


def test_bf16_constants_lose_everything_behind_six_decimals(interpret):
    """`tl.full(..., 1e-7, tl.bfloat16)` is zero in compiled code, and here."""
    y = torch.empty(4, dtype=torch.bfloat16)
    for constant, written in [(1e-7, 0.0), (0.0012345678, 0.001235), (1e39, float("inf"))]:
        interpret(_constant, y, constant, 4)
        assert torch.equal(y, torch.full((4,), written, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("source", "target", "kernel"),
    [
        (torch.float64, torch.float8_e4m3fn, _explicit),
        (torch.float8_e4m3fn, torch.float8_e5m2, _explicit),
        (torch.float32, torch.float8_e4m3fn, _truncate),
        (torch.float64, torch.bfloat16, _truncate),
    ],
)
def test_conversions_that_do_not_compile_are_refused(interpret, source, target, kernel):
    """A pair or a rounding without an instruction fails, and is not invented."""
    with pytest.raises(Uncompilable, match="no target compiles a conversion"):
        _cast(interpret, torch.zeros(4, dtype=source), target, kernel)


def test_the_stock_interpreter_is_left_alone(interpret):
    """Outside a session the same kernel still truncates, as Triton ships it."""
    interpret(_explicit, torch.zeros(1), torch.zeros(1, dtype=torch.bfloat16), 1)
    x, y = torch.tensor([1 + 2**-7 - 2**-12]), torch.empty(1, dtype=torch.bfloat16)
    _explicit[(1,)](x, y, 1)
    assert y.item() == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_fp32_is_rounded_as_the_oracle_rounds(name):
    """All 2^32 fp32 patterns round to each small format as the oracle says."""
    _, fmt, overflow = TARGETS[name]
    rounding = {
        "e4m3": lambda x: roundings.fp8_from_f32(x, "fp8e4nv"),
        "e5m2": lambda x: roundings.fp8_from_f32(x, "fp8e5"),
        "bf16": roundings.bf16_from_f32,
        "fp16": lambda x: roundings.f16_from_float(x).view(np.uint16),
    }[name]
    for block in range(256):
        x = (np.arange(1 << 24, dtype=np.uint32) + np.uint32(block << 24)).view(np.float32)
        assert differing(rounding(x), round_to(x, fmt, overflow=overflow), fmt).size == 0
