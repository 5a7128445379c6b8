"""Memory operations that need to know what a bit pattern means: bf16 atomics and padding with NaN.

The interpreter keeps bfloat16 as uint16 and fp8 as uint8, so it refuses the first and pads with the
integer that numpy makes of NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.numerics.arithmetic import elementwise
from bitproof.harness.lanes.interpreter.numerics.conversions import FP8
from bitproof.harness.lanes.interpreter.overlay import Patch
from bitproof.harness.targets import roundings as r

_memory = interpreter._interpreter


def patches() -> list[Patch]:
    """Atomic additions and padded loads."""
    builder = interpreter.InterpreterBuilder
    found = [
        Patch(builder, "create_atomic_rmw", _wrap_rmw),
        Patch(builder, "create_descriptor_load", _wrap_descriptor_load),
    ]
    if hasattr(builder, "create_tensor_pointer_load"):
        found.append(Patch(builder, "create_tensor_pointer_load", _wrap_block_load))
    return found


def _wrap_rmw(original: Callable[..., Any]) -> Callable[..., Any]:
    def read_modify_write(
        self: Any, op: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any
    ) -> Any:
        dtype = value.dtype.scalar
        if state.current is None or dtype.name != "bf16":
            return original(self, op, pointers, value, mask, sem, scope)
        shape = pointers.data.shape
        operands = (np.broadcast_to(handle.data, shape) for handle in (pointers, value, mask))
        addresses, added, on = (np.ascontiguousarray(array).ravel() for array in operands)
        old = np.zeros(addresses.shape, dtype=np.uint16)
        # Lanes that meet at one address take their turns; all others go at once.
        turns = _turns(addresses)
        for turn in range(int(turns.max(initial=-1)) + 1):
            here = turns == turn
            where, active = addresses[here], on[here]
            old[here] = _memory.load(where, active, np.zeros_like(added[here]), np.dtype(np.uint16))
            new = elementwise(np.add, "bf16", old[here], added[here])
            _memory.store(where, new, active)
        return TensorHandle(old.reshape(shape), dtype)

    return read_modify_write


def _turns(addresses: r.Array) -> r.Array:
    """How many earlier lanes have the same address."""
    order = np.argsort(addresses, kind="stable")
    ranked = addresses[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    lengths = np.diff(np.r_[starts, len(ranked)])
    turns = np.empty(len(ranked), dtype=np.int64)
    turns[order] = np.arange(len(ranked)) - np.repeat(starts, lengths)
    return turns


def _wrap_descriptor_load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any, desc: Any, indices: Any, *options: Any, **named: Any) -> Any:
        result = original(self, desc, indices, *options, **named)
        if state.current is None or not _asks_for_nan(desc.padding):
            return result
        return _with_nan(result, desc.materialize_pointers(indices)[1])

    return load


def _wrap_block_load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any, block: Any, boundary_check: Any, padding: Any, *options: Any) -> Any:
        result = original(self, block, boundary_check, padding, *options)
        if state.current is None or not _asks_for_nan(padding):
            return result
        return _with_nan(result, block.materialize_pointers(boundary_check)[1])

    return load


def _asks_for_nan(padding: Any) -> bool:
    return bool(padding == interpreter._ir.PADDING_OPTION.PAD_NAN)


def _with_nan(loaded: Any, mask: Any) -> Any:
    """`loaded` with NaN of its type where the mask is off."""
    dtype = loaded.dtype.scalar
    if dtype.name not in ("bf16", *FP8):
        return loaded
    inside = mask.data if isinstance(mask, TensorHandle) else mask
    nan = r.CANONICAL_NAN_16 if dtype.name == "bf16" else r.CANONICAL_NAN_8
    return TensorHandle(np.where(inside, loaded.data, loaded.data.dtype.type(nan)), dtype)
