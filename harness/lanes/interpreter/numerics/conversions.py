"""Casts between Triton types, explicit or implied by a store, as sm_90 code converts them.

A pair of types that compiled code refuses to convert is refused here too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.errors import Uncompilable, Unsupported
from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.overlay import Patch, in_session
from bitproof.harness.targets import roundings as r

Convert = Callable[[r.Array], r.Array]

STORAGE = {
    "int1": np.dtype(bool),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int64": np.dtype(np.int64),
    "uint64": np.dtype(np.uint64),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "fp8e4nv": np.dtype(np.uint8),
    "fp8e5": np.dtype(np.uint8),
}
FP8 = tuple(r.FP8_FORMATS)
# What reports call the types that Triton names in its own way.
_FORMATS = {"fp8e4nv": "e4m3", "fp8e5": "e5m2"}
INTEGERS = tuple(name for name, dtype in STORAGE.items() if dtype.kind in "biu" and "int" in name)


def _astype(name: str) -> Convert:
    return lambda x: x.astype(STORAGE[name])


def _chain(first: Convert, second: Convert) -> Convert:
    return lambda x: second(first(x))


def _to_f32(name: str) -> Convert:
    if name == "bf16":
        return r.f32_from_bf16
    if name == "fp16":
        return r.f32_from_f16
    return partial(r.f32_from_fp8, name=name) if name in FP8 else _astype("fp32")


def _nearest() -> dict[tuple[str, str], Convert]:
    table: dict[tuple[str, str], Convert] = {}
    for source in ("fp16", "bf16", "fp32", "fp64"):
        # Everything but float64 is exact in float32, so that going through it rounds once.
        widen = _to_f32(source) if source != "fp64" else None
        for target in ("fp16", "bf16", "fp32", "fp64", *FP8):
            table[source, target] = {
                "fp16": _chain(widen, r.f16_from_float) if widen else r.f16_from_float,
                "bf16": _chain(widen, r.bf16_from_f32) if widen else r.bf16_from_f64,
                "fp32": widen or _astype("fp32"),
                "fp64": _chain(widen, _astype("fp64")) if widen else _astype("fp64"),
            }.get(target) or _chain(_to_f32(source), partial(r.fp8_from_f32, name=target))
        for target in INTEGERS:
            to_int = partial(r.int_from_float, dtype=STORAGE[target])
            table[source, target] = _chain(widen, to_int) if widen else to_int
            table[target, source] = {
                "fp16": _chain(r.f64_from_int_to_odd, r.f16_from_float),
                "bf16": _chain(r.f64_from_int_to_odd, r.bf16_from_f64),
            }.get(source, _astype(source))
    for name in FP8:
        widen = _to_f32(name)
        table["bf16", name] = partial(r.fp8_from_bf16, name=name)
        table[name, "fp32"] = widen
        table[name, "fp16"] = _chain(widen, r.f16_from_float)
        table[name, "bf16"] = (
            r.bf16_from_e5m2 if name == "fp8e5" else _chain(widen, r.bf16_from_f32)
        )
        # No instruction converts these; compiling them fails.
        del table["fp64", name]
    table["fp8e5", "bf16"] = r.bf16_from_e5m2
    for source in INTEGERS:
        for target in INTEGERS:
            table[source, target] = _astype(target)
    return table


NEAREST = _nearest()
TOWARD_ZERO: dict[tuple[str, str], Convert] = {
    ("fp32", "fp16"): r.f16_from_f32_toward_zero,
    ("fp32", "bf16"): r.bf16_from_f32_toward_zero,
    ("fp32", "fp8e5"): r.e5m2_from_f32_toward_zero,
}

# fp8 types that other targets than sm_90 convert (AMD's two, and NVIDIA's from before it had fp8), and the
# rounding toward zero that AMD has beyond sm_90's: tried with triton 3.9 on all targets.
_FOREIGN_FP8 = frozenset({"fp8e4b8", "fp8e5b16", "fp8e4b15"})
_FOREIGN_TOWARD_ZERO = frozenset({("fp16", "fp8e5")})


def convert(data: r.Array, source: str, target: str, *, toward_zero: bool = False) -> r.Array:
    """Convert storage `data` of the Triton type named `source` to storage of `target`.

    Of what sm_90's code generation refuses, a pair that another target has raises `Unsupported`, any other
    pair or rounding `Uncompilable`.
    """
    function = (TOWARD_ZERO if toward_zero else NEAREST).get((source, target))
    if function is None:
        rounding = " toward zero" if toward_zero else ""
        pair = f"{source} to {target}{rounding}; convert through fp32"
        foreign = toward_zero and (source, target) in _FOREIGN_TOWARD_ZERO
        if foreign or {source, target} & _FOREIGN_FP8:
            raise Unsupported(f"the interpreter does not convert {pair}")
        raise Uncompilable(f"no target compiles a conversion of {pair}")
    return function(data)


def cast(_builder: Any, src: Any, dst_type: Any) -> Any:
    """What every `create_*` cast of the builder ends in."""
    source, target = src.dtype.scalar, dst_type.scalar
    data = convert(src.data, source.name, target.name)
    _hold_on_grid(src.data, data, source.name, target.name)
    return TensorHandle(data, target)


def _hold_on_grid(
    data: r.Array, converted: r.Array, source: str, target: str, *, toward_zero: bool = False
) -> None:
    """Have a watched launch report a value that was rounded where the spec says that none is."""
    session = state.current
    if session is None or session.watch is None or not session.on_grid:
        return
    names = [_FORMATS.get(name, name) for name in (source, target)]
    conversion = f"{names[0]} to {names[1]}{' toward zero' if toward_zero else ''}"
    if conversion not in session.on_grid:
        return
    before, after = (
        np.atleast_1d(_to_f32(name)(values))
        for name, values in ((source, data), (target, converted))
    )
    rounded = (before != after) & ~(np.isnan(before) & np.isnan(after))
    if rounded.any():
        session.watch.fail(
            f"{conversion} rounds {float(before[rounded][0])!r}: the spec accepts a hazard of it because "
            f"every value is on the grid of {names[1]} before"
        )


def _fp_to_fp(_builder: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
    source, target = src.dtype.scalar, dst_type.scalar
    toward_zero = rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ
    data = convert(src.data, source.name, target.name, toward_zero=toward_zero)
    _hold_on_grid(src.data, data, source.name, target.name, toward_zero=toward_zero)
    return TensorHandle(data, target)


def _bf16_constant(_builder: Any, value: float) -> Any:
    """A bfloat16 constant as the compiler writes it: through float32 and six decimals.

    `ir.builder.get_bf16` parses `std::to_string` of a C float, so that 1e-7 is 0 and 1.2345e-3
    loses digits; a float32 constant converted with `.to(tl.bfloat16)` does not.
    """
    text = f"{np.float32(value):f}"
    return TensorHandle(r.bf16_from_f64(np.array([float(text)])), interpreter.tl.bfloat16)


def _fp16_constant(_builder: Any, value: float) -> Any:
    """A float16 constant as the compiler writes it: through float32, rounded twice."""
    return TensorHandle(
        r.f16_from_float(np.array([value], dtype=np.float32)), interpreter.tl.float16
    )


def _fp_trunc(builder: Any, src: Any, dst_type: Any) -> Any:
    """fp8 meets `create_fp_trunc` only in constants, which do not compile unless they are zero."""
    if dst_type.scalar.name in FP8 and src.data.any():
        return _fp8_constant(builder, src.data)
    return cast(builder, src, dst_type)


def _fp8_constant(_builder: Any, value: Any) -> Any:
    raise Unsupported(
        f"the interpreter has no fp8 constant {value}: convert a float32 value instead"
    )


def patches() -> list[Patch]:
    """Casts, and the constants of small types."""
    builder = interpreter.InterpreterBuilder
    replaced: dict[str, Callable[..., Any]] = {
        "cast_impl": cast,
        "create_fp_to_fp": _fp_to_fp,
        "create_fp_trunc": _fp_trunc,
        "get_bf16": _bf16_constant,
        "get_fp16": _fp16_constant,
        "get_fp8e4nv": _fp8_constant,
        "get_fp8e5": _fp8_constant,
    }
    return [Patch(builder, name, in_session(new)) for name, new in replaced.items()]
