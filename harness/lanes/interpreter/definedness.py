"""Follows values that nobody defined from the load that read them to the place where they matter.

A kernel may read what nobody wrote, and leave lanes of a masked load without `other`, as long as it
discards them. While the sanitizer watches, the handle of a block with such lanes is `Unsure`: beside its
data it carries, for each lane, 0 or the number of the load (see `sanitizer.readings`). The builder's
operations pass the numbers on; a store leaves them in memory; an address, a mask, an atomic operand or a
branch made of one is reported. Whoever else looks at the data of an unsure handle is reported too, so that
no operation forgets them. Handles whose lanes are all defined are plain and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.numerics import libdevice
from bitproof.harness.lanes.interpreter.overlay import Patch
from bitproof.harness.lanes.interpreter.sanitizer.blocks import Array, Lanes
from bitproof.harness.lanes.interpreter.sanitizer.readings import Numbers

# Operations whose operands `access` looks at, or that no value comes out of.
_ELSEWHERE = (
    "create_assert",
    "create_assume",
    "create_atomic",
    "create_barrier",
    "create_descriptor",
    "create_get",
    "create_load",
    "create_make",
    "create_masked",
    "create_store",
    "create_tensor_pointer",
)
# Operations that move lanes and compute nothing: they move numbers as they move data.
_MOVING = (
    "create_broadcast",
    "create_cat",
    "create_expand_dims",
    "create_join",
    "create_reshape",
    "create_splat",
    "create_split",
    "create_trans",
    "create_unsplat",
)

_following = 0


class Unsure(TensorHandle):  # type: ignore[misc]
    """A handle some of whose lanes are undefined: `undefined` holds their numbers, in the data's shape."""

    undefined: Numbers

    @property
    def data(self) -> Array:
        """The data; reported as used, except inside an operation that passes the numbers on."""
        if not _following:
            _watch().use(self.undefined, "decides by it")
        found: Array = self.__dict__["data"]
        return found

    @data.setter
    def data(self, data: Array) -> None:
        self.__dict__["data"] = data


def patches() -> list[Patch]:
    """Every operation of the builder, reductions, scans and the device library."""
    builder = interpreter.InterpreterBuilder
    names = [name for name in dir(builder) if name.startswith("create_")]
    rules: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(_MOVING, _moved),
        "create_select": _selected,
        "create_and": _conjoined,
        "create_or": _disjoined,
        "create_dot": _multiplied,
        "create_gather": _gathered,
        "create_histogram": _counted,
        "create_print": lambda *_: None,
    }
    return [
        *(
            Patch(builder, name, _passing_on(rules.get(name, _combined)))
            for name in names
            if not name.startswith(_ELSEWHERE)
        ),
        Patch(interpreter.ReduceOps, "apply_impl", _along_axis(_reduced)),
        Patch(interpreter.ScanOps, "apply_impl", _along_axis(_scanned)),
        Patch(libdevice, "_evaluate", _evaluating),
    ]


def numbers(handle: Any) -> Numbers | None:
    """The numbers of a handle's lanes, or None where all of them are defined."""
    return handle.undefined if type(handle) is Unsure else None


def marked(handle: Any, found: Numbers | None) -> Any:
    """The same handle, with these numbers of its lanes (None: all are defined)."""
    if found is not None and found.any():
        shape = handle.data.shape
        handle.__class__ = Unsure
        handle.undefined = np.broadcast_to(found, shape)
    return handle


def plain(handle: Any) -> Any:
    """The handle, or its data in one that no longer knows which lanes are undefined."""
    if type(handle) is not Unsure:
        return handle
    copy = TensorHandle(handle.__dict__["data"], handle.dtype, handle.attr)
    if "origin" in handle.__dict__:
        copy.origin = handle.origin
    return copy


def settled(handle: Any, how: str, lanes: Lanes | None = None) -> Any:
    """The handle, plain; reported as used (`how` says in what way) where one of its `lanes` is undefined."""
    if type(handle) is not Unsure:
        return handle
    used = handle.undefined if lanes is None else np.where(lanes, handle.undefined, 0)
    if used.any():
        _watch().use(used, how)
    return plain(handle)


def left_off(other: Any, mask: Lanes | None, shape: tuple[int, ...]) -> Numbers | None:
    """The numbers of what a masked load of this shape takes from `other`, or None."""
    if mask is None or type(other) is not Unsure:
        return None
    return np.where(np.broadcast_to(mask, shape), 0, other.undefined)


def merged(one: Numbers | None, other: Numbers | None) -> Numbers | None:
    """The numbers of lanes that depend on both; two shapes are broadcast."""
    if one is None or other is None:
        return one if other is None else other
    return np.maximum(one, other)


def _watch() -> Any:
    assert state.current is not None
    return state.current.watch


def _idle() -> bool:
    """Whether no lane of this run can be undefined."""
    current = state.current
    return current is None or current.watch is None or not current.watch.readings


@contextmanager
def _passing() -> Iterator[None]:
    """Data may be looked at: whoever does passes the numbers on."""
    global _following
    _following += 1
    try:
        yield
    finally:
        _following -= 1


