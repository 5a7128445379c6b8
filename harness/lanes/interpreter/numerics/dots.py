"""`tl.dot` and `tl.dot_scaled`: operands as a target's tensor cores take them, summed as they sum.

`choosing` says by which instruction a product is made, `tensor_cores` what that gives. Where there is none
(fp32 in "ieee", fp64, two types of fp8, results in fp16, scaled operands on sm_100), sums are made in float64
and rounded once a `tl.dot`: a library's float32 product would give an element other bits in another row.
What the declared input precision makes of float32 operands follows Triton's lowering (`F32DotTC`):
"tf32" hands the bits over and the tensor core reads 10 of the 23 mantissa bits; "tf32x3" and "bf16xN" split
operands into a sum of rounded parts and add the products from small to large, dropping a NaN of the small
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton
from triton.backends.nvidia.compiler import min_dot_size
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.errors import Unsupported
from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.numerics import sums, tensor_cores
from bitproof.harness.lanes.interpreter.numerics.arithmetic import narrow
from bitproof.harness.lanes.interpreter.numerics.choosing import FP8, choose
from bitproof.harness.lanes.interpreter.numerics.conversions import convert
from bitproof.harness.lanes.interpreter.overlay import Patch, in_session
from bitproof.harness.targets import roundings as r
from bitproof.harness.targets.versions import release
from bitproof.oracles import formats

_TF32_MASK = np.uint32(0xFFFFE000)
_PRECISIONS = {
    "tf32": "TF32",
    "tf32x3": "TF32x3",
    "ieee": "IEEE",
    "bf16x3": "BF16x3",
    "bf16x6": "BF16x6",
}
# The types of operands, as Triton and the table of instructions name them.
_KINDS = {"bf16": "bf16", "fp16": "fp16", "fp8e4nv": "e4m3", "fp8e5": "e5m2"}
_SCALES_ITSELF = "sm_100"  # its instructions take scales
_TRITON = release(triton.__version__)
# Byte 0 of an e8m0 scale is 2^-127 from triton 3.9, and was zero before.
_SMALLEST_SCALE = _TRITON >= (3, 9)


def read_tf32(x: r.Array) -> r.Array:
    """float32 as a tensor core reads it in a TF32 product: the low 13 bits are ignored."""
    return (x.view(np.uint32) & _TF32_MASK).view(np.float32)


def round_tf32(x: r.Array) -> r.Array:
    """PTX `cvt.rna.tf32.f32`: to nearest with 10 mantissa bits, ties away from zero."""
    bits = x.view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & _TF32_MASK).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def _round_bf16(x: r.Array) -> r.Array:
    return r.f32_from_bf16(r.bf16_from_f32(x))


def _parts(x: r.Array, count: int, rounded: Callable[[r.Array], r.Array]) -> list[r.Array]:
    """`x` as a sum of `count` terms, each the rounding of what the ones before left over."""
    parts = []
    for _ in range(count):
        parts.append(rounded(x))
        x = x - parts[-1]
    return parts


def _multiply_add(a: r.Array, b: r.Array, acc: r.Array) -> r.Array:
    """`a @ b + acc` of float32 blocks [..., M, K], [..., K, N], [..., M, N], rounded to float32.

    Rounded twice where sums are to take another order: after each half of K.
    """
    if a.shape[-1] > 1 and sums.meet() and sums.several_products(a, b, acc):
        sums.note()
        half = a.shape[-1] // 2
        first = np.matmul(a[..., half:].astype(np.float64), b[..., half:, :].astype(np.float64))
        acc = (first + acc).astype(np.float32)
        a, b = a[..., :half], b[..., :half, :]
    product = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return np.asarray((product + acc).astype(np.float32))


def multiply_by_core(
    a: r.Array, b: r.Array, acc: r.Array, kind: str, imprecise: int = 0
) -> r.Array:
    """`a @ b + acc` of float32 blocks that hold numbers of `kind` ("tf32", "bf16", ...), by an instruction.

    `imprecise` is what `tl.dot` was told of fp8 sums. Where sums are to take another order, the last products
    come first; within a step there is no order.
    """
    depth = a.shape[-1]
    chosen = choose(kind, a.shape[-2], b.shape[-1], depth, imprecise)
    if chosen is None:
        a, b = (read_tf32(x) for x in (a, b)) if kind == "tf32" else (a, b)
        return _multiply_add(a, b, acc)
    if depth > chosen.instruction.terms and sums.meet() and sums.several_products(a, b, acc):
        sums.note()
        a, b = a[..., ::-1], b[..., ::-1, :]
    fmt = formats.by_name("fp32" if chosen.kind == "tf32" else chosen.kind)
    return tensor_cores.multiply_add(a, b, acc, fmt, chosen.instruction)


def _small_to_large(pairs: list[tuple[r.Array, r.Array]], acc: r.Array, kind: str) -> r.Array:
    """The sum of products, where a NaN among the corrections (inf - inf) does not count."""
    *corrections, largest = pairs
    total = np.zeros_like(acc)
    for a, b in corrections:
        total = multiply_by_core(a, b, total, kind)
    total = np.where(np.isnan(total), np.float32(0), total)
    return multiply_by_core(*largest, total, kind) + acc


def float32_product(a: r.Array, b: r.Array, acc: r.Array, precision: str) -> r.Array:
    """`a @ b + acc` of float32 blocks in a declared precision (a name of `ir.INPUT_PRECISION`)."""
    if precision == "IEEE":
        return _multiply_add(a, b, acc)
    if precision == "TF32":
        return multiply_by_core(a, b, acc, "tf32")
    if precision == "TF32x3":
        a_big, b_big = round_tf32(a), round_tf32(b)
        a_small, b_small = a - a_big, b - b_big
        pairs = [(a_small, b_big), (a_big, b_small), (a_big, b_big)]
        return _small_to_large(pairs, acc, "tf32")
    x, y = _parts(a, 3, _round_bf16), _parts(b, 3, _round_bf16)
    pairs = [(x[1], y[0]), (x[0], y[1]), (x[0], y[0])]
    if precision == "BF16x6":
        pairs = [(x[1], y[1]), (x[2], y[0]), (x[0], y[2]), *pairs]
    return _small_to_large(pairs, acc, "bf16")


def _dot(_builder: Any, a: Any, b: Any, acc: Any, input_precision: Any, imprecise: Any) -> Any:
    left, right, out = (handle.dtype.scalar for handle in (a, b, acc))
    least = min_dot_size(None)(left, right)[2]
    if a.data.shape[-1] < least:
        raise Unsupported(
            f"tl.dot of {left} needs K >= {least} on sm_80 to sm_120, got {a.data.shape[-1]}: "
            "pad the operands"
        )
    if left.is_int():
        exact = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64))
        return TensorHandle(exact.astype(np.int64).astype(np.int32) + acc.data, out)
    if left.name == "fp64":
        return TensorHandle(np.matmul(a.data, b.data) + acc.data, out)
    start = acc.data.astype(np.float32)
    if left.name == "fp32":
        total = float32_product(a.data, b.data, start, input_precision.name)
    else:
        x, y = (convert(handle.data, handle.dtype.scalar.name, "fp32") for handle in (a, b))
        kind = _KINDS.get(left.name, "") if left.name == right.name else ""
        if out.name == "fp32" and kind:
            total = multiply_by_core(x, y, start, kind, imprecise if kind in FP8 else 0)
        else:
            total = _multiply_add(x, y, start)
    return TensorHandle(narrow(total, out.name), out)


def _precision(original: Callable[..., Any]) -> Callable[..., Any]:
    def named(self: Any, input_precision: str) -> Any:
        name = _PRECISIONS.get(input_precision.lower())
        if state.current is None or name is None:
            return original(self, input_precision)
        return getattr(interpreter._ir.INPUT_PRECISION, name)

    return named


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)


def e2m1_values(codes: r.Array, axis: int) -> r.Array:
    """Packed e2m1 pairs (uint8, low nibble first) as float32, twice as long along `axis`."""
    pairs = np.stack([codes & 0x0F, codes >> 4], axis=-1)
    signed = np.concatenate([_E2M1, -_E2M1])[np.moveaxis(pairs, axis - 1, -2)]
    flat = signed.reshape(*signed.shape[:-2], -1)
    return np.moveaxis(flat, -1, axis)


def e8m0_values(codes: r.Array, compute: str, *, fast_math: bool) -> r.Array:
    """Scale bytes as float32 values of the compute type: 2^(byte - 127); 255 is NaN, or infinity
    under `fast_math`, which promises that there is none."""
    bits = codes.view(np.uint8).astype(np.uint32) << 23
    if compute == "bf16" and _SMALLEST_SCALE:
        bits = np.maximum(bits, np.uint32(1 << 22))
    values = bits.view(np.float32)
    if compute == "fp16":
        values = r.f16_from_float(values).astype(np.float32)
    return (
        values if fast_math else np.where(codes.view(np.uint8) == 255, np.float32(np.nan), values)
    )


def _scale_operand(
    value: Any, scale: Any, form: Any, compute: str, *, packed_along: int, k_axis: int, fast: bool
) -> r.Array:
    """One operand in the compute type times its scales, as float32."""
    if form == interpreter._ir.ScaleDotElemTypeTY.E2M1:
        data = e2m1_values(value.data, packed_along)
    else:
        name = value.dtype.scalar.name
        data = convert(value.data, name, compute) if name != compute else value.data
        data = convert(data, compute, "fp32")
    if scale is None:
        return data
    factors = e8m0_values(scale.data, compute, fast_math=fast)
    factors = np.repeat(factors, data.shape[k_axis] // factors.shape[-1], axis=-1)
    if k_axis == -2:
        factors = np.swapaxes(factors, -1, -2)
    return convert(narrow(data * factors, compute), compute, "fp32")


def _dot_scaled(
    _builder: Any,
    lhs: Any,
    lhs_scale: Any,
    lhs_form: Any,
    rhs: Any,
    rhs_scale: Any,
    rhs_form: Any,
    fast: bool,
    lhs_k_pack: bool,
    rhs_k_pack: bool,
    acc: Any,
) -> Any:
    """Upcast to bf16 (fp16 if an operand is), scale there, multiply: sm_90 has no scaled product."""
    fp16 = interpreter._ir.ScaleDotElemTypeTY.FP16
    compute = "fp16" if fp16 in (lhs_form, rhs_form) else "bf16"
    left_axis, right_axis = (-1 if lhs_k_pack else -2), (-2 if rhs_k_pack else -1)
    a = _scale_operand(
        lhs, lhs_scale, lhs_form, compute, packed_along=left_axis, k_axis=-1, fast=bool(fast)
    )
    b = _scale_operand(
        rhs, rhs_scale, rhs_form, compute, packed_along=right_axis, k_axis=-2, fast=bool(fast)
    )
    out, start = acc.dtype.scalar, acc.data.astype(np.float32)
    assert state.current is not None
    if out.name == "fp32" and state.current.target != _SCALES_ITSELF:
        return TensorHandle(multiply_by_core(a, b, start, compute), out)
    return TensorHandle(narrow(_multiply_add(a, b, start), out.name), out)


def _formats(original: Callable[..., Any]) -> Callable[..., Any]:
    """Up to triton 3.7 the names of formats have to be constexpr, which the interpreter unwraps."""

    def dot_scaled(
        self: Any, lhs: Any, lhs_scale: Any, lhs_format: Any, rhs: Any, *more: Any, **options: Any
    ) -> Any:
        if state.current is not None and _TRITON < (3, 8):
            rhs_scale, rhs_format, *more_ = more
            lhs_format, rhs_format = (
                triton.language.constexpr(getattr(form, "value", form))
                for form in (lhs_format, rhs_format)
            )
            more = (rhs_scale, rhs_format, *more_)
        return original(self, lhs, lhs_scale, lhs_format, rhs, *more, **options)

    return dot_scaled


def patches() -> list[Patch]:
    """Matrix products of the builder, and the precisions that may be asked for."""
    builder = interpreter.InterpreterBuilder
    return [
        Patch(builder, "create_dot", in_session(_dot)),
        Patch(builder, "create_dot_scaled", in_session(_dot_scaled)),
        Patch(TritonSemantic, "_str_to_dot_input_precision", _precision),
        Patch(TritonSemantic, "dot_scaled", _formats),
    ]
