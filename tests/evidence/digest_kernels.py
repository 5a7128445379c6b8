"""Small Triton kernels whose outputs on a card are digested and compared with the interpreter lane."""

import triton
import triton.language as tl


@triton.jit
def convert(
    x,
    to_bf16,
    to_fp16,
    to_fp32,
    to_fp64,
    to_e4m3,
    to_e5m2,
    to_i8,
    to_u8,
    to_i16,
    to_u16,
    to_i32,
    to_u32,
    to_i64,
    to_u64,
    FP64: tl.constexpr,
    FP8: tl.constexpr,
    INTEGERS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Every conversion of one type that compiles; the flags say which targets there are."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(to_bf16 + i, a.to(tl.bfloat16))
    tl.store(to_fp16 + i, a.to(tl.float16))
    tl.store(to_fp32 + i, a.to(tl.float32))
    if FP64:
        tl.store(to_fp64 + i, a.to(tl.float64))
    if FP8:
        tl.store(to_e4m3 + i, a.to(tl.float8e4nv))
        tl.store(to_e5m2 + i, a.to(tl.float8e5))
    if INTEGERS:
        tl.store(to_i8 + i, a.to(tl.int8))
        tl.store(to_u8 + i, a.to(tl.uint8))
        tl.store(to_i16 + i, a.to(tl.int16))
        tl.store(to_u16 + i, a.to(tl.uint16))
        tl.store(to_i32 + i, a.to(tl.int32))
        tl.store(to_u32 + i, a.to(tl.uint32))
        tl.store(to_i64 + i, a.to(tl.int64))
        tl.store(to_u64 + i, a.to(tl.uint64))


@triton.jit
def truncate(x, to_bf16, to_fp16, to_e5m2, BLOCK: tl.constexpr):
    """Every conversion that compiles with rounding toward zero."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(to_bf16 + i, a.to(tl.bfloat16, fp_downcast_rounding="rtz"))
    tl.store(to_fp16 + i, a.to(tl.float16, fp_downcast_rounding="rtz"))
    tl.store(to_e5m2 + i, a.to(tl.float8e5, fp_downcast_rounding="rtz"))


@triton.jit
def sweep(out, start, TOWARD_ZERO: tl.constexpr, BLOCK: tl.constexpr):
    """fp32 patterns start, start + 1, ... to the type of `out`; the patterns are made here."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = (start + i.to(tl.int64)).to(tl.int32).to(tl.float32, bitcast=True)
    if TOWARD_ZERO:
        tl.store(out + i, a.to(out.dtype.element_ty, fp_downcast_rounding="rtz"))
    else:
        tl.store(out + i, a.to(out.dtype.element_ty))


ARITHMETIC = ("add", "sub", "mul", "max", "min", "max_nan", "min_nan", "abs", "neg")
WIDE = ("rem",)
SINGLE = ("div_rn", "sqrt_rn", "floor", "ceil")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


@triton.jit
def arithmetic(
    x, y, out, flags, n, IS_WIDE: tl.constexpr, IS_SINGLE: tl.constexpr, BLOCK: tl.constexpr
):
    """One row of `out` for each of ARITHMETIC (+ WIDE, + SINGLE), of `flags` for COMPARISONS."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    out += i
    tl.store(out, a + b)
    tl.store(out + n, a - b)
    tl.store(out + 2 * n, a * b)
    tl.store(out + 3 * n, tl.maximum(a, b))
    tl.store(out + 4 * n, tl.minimum(a, b))
    tl.store(out + 5 * n, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 6 * n, tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 7 * n, tl.abs(a))
    tl.store(out + 8 * n, -a)
    if IS_WIDE:
        tl.store(out + 9 * n, a % b)
    if IS_SINGLE:
        tl.store(out + 10 * n, tl.math.div_rn(a, b))
        tl.store(out + 11 * n, tl.math.sqrt_rn(a))
        tl.store(out + 12 * n, tl.floor(a))
        tl.store(out + 13 * n, tl.ceil(a))
    flags += i
    tl.store(flags, (a < b).to(tl.int8))
    tl.store(flags + n, (a <= b).to(tl.int8))
    tl.store(flags + 2 * n, (a > b).to(tl.int8))
    tl.store(flags + 3 * n, (a >= b).to(tl.int8))
    tl.store(flags + 4 * n, (a == b).to(tl.int8))
    tl.store(flags + 5 * n, (a != b).to(tl.int8))


CONTRACTIONS = (
    "fma",
    "mul_add",
    "mul_sub",
    "sub_mul",
    "neg_mul_add",
    "two_products",
    "three_products",
    "difference_of_squares",
    "constants",
    "through_where",
)


@triton.jit
def contract(x, y, z, out, OP: tl.constexpr, BLOCK: tl.constexpr):
    """One expression in which a product meets a sum."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    if OP == "fma":
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
    elif OP == "three_products":
        r = a * b + b * c + c * a
    elif OP == "difference_of_squares":
        r = a * a - b * b
    elif OP == "constants":
        r = a * 2.5 + 0.375
    elif OP == "through_where":
        r = tl.where(c > 0, a * b, b) + c
    tl.store(out + i, r)


CLAMPS = ("opposite constants", "constants", "values", "opposite constants, nan")


@triton.jit
def clamp(x, y, z, out, n, BLOCK: tl.constexpr):
    """One row of `out` for each of CLAMPS."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    tl.store(out + i, tl.clamp(a, -448.0, 448.0))
    tl.store(out + n + i, tl.clamp(a, -1.0, 2.0))
    tl.store(out + 2 * n + i, tl.clamp(a, b, c))
    tl.store(out + 3 * n + i, tl.clamp(a, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL))


INTEGER = ("add", "sub", "mul", "and", "or", "xor", "max", "min", "div", "rem", "shl", "shr")


@triton.jit
def integers(x, y, out, n, HIGH: tl.constexpr, BLOCK: tl.constexpr):
    """One row of `out` for each of INTEGER, and for `umulhi` where HIGH; divisors are made positive."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    out += i
    tl.store(out, a + b)
    tl.store(out + n, a - b)
    tl.store(out + 2 * n, a * b)
    tl.store(out + 3 * n, a & b)
    tl.store(out + 4 * n, a | b)
    tl.store(out + 5 * n, a ^ b)
    tl.store(out + 6 * n, tl.maximum(a, b))
    tl.store(out + 7 * n, tl.minimum(a, b))
    divisor = (b & 0x7FFF) | 1
    tl.store(out + 8 * n, a // divisor)
    tl.store(out + 9 * n, a % divisor)
    tl.store(out + 10 * n, a << (b & 7))
    tl.store(out + 11 * n, a >> (b & 7))
    if HIGH:
        tl.store(out + 12 * n, tl.umulhi(a, b))


ROWS = ("sum", "max", "min", "argmax", "argmin")


@triton.jit
def reduce_rows(x, out, rows, N: tl.constexpr):
    """Each of ROWS along every row of x [rows, N], as fp64 in out [5, rows]."""
    row = tl.program_id(0)
    a = tl.load(x + row * N + tl.arange(0, N))
    tl.store(out + row, tl.sum(a, 0).to(tl.float64))
    tl.store(out + rows + row, tl.max(a, 0).to(tl.float64))
    tl.store(out + 2 * rows + row, tl.min(a, 0).to(tl.float64))
    tl.store(out + 3 * rows + row, tl.argmax(a, 0).to(tl.float64))
    tl.store(out + 4 * rows + row, tl.argmin(a, 0).to(tl.float64))


@triton.jit
def scan_rows(x, out, N: tl.constexpr):
    """The cumulative sum of every row of x [rows, N], as fp64 in out [rows, N]."""
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0).to(tl.float64))


