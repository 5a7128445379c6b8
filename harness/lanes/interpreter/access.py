"""Memory accesses of an interpreted kernel: shown to the session's sanitizer, and done on its terms.

A pointer carries the tensor it comes from (its origin) through the operations that make blocks of
pointers, so that the sanitizer can tell an address that strayed into another tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter

from bitproof.harness.lanes.interpreter import definedness, state
from bitproof.harness.lanes.interpreter.numerics import sums
from bitproof.harness.lanes.interpreter.overlay import Patch, in_session
from bitproof.harness.lanes.interpreter.sanitizer.blocks import Array, Lanes, differ, poison
from bitproof.harness.lanes.interpreter.waiting import Patience

# Operations whose result points where their pointer operand points, or near it.
_FOLLOWING = (
    "create_addptr",
    "create_bitcast",
    "create_broadcast",
    "create_expand_dims",
    "create_int_to_ptr",
    "create_reshape",
    "create_splat",
    "create_trans",
    "create_unsplat",
)
_ACQUIRING = (ir.MEM_SEMANTIC.ACQUIRE, ir.MEM_SEMANTIC.ACQUIRE_RELEASE)
_RELEASING = (ir.MEM_SEMANTIC.RELEASE, ir.MEM_SEMANTIC.ACQUIRE_RELEASE)


def patches() -> list[Patch]:
    """Every way of the builder to touch memory, and every way of a pointer to become another."""
    builder = interpreter.InterpreterBuilder
    descriptions = (interpreter.TensorDescHandle, getattr(interpreter, "BlockPointerHandle", None))
    return [
        *(Patch(builder, name, _wrap_derivation) for name in _FOLLOWING),
        *(
            Patch(owner, "materialize_pointers", _wrap_materialize)
            for owner in descriptions
            if owner
        ),
        Patch(builder, "create_load", in_session(_load_all)),
        Patch(builder, "create_store", in_session(_store_all)),
        Patch(builder, "create_masked_load", in_session(_load)),
        Patch(builder, "create_masked_store", in_session(_store)),
        Patch(builder, "create_atomic_rmw", _wrap_rmw),
        Patch(builder, "create_atomic_cas", _wrap_cas),
        Patch(builder, "create_atomic_load", in_session(_atomic_load)),
        Patch(builder, "create_atomic_store", in_session(_atomic_store)),
        Patch(builder, "create_atomic_poll", in_session(_poll)),
        Patch(builder, "create_assert", in_session(_assert)),
        Patch(builder, "create_assume", _wrap_assume),
    ]


def set_origin(pointer: Any, region: Any) -> None:
    """Say that the handle `pointer` was derived from `region`'s tensor."""
    pointer.origin = region


def _origin(pointer: Any) -> Any:
    return getattr(pointer, "origin", None)


def _wrap_derivation(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *operands: Any) -> Any:
        result = original(self, *operands)
        for operand in operands:
            region = _origin(operand)
            if region is not None:
                result.origin = region
        return result

    return wrapper


def _wrap_materialize(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *arguments: Any) -> Any:
        pointers, masks = original(self, *arguments)
        set_origin(pointers, _origin(self.base))
        return pointers, masks

    return wrapper


def _watch() -> Any:
    assert state.current is not None
    return state.current.watch


def _hold(pointers: Any, mask: Lanes | None, size: int, verb: str) -> None:
    """Before memory is accessed where no sanitizer watches."""
    assert state.current is not None
    if state.current.fence is not None:
        state.current.fence.hold(pointers.data, mask, size, verb)


def _patience() -> Patience:
    assert state.current is not None
    patience: Patience = state.current.scratch["patience"]
    return patience


def _load_all(builder: Any, pointers: Any, *rest: Any) -> Any:
    return _read(pointers, None, None, volatile=bool(rest[-1]))


