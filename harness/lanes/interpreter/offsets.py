"""Offsets that need more than 32 bits in the largest tensors of a contract, found in small ones.

No drawn case has 2^31 elements, so that none shows a row's number multiplied by a stride in 32 bits. Where
a spec says that tensors may be so large (`KernelSpec.vast`), a watched run carries beside each integer how
large it could be: a program's number along the first axis, or an integer that was loaded, as large as 32
bits hold. A product that 32 bits do not hold then is reported where an access takes it as an offset.

A sum is no offence, since the number of a row is one; nor is a product that is multiplied in 64 bits again,
or added to one that is, since it is a row's number too. What a program's number is divided by, or its
remainder, bounds it, and so does a comparison with a constant, as in the mask of a tile. Integers that a
launcher passes are taken as they are, and bound nothing: in a larger case they are larger.

A loop that counts to such an integer, or to one that was loaded, counts rows, columns, heads or tiles. Its
variable is an offence where its product walks from row to row of a tensor that may be large: a column, a head
or a tile of one row never gets so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.overlay import Patch

LIMIT = 2**31 - 1
# Programs along each axis of a grid: CUDA C++ Programming Guide 13, "Technical Specifications".
_PROGRAMS = (LIMIT, 65535, 65535)


@dataclass(eq=False)
class Number:
    """A program's number, a loaded integer or a loop's variable, `most` at most as far as is known by now.

    A loop's variable has the `last` value that it takes here.
    """

    most: float
    last: float | None = None


@dataclass(frozen=True)
class Extent:
    """How large an integer could be: at most `known` plus each number times its factor.

    `products` are the extents of what was multiplied in 32 bits on the way to it, `wide` says that something
    was in 64.
    """

    known: float
    terms: tuple[tuple[Number, float], ...] = ()
    products: tuple[Extent, ...] = field(default=(), repr=False)
    wide: bool = False

    @property
    def most(self) -> float:
        """The bound as a number."""
        return self.known + sum(number.most * factor for number, factor in self.terms)

    def wraps(self, step: float) -> bool:
        """Whether 32 bits do not hold some product; a loop's counts if it gets `step` elements far."""
        return any(product.most_from(step) > LIMIT for product in self.products)

    def most_from(self, step: float) -> float:
        """The bound as a number, without those loops that end before `step`."""
        walks = (
            number.most * factor
            for number, factor in self.terms
            if number.last is None or number.last * factor >= step
        )
        return self.known + sum(walks)


def patches() -> list[Patch]:
    """Every operation through which an integer becomes an offset."""
    builder = interpreter.InterpreterBuilder
    moving = "broadcast cat expand_dims join reshape splat trans unsplat maxsi maxui or xor select"
    rules: dict[str, Callable[..., Extent]] = {
        **dict.fromkeys(moving.split(), _larger),
        **dict.fromkeys(("minsi", "minui", "and"), _smaller),
        **dict.fromkeys(("add", "sub"), _add),
        "addptr": _point,
        **dict.fromkeys(("sdiv", "udiv"), _divide),
        **dict.fromkeys(("srem", "urem"), _remain),
    }
    accesses = ("load", "masked_load", "store", "masked_store", "atomic_rmw", "atomic_cas")
    below = {"SLT": False, "SLE": False, "ULT": False, "ULE": False, "SGT": True, "SGE": True}
    return [
        *(Patch(builder, f"create_{name}", partial(_wrap, rule)) for name, rule in rules.items()),
        Patch(builder, "create_mul", partial(_wrap_product, False)),
        Patch(builder, "create_shl", partial(_wrap_product, True)),
        *(
            Patch(builder, f"create_icmp{name}", partial(_wrap_mask, b))
            for name, b in below.items()
        ),
        *(Patch(builder, f"create_{name}", _wrap_access) for name in accesses),
        Patch(builder, "create_get_program_id", _wrap_program),
        Patch(builder, "create_int_cast", partial(_wrap, _larger)),
        Patch(interpreter.ReduceOps, "apply_impl", _wrap_reduction),
        Patch(interpreter.ScanOps, "apply_impl", _wrap_reduction),
    ]