@triton.jit
def product(
    x,
    y,
    out,
    PRECISION: tl.constexpr,
    IMPRECISE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """x [M, K] times y [K, N] in one `tl.dot`."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + m[:, None] * K + k[None, :])
    b = tl.load(y + k[:, None] * N + n[None, :])
    r = tl.dot(a, b, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE)
    tl.store(out + m[:, None] * N + n[None, :], r)


FUNCTIONS = ("exp", "exp2", "log", "log2", "sin", "cos", "erf", "sqrt", "rsqrt", "div", "sigmoid")


@triton.jit
def functions(x, y, out, n, BLOCK: tl.constexpr):
    """One row of `out` for each of FUNCTIONS, all of which compiled fp32 code approximates."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    out += i
    tl.store(out, tl.exp(a))
    tl.store(out + n, tl.exp2(a))
    tl.store(out + 2 * n, tl.log(tl.abs(a)))
    tl.store(out + 3 * n, tl.log2(tl.abs(a)))
    tl.store(out + 4 * n, tl.sin(a))
    tl.store(out + 5 * n, tl.cos(a))
    tl.store(out + 6 * n, tl.erf(a))
    tl.store(out + 7 * n, tl.sqrt(tl.abs(a)))
    tl.store(out + 8 * n, tl.rsqrt(tl.abs(a)))
    tl.store(out + 9 * n, a / b)
    tl.store(out + 10 * n, tl.sigmoid(a))