def _passing_on(rule: Callable[..., Any]) -> Callable[[Any], Any]:
    """A `make` that lets `rule` mark the result of an operation with an unsure operand."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def operate(self: Any, *operands: Any, **named: Any) -> Any:
            given = (*operands, *named.values())
            if _idle() or not any(type(operand) is Unsure for operand in given):
                return original(self, *operands, **named)
            with _passing():
                result = original(self, *operands, **named)
                if rule is _moved:
                    return _moved(original, result, self, operands, named)
                found = rule(result, *(one for one in given if isinstance(one, TensorHandle)))
                return marked(result, found) if found is not None else result

        return operate

    return make


def _of(handle: Any) -> Numbers:
    found = numbers(handle)
    return np.zeros(handle.data.shape, dtype=np.int64) if found is None else found


def _moved(original: Any, result: Any, self: Any, operands: Any, named: Any) -> Any:
    def alike(operand: Any) -> Any:
        is_block = isinstance(operand, TensorHandle)
        return TensorHandle(_of(operand), tl.int64) if is_block else operand

    found = original(
        self,
        *(alike(operand) for operand in operands),
        **{name: alike(operand) for name, operand in named.items()},
    )
    if isinstance(result, tuple):
        return tuple(marked(one, two.data) for one, two in zip(result, found, strict=True))
    return marked(result, found.data)


def _combined(result: Any, *operands: Any) -> Numbers:
    """Lane by lane; of an operation that is not elementwise, every lane depends on every other."""
    shape = result.data.shape
    found = [_of(operand) for operand in operands]
    try:
        elementwise = np.broadcast_shapes(*(one.shape for one in found)) == shape
    except ValueError:
        elementwise = False
    if not elementwise:
        return np.full(shape, max(int(one.max(initial=0)) for one in found), dtype=np.int64)
    total = found[0]
    for one in found[1:]:
        total = np.maximum(total, one)
    return total


def _selected(result: Any, condition: Any, chosen: Any, other: Any) -> Numbers:
    taken = np.where(condition.data, _of(chosen), _of(other))
    return np.maximum(taken, _of(condition))


def _conjoined(result: Any, one: Any, other: Any) -> Numbers:
    return _unless(one.data == 0, other.data == 0, one, other)


def _disjoined(result: Any, one: Any, other: Any) -> Numbers:
    return _unless(~one.data == 0, ~other.data == 0, one, other)


def _unless(one_decides: Lanes, other_decides: Lanes, one: Any, other: Any) -> Numbers:
    """Numbers of both, but for lanes where a defined operand decides the result alone."""
    first, second = _of(one), _of(other)
    decided = (one_decides & (first == 0)) | (other_decides & (second == 0))
    return np.where(decided, 0, np.maximum(first, second))


def _multiplied(result: Any, a: Any, b: Any, acc: Any, *_rest: Any) -> Numbers:
    """A row of `a` reaches the row of the product, a column of `b` the column."""
    rows = _of(a).max(axis=-1, keepdims=True)
    columns = _of(b).max(axis=-2, keepdims=True)
    reached: Numbers = np.maximum(np.maximum(rows, columns), _of(acc))
    return reached


def _gathered(result: Any, source: Any, indices: Any) -> Numbers:
    """Every lane may take any undefined one: where the axis is not known, all of them count."""
    reached: Numbers = np.maximum(_of(indices), _of(source).max())
    return reached


def _counted(result: Any, values: Any, mask: Any = None) -> Numbers:
    """A value whose mask is off is not counted; one that is reaches any bin."""
    reached = _of(values) if mask is None else np.where(mask.data, _of(values), 0)
    found = max(int(reached.max()), int(_of(mask).max()) if mask is not None else 0)
    return np.full(result.data.shape, found, dtype=np.int64)


def _along_axis(rule: Callable[..., Numbers]) -> Callable[[Any], Any]:
    """A `make` for reductions and scans, whose operands are tensors in a tuple."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def operate(self: Any, inputs: Any) -> Any:
            handles = [tensor.handle for tensor in inputs]
            if _idle() or not any(type(handle) is Unsure for handle in handles):
                return original(self, inputs)
            with _passing():
                results = original(self, inputs)
                total = _of(handles[0])
                for handle in handles[1:]:
                    total = np.maximum(total, _of(handle))
                for result in results:
                    marked(result.handle, rule(self, total, result.handle.data.shape))
            return results

        return operate

    return make


def _reduced(operation: Any, total: Numbers, shape: tuple[int, ...]) -> Numbers:
    axis = getattr(operation.axis, "value", operation.axis)
    return np.asarray(total.max(axis=axis)).reshape(shape)


def _scanned(operation: Any, total: Numbers, shape: tuple[int, ...]) -> Numbers:
    axis = getattr(operation.axis, "value", operation.axis)
    if operation.reverse:
        return np.flip(np.maximum.accumulate(np.flip(total, axis), axis), axis)
    return np.maximum.accumulate(total, axis)


def _evaluating(original: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate(name: str, operands: tuple[Any, ...]) -> Any:
        handles = [one.handle for one in operands if isinstance(one, tl.tensor)]
        if _idle() or not any(type(handle) is Unsure for handle in handles):
            return original(name, operands)
        with _passing():
            result = original(name, operands)
            marked(result.handle, _combined(result.handle, *handles))
        return result

    return evaluate