def _load(builder: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
    volatile = named["is_volatile"] if "is_volatile" in named else rest[-1]
    return _read(pointers, _lanes(mask), other, volatile=bool(volatile))


def _lanes(mask: Any) -> Lanes:
    """A mask's lanes; up to triton 3.7, descriptors hand over the bare array, whose `data` is its buffer."""
    return np.asarray(definedness.settled(mask, "masks an access with it").data)


def _read(pointers: Any, mask: Lanes | None, other: Any, *, volatile: bool) -> Any:
    pointers = _addresses(pointers, mask)
    numbers = definedness.left_off(other, mask, pointers.data.shape)
    other = definedness.plain(other)
    element = pointers.get_element_ty()
    dtype = interpreter._get_np_dtype(element)
    if pointers.data.size:
        _patience().read(int(pointers.data.flat[0]))
    watch = _watch()
    given = None if other is None else other.data
    if given is None and mask is not None:
        given = make_undefined(pointers.data.shape, dtype)
    if watch is None:
        _hold(pointers, mask, dtype.itemsize, "reads")
        on = np.ones(pointers.data.shape, bool) if mask is None else mask
        if given is None:
            given = np.zeros(pointers.data.shape, dtype)
        data = interpreter._interpreter.load(pointers.data, on, given, dtype)
    else:
        origin = _origin(pointers)
        data, found = watch.load(pointers.data, origin, mask, given, dtype, atomic=volatile)
        if other is None and mask is not None and not mask.all():
            off = ~np.broadcast_to(mask, pointers.data.shape)
            number = watch.readings.left_off(origin, int(pointers.data[off][0]))
            found = np.where(off, number, 0 if found is None else found)
        numbers = definedness.merged(numbers, found)
    return definedness.marked(interpreter.TensorHandle(data, element), numbers)


def _addresses(pointers: Any, mask: Lanes | None) -> Any:
    """The pointers, reported where an access takes an undefined one."""
    return definedness.settled(pointers, "accesses memory at an address made of it", mask)


def make_undefined(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A block of what a load leaves in lanes that are off where no `other` is given: the run's poison."""
    assert state.current is not None
    if dtype == np.bool_:
        return np.full(shape, state.current.poison != 0)
    filled = np.full((*shape, dtype.itemsize), state.current.poison, dtype=np.uint8)
    return filled.view(dtype).reshape(shape)


def _store_all(builder: Any, pointers: Any, value: Any, *_rest: Any) -> None:
    _write(pointers, value, None, atomic=False)


def _store(builder: Any, pointers: Any, value: Any, mask: Any, *_rest: Any) -> None:
    _write(pointers, value, _lanes(mask), atomic=False)


def _write(pointers: Any, value: Any, mask: Lanes | None, *, atomic: bool) -> None:
    _patience().reset()
    pointers = _addresses(pointers, mask)
    numbers, value = definedness.numbers(value), definedness.plain(value)
    dtype = interpreter._get_np_dtype(pointers.get_element_ty())
    data = value.data if value.data.itemsize == dtype.itemsize else value.data.astype(dtype)
    watch = _watch()
    if watch is None:
        _hold(pointers, mask, dtype.itemsize, "writes")
        on = np.ones(pointers.data.shape, bool) if mask is None else mask
        interpreter._interpreter.store(pointers.data, data, on)
    else:
        watch.store(pointers.data, _origin(pointers), mask, data, atomic=atomic, numbers=numbers)


def _wrap_rmw(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(
        self: Any, op: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any
    ) -> Any:
        if state.current is None:
            return original(self, op, pointers, value, mask, sem, scope)

        mask = definedness.settled(mask, "masks an access with it")
        pointers = _addresses(pointers, mask.data)
        value = definedness.settled(value, "atomically combines it with memory", mask.data)

        added = op == ir.ATOMIC_OP.FADD

        def run(lanes: Lanes) -> Any:
            backwards = added and sums.meet_atomics(pointers.data, lanes)
            step = -1 if backwards else 1
            where, what, on = (
                interpreter.TensorHandle(_turned(data, lanes.shape, step), dtype)
                for data, dtype in (
                    (pointers.data, pointers.dtype),
                    (value.data, value.dtype),
                    (lanes, tl.int1),
                )
            )
            return _turned(original(self, op, where, what, on, sem, scope).data, lanes.shape, step)

        lanes = np.broadcast_to(mask.data, pointers.data.shape)
        data = _atomically(pointers, lanes, sem, run, reads=op != ir.ATOMIC_OP.XCHG)
        return interpreter.TensorHandle(data, value.dtype.scalar)

    return wrapper


def _turned(data: Array, shape: tuple[int, ...], step: int) -> Array:
    """A block of that shape, its elements in reverse where `step` is -1."""
    if step == 1:
        return data
    return np.ascontiguousarray(np.broadcast_to(data, shape).reshape(-1)[::-1]).reshape(shape)


def _wrap_cas(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, pointers: Any, expected: Any, value: Any, sem: Any, scope: Any) -> Any:
        if state.current is None:
            return original(self, pointers, expected, value, sem, scope)

        pointers = _addresses(pointers, None)
        expected = definedness.settled(expected, "compares it atomically with memory")
        value = definedness.settled(value, "atomically exchanges it with memory")

        def run(lanes: Lanes) -> Any:
            result = np.zeros(lanes.shape, expected.data.dtype)
            some = (
                interpreter.TensorHandle(np.broadcast_to(h.data, lanes.shape)[lanes], h.dtype)
                for h in (pointers, expected, value)
            )
            result[lanes] = original(self, *some, sem, scope).data
            return result

        lanes = np.ones(pointers.data.shape, bool)
        data = _atomically(pointers, lanes, sem, run, reads=True)
        return interpreter.TensorHandle(data, expected.dtype.scalar)

    return wrapper


def _atomically(
    pointers: Any, lanes: Lanes, sem: Any, run: Callable[[Lanes], Array], *, reads: bool
) -> Array:
    """Do a read-modify-write on the lanes that are on; the values before it."""
    element = pointers.get_element_ty()
    dtype = interpreter._get_np_dtype(element)
    watch = _watch()
    _synchronise(pointers, lanes, sem, before=True)
    allowed = lanes
    if watch is None:
        _hold(pointers, lanes, dtype.itemsize, "atomically changes")
    else:
        allowed = watch.atomic(pointers.data, _origin(pointers), lanes, dtype.itemsize, reads=reads)
    earlier = run(allowed)
    if watch is not None and not np.array_equal(allowed, lanes):
        earlier = earlier.copy()
        poison(earlier, (lanes & ~allowed).reshape(-1))
    if pointers.data.size == 1 and allowed.any():
        _patience().read(int(pointers.data.flat[0]))
        later = interpreter._interpreter.load(pointers.data, allowed, earlier, earlier.dtype)
        if differ(earlier.reshape(-1), later.reshape(-1)).any():
            _patience().reset()
    else:
        _patience().reset()
    _synchronise(pointers, lanes, sem, before=False)
    return earlier


def _synchronise(pointers: Any, lanes: Lanes, sem: Any, *, before: bool) -> None:
    """Acquire before an access, release after it; only an atomic on one address orders programs."""
    watch = _watch()
    if watch is None or pointers.data.size != 1 or not lanes.any():
        return
    address = int(pointers.data.flat[0])
    if before and sem in _ACQUIRING:
        watch.acquire(address)
    if not before and sem in _RELEASING:
        watch.release(address)


def _atomic_load(builder: Any, pointers: Any, mask: Any, sem: Any, scope: Any) -> Any:
    pointers, lanes = _addresses(pointers, _lanes(mask)), _lanes(mask)
    _synchronise(pointers, lanes, sem, before=True)
    return _read(pointers, lanes, None, volatile=True)


def _atomic_store(builder: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> None:
    pointers, lanes = _addresses(pointers, _lanes(mask)), _lanes(mask)
    _write(pointers, value, lanes, atomic=True)
    _synchronise(pointers, lanes, sem, before=False)


def _poll(builder: Any, pointers: Any, expected: Any, timeout: Any, sem: Any, scope: Any) -> Any:
    pointers = _addresses(pointers, None)
    lanes = np.ones(pointers.data.shape, bool)
    _synchronise(pointers, lanes, sem, before=True)
    found = _read(pointers, None, None, volatile=True).data == expected.data
    if timeout is None and not found.all():
        _patience().never()
    return interpreter.TensorHandle(found, tl.int1)


def _assert(builder: Any, condition: Any, message: str) -> None:
    if not condition.data.all():
        _watch().fail(f"device_assert does not hold: {message}")


def _wrap_assume(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, condition: Any) -> Any:
        if state.current is None or state.current.watch is None:
            return original(self, condition)
        if not condition.data.all():
            state.current.watch.fail("assumes what does not hold")
        return None

    return wrapper
