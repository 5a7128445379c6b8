"""Elementwise arithmetic on the interpreter lane: rounded once, NaN and zeros as compiled."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness.errors import Uncompilable

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])
NAN, INF = float("nan"), float("inf")


@triton.jit
def _binary(x, y, z, o, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    if OP == "add":
        r = a + b
    elif OP == "sub":
        r = a - b
    elif OP == "mul":
        r = a * b
    elif OP == "fma":
        r = tl.fma(a, b, c)
    elif OP == "mul_add":
        r = a * b + c
    elif OP == "mul_sub":
        r = a * b - c
    elif OP == "sub_mul":
        r = c - a * b
    elif OP == "neg_mul_add":
        r = -(a * b) + c
    elif OP == "two_products":
        r = a * b + b * c
    elif OP == "through_a_name":
        p = a * b
        r = (p + c) * 1.0
    elif OP == "through_shapes":
        p = (a * b)[:, None]
        r = tl.reshape(p + c[:, None], (N,))
    elif OP == "through_where":
        r = tl.where(a == a, a * b, b) + c
    elif OP == "max":
        r = tl.maximum(a, b)
    elif OP == "min":
        r = tl.minimum(a, b)
    elif OP == "max_nan":
        r = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "min_nan":
        r = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "rem":
        r = a % b
    elif OP == "neg":
        r = -a
    elif OP == "abs":
        r = tl.abs(a)
    tl.store(o + i, r)


@triton.jit
def _compare(x, y, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    code = (a < b).to(tl.int32) + (a <= b).to(tl.int32) * 2 + (a > b).to(tl.int32) * 4
    code += (a >= b).to(tl.int32) * 8 + (a == b).to(tl.int32) * 16 + (a != b).to(tl.int32) * 32
    tl.store(o + i, tl.where(a < b, code + 64, code))


@triton.jit
def _clamp(x, o, LOW: tl.constexpr, HIGH: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.clamp(tl.load(x + i), LOW, HIGH))


@triton.jit
def _clamp_by_bounds(x, low, high, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.clamp(tl.load(x + i), tl.load(low + i), tl.load(high + i)))


@triton.jit
def _count_predicates(x, o, N: tl.constexpr):
    a = tl.load(x + tl.arange(0, N))
    tl.store(o + tl.arange(0, N), ((a > 0) + (a > 1)).to(tl.int32))


@triton.jit
def _scale_by_argument(x, s, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(x + i) * s)


@triton.jit
def _scale_by_literal(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(x + i) * 1.001)


@triton.jit
def _high_product(x, y, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.umulhi(tl.load(x + i), tl.load(y + i)))


def _compute(interpret, op, dtype, *operands, fp_fusion=True):
    n = 1 << (operands[0].numel() - 1).bit_length()
    padded = [torch.ones(n, dtype=dtype) for _ in range(3)]
    for target, operand in zip(padded, operands, strict=False):
        target[: operand.numel()] = operand
    out = torch.empty(n, dtype=dtype)
    interpret(_binary, *padded, out, op, n, fp_fusion=fp_fusion)
    return out[: operands[0].numel()]


def _lattice(dtype):
    """Values of every kind: zeros, subnormals, around one, around a tie's width, huge, not finite."""
    tiny, eps = torch.finfo(dtype).tiny, torch.finfo(dtype).eps
    kinds = [0.0, tiny * eps, tiny * (1 - eps), tiny, tiny * 1.5, eps / 2, eps, eps * 1.5, 1 / 3]
    kinds += [1 - eps / 2, 1.0, 1 + eps, 1.5, 2 - eps, 3.0, 1 / eps, 1 / eps + 1, 257.0]
    kinds += [torch.finfo(dtype).max, torch.finfo(dtype).max / 2, INF, NAN]
    positive = torch.tensor(kinds, dtype=torch.float64).to(dtype)
    return torch.cat([positive, -positive])


