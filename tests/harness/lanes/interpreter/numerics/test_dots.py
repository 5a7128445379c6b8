"""Matrix products on the interpreter lane: operand formats, declared precisions, scaled operands."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness.errors import Unsupported
from bitproof.harness.lanes.interpreter.numerics import dots

TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])


@triton.jit
def _dot(x, y, z, o, P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + m[:, None] * K + k[None, :])
    b = tl.load(y + k[:, None] * N + n[None, :])
    acc = tl.load(z + m[:, None] * N + n[None, :])
    r = tl.dot(a, b, acc, input_precision=P, out_dtype=acc.dtype)
    tl.store(o + m[:, None] * N + n[None, :], r)


@triton.jit
def _scaled_dot(
    x, y, sx, sy, o, FX: tl.constexpr, FY: tl.constexpr, FAST: tl.constexpr, N: tl.constexpr
):
    i, s = tl.arange(0, N), tl.arange(0, N // 32)
    PX: tl.constexpr = 2 if FX == "e2m1" else 1
    PY: tl.constexpr = 2 if FY == "e2m1" else 1
    j, k = tl.arange(0, N // PX), tl.arange(0, N // PY)
    a = tl.load(x + i[:, None] * (N // PX) + j[None, :])
    b = tl.load(y + k[:, None] * N + i[None, :])
    sa = tl.load(sx + i[:, None] * (N // 32) + s[None, :])
    sb = tl.load(sy + i[:, None] * (N // 32) + s[None, :])
    r = tl.dot_scaled(a, sa, FX, b, sb, FY, fast_math=FAST)
    tl.store(o + i[:, None] * N + i[None, :], r)


def _product(interpret, a, b, precision="ieee", acc=None, out=None):
    (m, k), n = a.shape, b.shape[1]
    out = out or (torch.int32 if a.dtype == torch.int8 else torch.float32)
    acc = torch.zeros(m, n, dtype=out) if acc is None else acc
    o = torch.empty(m, n, dtype=out)
    interpret(_dot, a.contiguous(), b.contiguous(), acc, o, precision, m, n, k)
    return o


def _fractions(seed, *shape):
    """float32 in [-1, 1) with all 24 bits in use, out of a multiplicative hash."""
    count = int(np.prod(shape))
    words = (np.arange(1, count + 1, dtype=np.uint64) + seed * 7919) * 0x9E3779B97F4A7C15
    return (
        torch.from_numpy((words >> np.uint64(40)).astype(np.int64) - (1 << 23))
        .float()
        .mul(2.0**-23)
        .reshape(shape)
    )


SMALL = [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", [*SMALL, torch.float32, torch.float64])
def test_products_of_small_whole_numbers_are_exact(interpret, dtype):
    """The stock interpreter multiplies the bit patterns of bf16 operands."""
    a = (torch.arange(16 * 32).reshape(16, 32) % 5 - 2).float()
    b = (torch.arange(32 * 16).reshape(32, 16) % 7 - 3).float()
    acc = torch.arange(256).reshape(16, 16).float()
    exact = a.double() @ b.double() + acc.double()
    out = torch.float64 if dtype == torch.float64 else torch.float32
    got = _product(interpret, a.to(dtype), b.to(dtype), acc=acc.to(out), out=out)
    assert torch.equal(got.double(), exact)


@pytest.mark.parametrize("dtype", SMALL)
def test_small_operands_are_summed_in_fp32(interpret, dtype):
    """Exact products and K additions of fp32: within K ulp of the sum of magnitudes."""
    a, b = _fractions(1, 32, 64).to(dtype), _fractions(2, 64, 32).to(dtype)
    got = _product(interpret, a, b).double()
    exact, magnitudes = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    assert ((got - exact).abs() <= 64 * 2.0**-24 * magnitudes).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_row_has_the_same_bits_wherever_it_stands(interpret, dtype):
    """An element depends on its row and column alone, as in a tensor core; a CPU library's does not."""
    a, b = _fractions(7, 64, 64).to(dtype), _fractions(8, 64, 64).to(dtype)
    whole = _product(interpret, a, b)
    for shift in (1, 5, 32):
        rolled = _product(interpret, a.roll(shift, 0), b.roll(-shift, 1))
        assert torch.equal(rolled, whole.roll(shift, 0).roll(-shift, 1))


def test_int8_products_are_exact_and_wrap(interpret):
    """int8 operands are summed in int32, accumulator included, modulo 2^32."""
    a = torch.full((16, 32), -128, dtype=torch.int8)
    acc = torch.full((16, 16), 2**31 - 1, dtype=torch.int32)
    got = _product(interpret, a, a.T, acc=acc)
    assert got.unique().tolist() == [32 * 128 * 128 + 2**31 - 1 - 2**32]


def test_an_fp16_accumulator_is_rounded(interpret):
    """A result beyond fp16's integers rounds to even there."""
    a, b = torch.ones(16, 16).half(), torch.ones(16, 16).half()
    acc = torch.full((16, 16), 2033.0, dtype=torch.float16)
    got = _product(interpret, a, b, acc=acc, out=torch.float16)
    assert got.unique().tolist() == [2048.0]


def test_tf32_ignores_what_the_tensor_core_does_not_read(interpret):
    """Bits below 2^-10 of a fp32 operand vanish under tf32, and count under ieee."""
    a = torch.full((16, 16), 1 + 2**-11 + 2**-20)
    b = torch.eye(16)
    assert _product(interpret, a, b, "tf32").unique().tolist() == [1.0]
    assert torch.equal(_product(interpret, a, b, "ieee"), a)


