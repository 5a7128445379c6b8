"""Hints to the compiler (`multiple_of`, `max_contiguous`, `max_constancy`), held to what they promise.

A compiler vectorises accesses by a hint without looking: a false one reads or writes other elements than
the kernel says, and only where the compiler made use of it. A watched launch checks each hint on the values
at hand, by the definitions in Triton's language reference. The divisibility of pointers counts bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.lanes.interpreter import definedness, state
from bitproof.harness.lanes.interpreter.overlay import Patch
from bitproof.harness.lanes.interpreter.sanitizer.blocks import Array, Lanes


def patches() -> list[Patch]:
    """Where the interpreter notes a hint on a block."""
    return [Patch(TensorHandle, "set_attr", _wrap_hint)]


def _wrap_hint(original: Callable[..., Any]) -> Callable[..., Any]:
    def note(self: Any, key: str, values: Any) -> Any:
        watch = state.current.watch if state.current is not None else None
        # Of undefined lanes nothing is known; where they are used is reported.
        if watch is not None and key in _HINTS and definedness.numbers(self) is None:
            said, broken = _HINTS[key]
            numbers, step = _numbers(self)
            if any(broken(numbers, axis, int(v), step) for axis, v in enumerate(_each(values))):
                given = ", ".join(str(value) for value in _each(values))
                watch.fail(f"{said} [{given}] does not hold")
        return original(self, key, values)

    return note


def _each(values: Any) -> Sequence[int]:
    return values if isinstance(values, (list, tuple)) else (values,)


def _numbers(handle: Any) -> tuple[Array, int]:
    """The block's values as int64, and how far apart neighbours are: an element's bytes for pointers."""
    data = np.atleast_1d(handle.data).astype(np.int64)
    scalar = handle.dtype.scalar
    return data, max(scalar.element_ty.primitive_bitwidth // 8, 1) if scalar.is_ptr() else 1


def not_divisible(values: Array, axis: int, divisor: int, step: int) -> bool:
    """Whether the first of some run of neighbours along `axis` is no multiple of `divisor`.

    Runs are as long as the values allow, so that no run counts that a compiler does not see.
    """
    rows = np.moveaxis(values, axis, -1)
    first: Lanes = np.ones(rows.shape, dtype=np.bool_)
    first[..., 1:] = rows[..., 1:] != rows[..., :-1] + step
    return bool((rows[first] % divisor != 0).any())


def not_contiguous(values: Array, axis: int, length: int, step: int) -> bool:
    """Whether some group of `length` along `axis` is no run of neighbours."""
    groups = _groups(values, axis, length)
    return bool((groups[..., 1:] != groups[..., :-1] + step).any())


def not_constant(values: Array, axis: int, length: int, step: int) -> bool:
    """Whether some group of `length` along `axis` holds two different values."""
    groups = _groups(values, axis, length)
    return bool((groups[..., 1:] != groups[..., :-1]).any())


def _groups(values: Array, axis: int, length: int) -> Array:
    """Shape [..., extent // length, length]: the axis cut into groups, one where it is shorter than that."""
    rows = np.moveaxis(values, axis, -1)
    length = min(length, rows.shape[-1])
    whole = rows.shape[-1] // length * length
    return rows[..., :whole].reshape(*rows.shape[:-1], -1, length)


_HINTS: dict[str, tuple[str, Callable[[Array, int, int, int], bool]]] = {
    "tt.divisibility": ("multiple_of", not_divisible),
    "tt.contiguity": ("max_contiguous", not_contiguous),
    "tt.constancy": ("max_constancy", not_constant),
}
