"""How tensors lie in memory: the layouts that a contract may allow, and which a case has.

A spec names the layouts that its launcher takes for each input tensor, a case's `Launch.layout` picks among
them. A layout is laid over a dense tensor; one to which a case gave strides of its own keeps them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, get_args

from torch import Tensor

from bitproof.harness.bits import bits
from bitproof.harness.generators import pick

Layout = Literal[
    "padded rows",  # foreign elements after each row
    "padded outer axes",  # dense matrices apart, each further axis by one more: three axes or more
    "every second element",  # as x[..., ::2]
    "transposed",  # the last two axes, as x.mT
    "expanded",  # the first axis is one element in memory, as x[:1].expand(...)
]
LAYOUTS: tuple[str, ...] = get_args(Layout)
Sharing = Literal[
    "side by side",  # views into one tensor whose rows hold a row of each, as q, k and v of a fused product
    "one tensor",  # the very same memory
]
SHARINGS: tuple[str, ...] = get_args(Sharing)
DENSE = "dense"

_ROW_PADDING = 5

Allowed = Mapping[str, tuple[Layout, ...]]
Shared = Mapping[tuple[str, ...], tuple[Sharing, ...]]


def choose(allowed: Allowed, number: int, name: str) -> str:
    """Which layout of those `allowed` for tensor `name` a launch of that `layout` number has, or "dense".

    0 leaves every tensor dense; any other number picks for each tensor apart, dense being one choice.
    """
    offered = (DENSE, *allowed.get(name, ()))
    return offered[pick(zlib.crc32(f"{number} {name}".encode()), len(offered))] if number else DENSE


def strides_of(layout: str, tensor: Tensor) -> tuple[int, ...] | None:
    """Strides in elements of `tensor` in that layout; None where it would lie where it lies when dense.

    So it is of an empty tensor, of one with too few axes, and of one that is not dense to begin with.
    """
    if layout == DENSE or not tensor.numel() or not tensor.is_contiguous():
        return None
    shape = tuple(tensor.shape)
    strides = _laid(layout, shape)
    dense = dense_strides(shape)
    moved = any(n > 1 and s != d for n, s, d in zip(shape, strides, dense, strict=True))
    return strides if moved and (layout != "expanded" or _repeats(tensor)) else None


def lay(allowed: Allowed, number: int, tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Strides of the tensors that a launch of that `layout` number does not leave as they are."""
    laid = {
        name: strides_of(choose(allowed, number, name), tensors[name])
        for name in allowed
        if name in tensors
    }
    return {name: strides for name, strides in laid.items() if strides is not None}


def choose_sharing(shared: Shared, number: int, names: tuple[str, ...]) -> str:
    """How the tensors `names` share memory in a launch of that `layout` number, or "" where they do not."""
    offered = ("", *shared.get(names, ()))
    text = f"{number} {' '.join(names)}"
    return offered[pick(zlib.crc32(text.encode()), len(offered))] if number else ""


def share(shared: Shared, number: int, tensors: Mapping[str, Tensor]) -> dict[tuple[str, ...], str]:
    """How tensors share memory in a launch of that `layout` number, where theirs can; no tensor twice."""
    found: dict[tuple[str, ...], str] = {}
    taken: set[str] = set()
    for names in shared:
        how = choose_sharing(shared, number, names)
        if (
            how
            and set(names) <= set(tensors) - taken
            and _can_share(how, [tensors[n] for n in names])
        ):
            found[names] = how
            taken |= set(names)
    return found


def side_by_side(tensors: Sequence[Tensor]) -> tuple[int, list[tuple[int, tuple[int, ...]]]]:
    """(elements, (first element, strides in elements) of each) where a row holds one row of each tensor.

    A row is what lies along all axes but the first.
    """
    widths = [tensor[0].numel() for tensor in tensors]
    places, first = [], 0
    for tensor, width in zip(tensors, widths, strict=True):
        places.append((first, (sum(widths), *dense_strides(tuple(tensor.shape))[1:])))
        first += width
    return sum(widths) * len(tensors[0]), places


def impose(
    allowed: Allowed, shared: Shared, number: int, tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors, with values as a launch of that `layout` number needs them.

    An expanded tensor has its first row throughout, tensors that are one have the values of the first.
    """
    given = dict(tensors)
    for names in shared:
        if choose_sharing(shared, number, names) == "one tensor" and set(names) <= set(given):
            first = given[names[0]]
            same = all(_alike(first, given[name]) for name in names)
            given |= dict.fromkeys(names, first) if same else {}
    for name in allowed:
        tensor = given.get(name)
        if tensor is None or choose(allowed, number, name) != "expanded":
            continue
        if tensor.dim() and tensor.numel() and tensor.is_contiguous():
            codes = bits(tensor)
            given[name] = codes[:1].expand(codes.shape).contiguous().view(tensor.dtype)
    return given


def describe(
    allowed: Allowed,
    number: int,
    tensors: Mapping[str, Tensor],
    shared: Shared = MappingProxyType({}),
) -> tuple[str, ...]:
    """The same in words, a text each: ("k, v side by side", "x transposed")."""
    together = share(shared, number, tensors)
    taken = {name for names in together for name in names}
    apart = sorted(set(lay(allowed, number, tensors)) - taken)
    return (
        *(f"{', '.join(names)} {how}" for names, how in together.items()),
        *(f"{name} {choose(allowed, number, name)}" for name in apart),
    )


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a dense tensor of that shape."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def padded_rows(shape: tuple[int, ...], padding: int) -> tuple[int, ...]:
    """Strides with `padding` foreign elements after each row; a tensor of one axis has no rows."""
    if padding == 0 or len(shape) < 2:
        return dense_strides(shape)
    return (*dense_strides((*shape[:-1], shape[-1] + padding))[:-1], 1)


def _laid(layout: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor of that shape, which has no empty axis."""
    dense = dense_strides(shape)
    if layout == "padded rows":
        return padded_rows(shape, _ROW_PADDING)
    if layout == "padded outer axes":
        if len(shape) < 3:
            return dense
        # As if each matrix had one more row, and each axis around it one more element.
        outer = [n + 1 for n in shape[:-1]]
        return (*dense_strides((*outer, shape[-1]))[:-2], *dense[-2:])
    if layout == "every second element":
        return tuple(2 * step for step in dense)
    if layout == "transposed":
        if len(shape) < 2:
            return dense
        *outer_axes, rows, columns = shape
        *outer_steps, row, column = dense_strides((*outer_axes, columns, rows))
        return (*outer_steps, column, row)
    if layout == "expanded":
        return (0, *dense[1:]) if shape else dense
    raise ValueError(f"unknown layout {layout!r}: there are {', '.join(LAYOUTS)}")


def _can_share(how: str, tensors: Sequence[Tensor]) -> bool:
    first = tensors[0]
    if not all(one.numel() and one.is_contiguous() and one.dtype == first.dtype for one in tensors):
        return False
    if how == "one tensor":
        return all(_alike(first, one) and bool((bits(one) == bits(first)).all()) for one in tensors)
    return all(one.dim() > 1 and len(one) == len(first) > 1 for one in tensors)


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _repeats(tensor: Tensor) -> bool:
    """Whether the bits are the same all along the first axis."""
    codes = bits(tensor)
    return bool((codes == codes[:1]).all())