@pytest.mark.parametrize(
    ("precision", "bits"),
    [("tf32", 9), ("bf16x3", 15), ("tf32x3", 20), ("bf16x6", 21), ("ieee", 23)],
)
def test_each_precision_is_as_good_as_its_operands(interpret, precision, bits):
    """Errors stay below 2^-bits of each product (plus fp32 sums), and above a step finer bound."""
    a, b = _fractions(3, 32, 32), _fractions(4, 32, 32)
    got = _product(interpret, a, b, precision).double()
    exact, magnitudes = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    error = ((got - exact).abs() / magnitudes).max().item()
    assert error <= 2.0**-bits + 6 * 32 * 2.0**-24
    if precision in ("tf32", "bf16x3"):
        assert error > 2.0 ** -(bits + 6)


def test_infinity_survives_a_split_product(interpret):
    """The corrections of an infinite operand are NaN, and are dropped as compiled."""
    a, b = torch.eye(16), torch.eye(16)
    a[0, 0] = float("inf")
    b = b + 1
    for precision in ("tf32x3", "bf16x3", "bf16x6"):
        got = _product(interpret, a, b, precision)
        assert got[0].tolist() == [float("inf")] * 16
        assert got[1].isfinite().all()


def test_rounding_to_tf32_is_to_nearest_away():
    """The operands of tf32x3 go through `cvt.rna.tf32`."""
    x = np.array([1 + 2**-11, 1 + 2**-11 - 2**-20, -1 - 2**-11, np.inf], dtype=np.float32)
    expected = [1 + 2**-10, 1.0, -1 - 2**-10, np.inf]
    assert dots.round_tf32(x).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_depth_that_does_not_compile_is_refused(interpret, dtype):
    """K below the backend's minimum (16, or 32 for fp8) is refused, not computed."""
    a = torch.ones(16, 8).to(dtype)
    with pytest.raises(Unsupported, match="needs K >="):
        _product(interpret, a, a.T.contiguous())


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _operand(form, seed, n, packed_rows):
    """(operand, its values): codes from a hash, kept off NaN and infinity."""
    words = torch.from_numpy(
        ((np.arange(n * n, dtype=np.uint64) + seed) * 0x9E3779B1 >> np.uint64(9)).astype(np.int64)
    ).reshape(n, n)
    if form == "e2m1":
        nibbles = words % 16
        if packed_rows:
            packed = nibbles[0::2] + 16 * nibbles[1::2]
        else:
            packed = nibbles[:, 0::2] + 16 * nibbles[:, 1::2]
        return packed.to(torch.uint8), E2M1[nibbles].double()
    if form in ("e4m3", "e5m2"):
        dtype = torch.float8_e4m3fn if form == "e4m3" else torch.float8_e5m2
        codes = (words % 0x7B + 0x80 * (words // 0x7B % 2)).to(torch.uint8)
        return codes.view(dtype), codes.view(dtype).double()
    dtype = torch.bfloat16 if form == "bf16" else torch.float16
    values = ((words % 2048 - 1024).double() / 64).to(dtype)
    return values, values.double()


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    ("left", "right"),
    [("e4m3", "e4m3"), ("e5m2", "e2m1"), ("e2m1", "e4m3"), ("e2m1", "e2m1"), ("fp16", "e2m1")],
)
def test_scaled_products(interpret, left, right, fast):
    """Operands times their powers of two, in the type that sm_90 upcasts to, summed in fp32."""
    n = 64
    x, a = _operand(left, 5, n, packed_rows=False)
    y, b = _operand(right, 6, n, packed_rows=True)
    sx = (torch.arange(n * n // 32).reshape(n, -1) % 5 + 125).to(torch.uint8)
    sy = (torch.arange(n * n // 32).reshape(n, -1) % 3 + 126).to(torch.uint8)
    o = torch.empty(n, n)
    interpret(_scaled_dot, x, y, sx, sy, o, left, right, fast, n)
    a = a * torch.exp2(sx.double() - 127).repeat_interleave(32, 1)
    b = b * torch.exp2(sy.double() - 127).repeat_interleave(32, 1).T
    bound = n * 2.0**-24 * (a.abs() @ b.abs())
    assert ((o.double() - a @ b).abs() <= bound).all()


def test_scale_bytes():
    """Byte 127 is one, 255 NaN unless fast math promises none, 0 what the installed triton makes."""
    codes = np.array([127, 0, 254, 255], dtype=np.uint8)
    values = dots.e8m0_values(codes, "bf16", fast_math=False)
    assert values[0] == 1.0
    assert values[1] == (2.0**-127 if TRITON >= (3, 9) else 0.0)
    assert values[2] == 2.0**127
    assert np.isnan(values[3])
    assert np.isinf(dots.e8m0_values(codes, "bf16", fast_math=True)[3])
    assert np.isinf(dots.e8m0_values(codes, "fp16", fast_math=False)[2])


def test_a_row_of_a_product_does_not_depend_on_its_place(interpret):
    """Rows in another order give the same bits in that order, as tensor cores do and a BLAS does not."""
    order = torch.arange(16).flip(0)
    for seed in range(20):
        values = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, 16, 16)))
        a, b = values.to(torch.bfloat16)
        turned = _product(interpret, a[order], b)
        assert torch.equal(turned, _product(interpret, a, b)[order])