def tell_arguments(named: dict[str, Any]) -> None:
    """Mark the integers that a launcher passes: they grow with its tensors, as no constant does."""
    for value in named.values():
        handle = getattr(value, "handle", None)
        if handle is not None and _is_integer(handle):
            handle.extent = Extent(_magnitude(handle))


def follow_loop(variable: TensorHandle, numbers: range, bounds: Sequence[Any]) -> None:
    """Tell how large a loop's `variable` could be that takes `numbers`, by the `bounds` in its source."""
    if not _following() or not numbers:
        return
    handles = [bound.handle for bound in bounds if hasattr(bound, "handle")]
    if not any(hasattr(handle, "extent") for handle in handles):
        return
    first = _extent(bounds[0].handle) if len(bounds) > 1 and hasattr(bounds[0], "handle") else None
    if first is not None and first.terms:
        variable.extent = first  # begun at the number of a row or a tile, it is one
    else:
        variable.extent = Extent(0.0, ((Number(LIMIT, last=abs(numbers[-1])), 1.0),))


def _following() -> bool:
    current = state.current
    return current is not None and current.vast is not None and current.watch is not None


def _is_integer(handle: Any) -> bool:
    return isinstance(handle, TensorHandle) and bool(handle.dtype.scalar.is_int())


def _is_narrow(handle: TensorHandle) -> bool:
    return int(handle.dtype.scalar.primitive_bitwidth) <= 32


def _magnitude(handle: TensorHandle) -> float:
    return float(np.abs(handle.data.astype(np.float64)).max(initial=0.0))


def _extent(handle: TensorHandle) -> Extent:
    found = getattr(handle, "extent", None)
    if isinstance(found, Extent):
        return found
    return Extent(0.0 if handle.dtype.scalar.is_ptr() else _magnitude(handle))


def _larger(*operands: Extent) -> Extent:
    return max(operands, key=lambda one: one.most)


def _smaller(*operands: Extent) -> Extent:
    return min(operands, key=lambda one: one.most)


def _point(pointer: Extent, offset: Extent) -> Extent:
    """Of an address: an offset does not become right by being added to another one."""
    return Extent(0.0, (), pointer.products + offset.products)


def _add(one: Extent, other: Extent) -> Extent:
    terms = dict(one.terms)
    for number, factor in other.terms:
        terms[number] = terms.get(number, 0.0) + factor
    # Beside a product of 64 bits, what was multiplied in 32 is the number of a row.
    wide = one.wide or other.wide
    products = () if wide else one.products + other.products
    return Extent(one.known + other.known, tuple(terms.items()), products, wide)


def _scale(one: Extent, factor: float) -> Extent:
    terms = tuple((number, old * factor) for number, old in one.terms)
    return Extent(one.known * factor, terms, one.products)


def _divide(one: Extent, other: Extent) -> Extent:
    return _scale(one, 1.0 / max(other.most, 1.0)) if not other.terms else one


def _remain(one: Extent, other: Extent) -> Extent:
    return Extent(max(other.most - 1, 0.0), (), one.products) if other.most < one.most else one


def _multiply(one: Extent, other: Extent) -> Extent:
    if one.terms and other.terms:
        return Extent(0.0, ((Number(one.most * other.most), 1.0),), one.products + other.products)
    varying, fixed = (one, other) if one.terms else (other, one)
    return _scale(varying, fixed.most)


def _wrap(rule: Callable[..., Extent], original: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Any, *operands: Any, **named: Any) -> Any:
        result = original(self, *operands, **named)
        if not _following() or not any(hasattr(one, "extent") for one in operands):
            return result
        counted = [one for one in operands if _counts(one)]
        if counted and isinstance(result, TensorHandle) and _counts(result):
            result.extent = rule(*map(_extent, counted))
        return result

    return operate


def _counts(handle: Any) -> bool:
    """Whether a block holds integers or pointers, conditions apart."""
    if not isinstance(handle, TensorHandle):
        return False
    kind = handle.dtype.scalar
    return bool(kind.is_ptr() or (kind.is_int() and kind.primitive_bitwidth > 1))