def _nearest(exact, dtype):
    """`exact` rounded to the nearest value of a torch type, ties to even; beyond all, infinity."""
    info = torch.finfo(dtype)
    mantissa = {torch.bfloat16: 7, torch.float16: 10, torch.float32: 23}[dtype]
    if exact == 0:
        return 0.0
    magnitude, smallest = abs(exact), Fraction(info.tiny)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > magnitude
    last_place = Fraction(2) ** (exponent - mantissa)
    step = max(last_place, smallest / 2**mantissa)
    rounded = round(magnitude / step) * step
    value = float(rounded) if rounded <= Fraction(info.max) else INF
    return value if exact > 0 else -value


def _same(got, expected):
    got, expected = np.asarray(got, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected) & (expected != 0)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])


EXACT = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}


@pytest.mark.parametrize("op", sorted(EXACT))
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_16_bit_arithmetic_rounds_once(interpret, name, op):
    """Sums, differences and products of bf16 and fp16 are the exact ones, rounded to nearest even."""
    dtype = FORMATS[name]
    values = _lattice(dtype)
    a, b = (t.flatten() for t in torch.meshgrid(values, values, indexing="ij"))
    got = _compute(interpret, op, dtype, a, b).double().tolist()
    expected = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        if np.isfinite(x) and np.isfinite(y):
            expected.append(_nearest(EXACT[op](Fraction(x), Fraction(y)), dtype))
        else:
            with np.errstate(invalid="ignore"):
                expected.append(float(EXACT[op](np.float64(x), np.float64(y))))
    _same(got, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_fma_rounds_once(interpret, dtype):
    """`tl.fma` adds the exact product, whatever cancels, underflows or ties."""
    values = [v for v in _lattice(dtype).tolist() if np.isfinite(v)]
    chosen = list(itertools.product(values[::3], values[1::4], values))
    a, b, c = (torch.tensor(column, dtype=dtype) for column in zip(*chosen, strict=True))
    ties = -(a.double() * b.double()).to(dtype)
    for addend in (c, ties):
        got = _compute(interpret, "fma", dtype, a, b, addend).double().tolist()
        triples = zip(a.tolist(), b.tolist(), addend.tolist(), strict=True)
        expected = [
            _nearest(Fraction(x) * Fraction(y) + Fraction(z), dtype) if np.isfinite(z) else z
            for x, y, z in triples
        ]
        _same(got, expected)


CONTRACTED = {
    "mul_add": lambda a, b, c: a * b + c,
    "mul_sub": lambda a, b, c: a * b - c,
    "sub_mul": lambda a, b, c: c - a * b,
    "neg_mul_add": lambda a, b, c: -(a * b) + c,
    "through_a_name": lambda a, b, c: a * b + c,
    "through_shapes": lambda a, b, c: a * b + c,
}


def _where_fusion_shows(dtype):
    """(a, b, the rounded a * b): what is left of a sum that cancels is the product's error."""
    eps = torch.finfo(dtype).eps
    a = 1 + eps * torch.arange(1, 17, dtype=torch.float64)
    b = 1 + eps * torch.arange(16, 0, -1, dtype=torch.float64)
    return a.to(dtype), b.to(dtype), (a * b).to(dtype)


@pytest.mark.parametrize("op", sorted(CONTRACTED))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_product_that_is_added_is_fused_while_fusion_is_on(interpret, dtype, op):
    """`a * b + c` and its relatives round once with fusion on, twice with fusion off."""
    a, b, product = _where_fusion_shows(dtype)
    c = product if op in ("mul_sub", "sub_mul", "neg_mul_add") else -product
    fused = [
        _nearest(CONTRACTED[op](*map(Fraction, triple)), dtype)
        for triple in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    apart = CONTRACTED[op](product, torch.ones_like(b), c).double().tolist()
    assert fused != apart
    # Before triton 3.8 a negation is a subtraction from zero, which ends the product.
    ends = op == "neg_mul_add" and TRITON < (3, 8)
    _same(_compute(interpret, op, dtype, a, b, c).double(), apart if ends else fused)
    _same(_compute(interpret, op, dtype, a, b, c, fp_fusion=False).double(), apart)


def test_a_selected_product_is_not_fused(interpret):
    """A product that passes through `tl.where` has been rounded."""
    a, b, product = _where_fusion_shows(torch.float32)
    got = _compute(interpret, "through_where", torch.float32, a, b, -product)
    assert got.tolist() == [0.0] * 16


def test_of_two_products_the_left_one_is_fused(interpret):
    """`a * b + b * c` is `fma(a, b, b * c)`."""
    a, b, c = _where_fusion_shows(torch.float32)
    second = (b.double() * c.double()).float()
    expected = [
        _nearest(Fraction(x) * Fraction(y) + Fraction(z), torch.float32)
        for x, y, z in zip(a.tolist(), b.tolist(), second.tolist(), strict=True)
    ]
    _same(_compute(interpret, "two_products", torch.float32, a, b, c).double(), expected)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_16_bit_negation_and_absolute_value_is_a_sign(interpret, name):
    """Negation flips and abs clears the sign bit (a difference from zero before triton 3.8)."""
    dtype = FORMATS[name]
    codes = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    x = codes.view(dtype)
    got = _compute(interpret, "abs", dtype, x).view(torch.int16)
    assert torch.equal(got, codes & 0x7FFF)
    got = _compute(interpret, "neg", dtype, x)
    if TRITON < (3, 8):
        assert not torch.signbit(got[x == 0]).any()
        number = (x != 0) & ~x.isnan()
    else:
        number = torch.ones_like(x, dtype=torch.bool)
    assert torch.equal(got.view(torch.int16)[number], (codes ^ -0x8000)[number])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_comparisons_follow_ieee(interpret, dtype):
    """Every pair compares as numbers do, -0 equals +0, and NaN is unequal to everything."""
    values = _lattice(dtype)
    a, b = (t.flatten() for t in torch.meshgrid(values, values, indexing="ij"))
    n = 1 << (a.numel() - 1).bit_length()
    padded = [torch.cat([t, torch.zeros(n - t.numel(), dtype=dtype)]) for t in (a, b)]
    out = torch.empty(n, dtype=torch.int32)
    interpret(_compare, *padded, out, n)
    a, b = a.double(), b.double()
    relations = [a < b, a <= b, a > b, a >= b, a == b, a != b, a < b]
    expected = sum(r.to(torch.int32) << i for i, r in enumerate(relations))
    assert torch.equal(out[: a.numel()], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_extremes_ignore_nan_and_order_zeros(interpret, dtype):
    """max and min drop a NaN unless told to propagate it, and know +0 from -0."""
    a = torch.tensor([NAN, 1.0, NAN, 0.0, -0.0, -0.0, 2.0], dtype=dtype)
    b = torch.tensor([1.0, NAN, NAN, -0.0, 0.0, -0.0, 3.0], dtype=dtype)
    got = {op: _compute(interpret, op, dtype, a, b).double() for op in ("max", "min")}
    _same(got["max"], [1.0, 1.0, NAN, 0.0, 0.0, -0.0, 3.0])
    _same(got["min"], [1.0, 1.0, NAN, -0.0, -0.0, -0.0, 2.0])
    assert torch.signbit(got["max"]).tolist()[3:6] == [False, False, True]
    assert torch.signbit(got["min"]).tolist()[3:6] == [True, True, True]
    for op, last in (("max_nan", 3.0), ("min_nan", 2.0)):
        _same(_compute(interpret, op, dtype, a, b).double()[[0, 1, 2, 6]], [NAN, NAN, NAN, last])


def test_clamped_nan_depends_on_what_the_compiler_sees(interpret):
    """NaN becomes the low bound, but a bound with NaN's sign where the constants are opposite."""
    x = torch.tensor([0x7FC00000, -0x400000, 0x40A00000, -0x80000000], dtype=torch.int32)
    x = x.view(torch.float32)
    out = torch.empty(4)
    interpret(_clamp, x, out, -448.0, 448.0, 4)
    assert out.tolist() == [448.0, -448.0, 5.0, 0.0]
    assert torch.signbit(out[3])
    interpret(_clamp, x, out, -1.0, 2.0, 4)
    assert out.tolist() == [-1.0, -1.0, 2.0, 0.0]
    bounds = torch.full((4,), -448.0), torch.full((4,), 448.0)
    interpret(_clamp_by_bounds, x, *bounds, out, 4)
    assert out.tolist() == [-448.0, -448.0, 5.0, 0.0]


def test_remainder_is_one_division_and_one_fma(interpret):
    """`%` truncates the rounded quotient, as compiled, even where fmod would differ."""
    a = torch.tensor([5.5, -5.5, 1e10, 3.0, 1.0, INF])
    b = torch.tensor([2.0, 2.0, 3.0, INF, 0.0, 2.0])
    got = _compute(interpret, "rem", torch.float32, a, b).tolist()
    quotient = float(np.trunc(np.float32(1e10) / np.float32(3.0)))
    _same(got, [1.5, -1.5, float(np.float32(1e10)) - quotient * 3.0, 3.0, NAN, NAN])


def test_predicates_add_modulo_two(interpret):
    """int1 is a one-bit integer: true + true is false."""
    out = torch.empty(4, dtype=torch.int32)
    interpret(_count_predicates, torch.tensor([-1.0, 0.5, 2.0, 3.0]), out, 4)
    assert out.tolist() == [0, 1, 0, 0]


def test_a_float_argument_promotes_bf16_to_fp32(interpret):
    """bf16 x argument is computed in fp32, bf16 x literal in bf16, as compiled."""
    x = torch.tensor([1.0, 3.0, 5.0, 7.0], dtype=torch.bfloat16)
    wide, narrow = torch.empty(4), torch.empty(4)
    interpret(_scale_by_argument, x, 1.001, wide, 4)
    interpret(_scale_by_literal, x, narrow, 4)
    assert torch.equal(wide, x.float() * torch.tensor(1.001))
    assert torch.equal(narrow, x.float())


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.int64, torch.uint64])
def test_high_products_are_unsigned(interpret, dtype):
    """`tl.umulhi` multiplies bit patterns, whatever the type's sign."""
    bits = 8 * dtype.itemsize
    patterns = [0, 1, 3, (1 << bits) - 1, 1 << (bits - 1), 0x9E3779B9 % (1 << bits)]
    pairs = list(itertools.product(patterns, patterns))
    n = 64

    def tensor(column):
        signed = [p - (1 << bits) if p >> (bits - 1) else p for p in column]
        whole = torch.zeros(n, dtype=torch.int32 if bits == 32 else torch.int64)
        whole[: len(signed)] = torch.tensor(signed, dtype=whole.dtype)
        return whole.view(dtype)

    out = tensor([])
    interpret(_high_product, tensor([a for a, _ in pairs]), tensor([b for _, b in pairs]), out, n)
    got = out.view(torch.int32 if bits == 32 else torch.int64)[: len(pairs)].tolist()
    assert [g % (1 << bits) for g in got] == [a * b >> bits for a, b in pairs]


@pytest.mark.parametrize("op", ["add", "mul", "neg", "max", "fma"])
def test_fp8_arithmetic_is_refused(interpret, op):
    """fp8 has no arithmetic instruction and compiles to none."""
    x = torch.ones(4).to(torch.float8_e4m3fn)
    with pytest.raises(Uncompilable, match="fp8e4nv"):
        interpret(_binary, x, x, x, x.clone(), op, 4)
