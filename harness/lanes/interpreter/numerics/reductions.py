"""Reductions and scans: in the type that compiled code accumulates in, by halves instead of one by one.

A reduction combines the first half of an axis with the second until one is left, which is what a
warp's butterfly shuffles do; compiled code has the same kind of tree, whose exact shape depends on
the layout. A scan doubles its reach in every step (Hillis and Steele, 1986), as a warp's does.
Integers are exact whatever the order, and wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.errors import Uncompilable
from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.numerics import sums
from bitproof.harness.lanes.interpreter.numerics.arithmetic import (
    elementwise,
    greater,
    lesser,
    widen,
)
from bitproof.harness.lanes.interpreter.numerics.conversions import INTEGERS
from bitproof.harness.lanes.interpreter.numerics.sums import Columns, Combine
from bitproof.harness.lanes.interpreter.overlay import Patch, in_session
from bitproof.harness.targets import roundings as r


def reduce_halves(columns: Columns, combine: Combine) -> Columns:
    """Reduce the first axis of every column (a power of two long) by combining its halves."""
    while (n := len(columns[0])) > 1:
        first, second = [c[: n // 2] for c in columns], [c[n // 2 :] for c in columns]
        columns = combine(first, second)
    return [column[0] for column in columns]


def scan_doubling(columns: Columns, combine: Combine) -> Columns:
    """Scan the first axis of every column, each step reaching twice as far back."""
    n = len(columns[0])
    index = np.arange(n).reshape(-1, *(1,) * (columns[0].ndim - 1))
    reach = 1
    while reach < n:
        earlier = [np.roll(column, reach, axis=0) for column in columns]
        combined = combine(earlier, columns)
        pairs = zip(combined, columns, strict=True)
        columns = [np.where(index >= reach, new, old) for new, old in pairs]
        reach *= 2
    return columns


def _make_add(name: str) -> Callable[[r.Array, r.Array], r.Array]:
    return lambda x, y: elementwise(np.add, name, x, y)


def _make_multiply(name: str) -> Callable[[r.Array, r.Array], r.Array]:
    return lambda x, y: elementwise(np.multiply, name, x, y)


def _greater(name: str) -> Callable[[r.Array, r.Array], r.Array]:
    return lambda x, y: greater(x, y, name)


def _lesser(name: str) -> Callable[[r.Array, r.Array], r.Array]:
    return lambda x, y: lesser(x, y, name)


def _list_known() -> dict[Any, tuple[Callable[..., Any], Any]]:
    """Combine functions of the standard library: how they combine storage, and integers at once."""
    library = tl.standard
    return {
        library._sum_combine: (_make_add, np.add),
        library._prod_combine: (_make_multiply, np.multiply),
        library._elementwise_max: (_greater, np.maximum),
        library._elementwise_min: (_lesser, np.minimum),
        library._xor_combine: (lambda _name: np.bitwise_xor, np.bitwise_xor),
        library._or_combine: (lambda _name: np.bitwise_or, np.bitwise_or),
    }


def _arg_extremes() -> dict[Any, Any]:
    """Combine functions of values with indices, and the search that does the same without NaN."""
    library = tl.standard
    return {
        library._argmax_combine_tie_break_left: np.argmax,
        library._argmax_combine_tie_break_fast: np.argmax,
        library._argmin_combine_tie_break_left: np.argmin,
        library._argmin_combine_tie_break_fast: np.argmin,
    }


_KNOWN = _list_known()
# Of those, the ones whose result hangs on the order for floats.
_ADDING = frozenset({tl.standard._sum_combine, tl.standard._prod_combine})
_ARG_EXTREMES = _arg_extremes()
# Of those, the ones that may give the index of any of several equal elements.
_EITHER = frozenset(
    {tl.standard._argmax_combine_tie_break_fast, tl.standard._argmin_combine_tie_break_fast}
)


def _by_kernel(combine_fn: Any, inputs: Sequence[Any]) -> Combine:
    """`combine_fn`, a Triton function of scalars, called on whole blocks."""
    dtypes = [tensor.dtype.scalar for tensor in inputs]

    def block(data: r.Array, dtype: Any) -> Any:
        return tl.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)))

    def combine(first: Columns, second: Columns) -> Columns:
        shape = first[0].shape
        arguments = [
            block(d, t) for half in (first, second) for d, t in zip(half, dtypes, strict=True)
        ]
        results = combine_fn(*arguments)
        results = results if isinstance(results, (tuple, tl.tuple)) else (results,)
        return [
            np.broadcast_to(_cast(result, dtype).handle.data, shape)
            for result, dtype in zip(results, dtypes, strict=True)
        ]

    return combine


def _cast(result: Any, dtype: Any) -> Any:
    semantic = interpreter.TritonSemantic(interpreter.InterpreterBuilder())
    return semantic.cast(semantic.to_tensor(result), dtype)


def _columns(inputs: Sequence[Any], axis: int) -> list[r.Array]:
    return [np.moveaxis(tensor.handle.data, axis, 0) for tensor in inputs]


def _axis(operation: Any, inputs: Sequence[Any]) -> int:
    axis = getattr(operation.axis, "value", operation.axis)
    rank: int = inputs[0].handle.data.ndim
    return int(axis) % rank


def _combine(combine_fn: Any, inputs: Sequence[Any]) -> Combine:
    if combine_fn not in _KNOWN:
        return _by_kernel(combine_fn, inputs)
    on_storage = _KNOWN[combine_fn][0](inputs[0].dtype.scalar.name)
    return lambda first, second: [on_storage(first[0], second[0])]


def _reduce(original: Callable[..., Any], self: Any, inputs: Sequence[Any]) -> Any:
    whole = getattr(self.axis, "value", self.axis) is None
    shape = inputs[0].handle.data.shape
    if whole:
        flat = [self.to_tensor(t.handle.data.reshape(-1), t.dtype) for t in inputs]
        axis, columns = 0, [tensor.handle.data for tensor in flat]
    else:
        axis = _axis(self, inputs)
        columns = _columns(inputs, axis)
    try:
        results = _reduce_columns(self.combine_fn, inputs, columns)
    except Uncompilable:
        if self.combine_fn in _KNOWN:
            raise
        # The combine function branches on its scalars: one element after another, then.
        return original(self, inputs)
    if self.keep_dims:
        kept = [1] * len(shape) if whole else [*shape[:axis], 1, *shape[axis + 1 :]]
        results = [np.reshape(result, kept) for result in results]
    return [self.to_tensor(d, t.dtype) for d, t in zip(results, inputs, strict=True)]


def _reduce_columns(combine_fn: Any, inputs: Sequence[Any], columns: Columns) -> Columns:
    name = inputs[0].dtype.scalar.name
    if combine_fn in _KNOWN and name in INTEGERS and name != "int1":
        return [_KNOWN[combine_fn][1].reduce(columns[0], axis=0, dtype=columns[0].dtype)]
    if combine_fn in _ARG_EXTREMES:
        values = widen(columns[0], name)
        if not (values.dtype.kind == "f" and np.isnan(values).any()):
            found = np.expand_dims(_find_extreme(combine_fn, values), 0)
            return [np.take_along_axis(column, found, axis=0)[0] for column in columns]
        combine = _combine(combine_fn, inputs)
        return (sums.reduce_neighbours if _is_odd() else reduce_halves)(columns, combine)
    combine = _combine(combine_fn, inputs)
    if not _adds_floats(combine_fn, inputs) or not sums.meet():
        return reduce_halves(columns, combine)
    other = sums.reduce_neighbours(columns, combine)
    if combine_fn not in _ADDING:
        _note_difference(reduce_halves(columns, combine), other)
    elif sums.several(widen(columns[0], name), 0):
        sums.note()
    return other


def _find_extreme(combine_fn: Any, values: r.Array) -> r.Array:
    """Where along the first axis; of equal ones the first, or where ties may break either way any."""
    search, last = _ARG_EXTREMES[combine_fn], len(values) - 1
    if combine_fn in _EITHER and _is_odd():
        return np.asarray(last - search(values[::-1], axis=0))
    return np.asarray(search(values, axis=0))


def _is_odd() -> bool:
    """Whether what hangs on a tree comes out otherwise in this run, as another compiler may have it."""
    return state.current is not None and state.current.run % 2 == 1


def _adds_floats(combine_fn: Any, inputs: Sequence[Any]) -> bool:
    """Whether bits may hang on the order: sums and products of floats, and whatever a kernel combines."""
    order_matters = combine_fn in _ADDING or combine_fn not in _KNOWN
    return order_matters and any(tensor.dtype.scalar.is_floating() for tensor in inputs)


def _note_difference(usual: Columns, other: Columns) -> None:
    if any(one.tobytes() != two.tobytes() for one, two in zip(usual, other, strict=True)):
        sums.note()


def _scan(original: Callable[..., Any], self: Any, inputs: Sequence[Any]) -> Any:
    axis = _axis(self, inputs)
    columns = _columns(inputs, axis)
    if self.reverse:
        columns = [column[::-1] for column in columns]
    name = inputs[0].dtype.scalar.name
    if self.combine_fn in _KNOWN and name in INTEGERS and name != "int1":
        accumulate = _KNOWN[self.combine_fn][1].accumulate
        results: Columns = [accumulate(columns[0], axis=0, dtype=columns[0].dtype)]
    else:
        try:
            results = _scan_columns(self.combine_fn, inputs, columns)
        except Uncompilable:
            if self.combine_fn in _KNOWN:
                raise
            return original(self, inputs)
    if self.reverse:
        results = [column[::-1] for column in results]
    laid_out = [np.ascontiguousarray(np.moveaxis(column, 0, axis)) for column in results]
    return [self.to_tensor(d, t.dtype) for d, t in zip(laid_out, inputs, strict=True)]


def _scan_columns(combine_fn: Any, inputs: Sequence[Any], columns: Columns) -> Columns:
    """By doubling, or one after another where sums are to take another order."""
    combine = _combine(combine_fn, inputs)
    usual = scan_doubling(columns, combine)
    if not _adds_floats(combine_fn, inputs) or not sums.meet():
        return usual
    other = sums.scan_in_sequence(columns, combine)
    _note_difference(usual, other)
    return other


def _histogram(_builder: Any, data: Any, bins: int, mask: Any) -> Any:
    """Counts of 0 ... bins - 1; other values, and masked ones, are dropped."""
    values = data.data
    counted = (values >= 0) & (values < bins)
    if mask is not None:
        counted = counted & mask.data
    counts = np.bincount(values[counted].astype(np.int64), minlength=bins)
    return TensorHandle(counts.astype(np.int32), tl.int32)


def _wrap_apply(apply: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda original: in_session(partial(apply, original))(original)


def patches() -> list[Patch]:
    """`tl.reduce` and `tl.associative_scan`, all that is made of them, and histograms."""
    return [
        Patch(interpreter.ReduceOps, "apply_impl", _wrap_apply(_reduce)),
        Patch(interpreter.ScanOps, "apply_impl", _wrap_apply(_scan)),
        Patch(interpreter.InterpreterBuilder, "create_histogram", in_session(_histogram)),
    ]