def _wrap_product(shifts: bool, original: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Any, one: Any, other: Any) -> Any:
        result = original(self, one, other)
        if not _following() or not (hasattr(one, "extent") or hasattr(other, "extent")):
            return result
        factor = _extent(other)
        found = _multiply(_extent(one), Extent(2.0 ** min(factor.most, 64)) if shifts else factor)
        # Multiplied in 64 bits, what was multiplied in 32 before was the number of a row.
        products = (*found.products, Extent(found.known, found.terms)) if _is_narrow(result) else ()
        result.extent = Extent(found.known, found.terms, products, not _is_narrow(result))
        return result

    return operate


def _wrap_mask(reverse: bool, original: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison with a constant bounds the one number that is compared."""

    def compare(self: Any, one: Any, other: Any) -> Any:
        below, limit = (other, one) if reverse else (one, other)
        if _following() and hasattr(below, "extent") and not hasattr(limit, "extent"):
            terms = below.extent.terms
            if len(terms) == 1 and terms[0][1] > 0:
                number, factor = terms[0]
                number.most = min(number.most, math.ceil(_magnitude(limit) / factor))
        return original(self, one, other)

    return compare


def _wrap_program(original: Callable[..., Any]) -> Callable[..., Any]:
    def program(self: Any, axis: int) -> Any:
        result = original(self, axis)
        if _following():
            assert state.current is not None
            known = state.current.scratch.setdefault("numbers", {})
            place = (len(state.current.launches), axis, tuple(self.grid_idx))
            number = known.setdefault(place, Number(_PROGRAMS[axis]))
            result.extent = Extent(0.0, ((number, 1.0),))
        return result

    return program


def _wrap_access(original: Callable[..., Any]) -> Callable[..., Any]:
    def access(self: Any, *operands: Any, **named: Any) -> Any:
        if _following():
            pointers = next(one for one in operands if isinstance(one, TensorHandle))
            if hasattr(pointers, "extent") and pointers.extent.wraps(step=0.0):
                _judge(pointers.extent, getattr(pointers, "origin", None))
        result = original(self, *operands, **named)
        if _following() and _is_integer(result) and result.dtype.scalar.primitive_bitwidth == 32:
            result.extent = Extent(0.0, ((Number(LIMIT), 1.0),))
        return result

    return access


def _wrap_reduction(original: Callable[..., Any]) -> Callable[..., Any]:
    """Of integers, sums too pick one out of a block more often than they add."""

    def reduce(self: Any, inputs: Any) -> Any:
        result = original(self, inputs)
        if _following():
            handles = [one.handle for one in _each(inputs) if _counts(one.handle)]
            if any(hasattr(handle, "extent") for handle in handles):
                found = _larger(*map(_extent, handles))
                for one in _each(result):
                    if _counts(one.handle):
                        one.handle.extent = found
        return result

    return reduce


def _each(tensors: Any) -> Any:
    return tensors if isinstance(tensors, (tuple, list)) else (tensors,)


def _judge(pointers: Extent, region: Any) -> None:
    """Report an offset into a tensor that may be large: one of several axes, or as large as those named."""
    current = state.current
    assert current is not None
    if region is None or not pointers.wraps(_row_step(current, region)):
        return
    numel = math.prod(region.shape)
    axes = sum(extent > 1 for extent in region.shape)
    if axes > 1 or numel >= max(current.vast or 0, 1):
        current.watch.fail(
            f"the offset into {region.name} is multiplied in 32 bits, which wraps from 2^31 elements on: "
            "convert to tl.int64 first"
        )


def _row_step(current: state.Session, region: Any) -> float:
    """The elements from one row of a tensor to the next, infinite where its rows are few.

    Rows are along the axis of the largest stride. One of the last three axes counts also where it has one
    element here, so that the heads of a single token are not taken for rows.
    """
    if len(region.shape) < 2 or current.small(region.first):
        return math.inf
    few = len(region.shape) - 3
    steps = zip(region.shape, region.strides, strict=True)
    return max((step for i, (n, step) in enumerate(steps) if n > 1 or i >= few), default=math.inf)
