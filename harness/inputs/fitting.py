"""Whether tensors that somebody captured are inputs of a contract: shapes, types, offsets and indices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from bitproof.harness.inputs.axes import extent
from bitproof.harness.inputs.declaration import Declaration, axes_of
from bitproof.harness.inputs.declared import Index, Offsets, Tensor

_Tensors = Mapping[str, torch.Tensor]


def types_of(declaration: Declaration) -> dict[str, frozenset[torch.dtype]]:
    """The types that each input may have."""
    found = {}
    for name, one in declaration.inputs.items():
        if isinstance(one, Tensor):
            like = declaration.inputs[one.like] if one.like is not None else one
            found[name] = frozenset(like.dtypes) if isinstance(like, Tensor) else frozenset()
        else:
            found[name] = frozenset({one.dtype})
    return found


def find_misfits(
    declaration: Declaration, tensors: _Tensors, params: Mapping[str, Any]
) -> Iterator[str]:
    """What keeps `tensors` from being the contract's inputs, a sentence each; each is there, of its type."""
    sizes: dict[str, int] = {}
    where: dict[str, str] = {}
    for name, tensor in tensors.items():
        axes = axes_of(declaration.inputs[name])
        if tensor.ndim != len(axes):
            told = ", ".join(str(axis) for axis in axes)
            yield f"tensor {name!r} has shape {list(tensor.shape)}, it must be [{told}]"
            return
        for place, axis in enumerate(axes):
            if not isinstance(axis, str) or not axis.isidentifier():
                continue
            here = f"{name}.shape[{place}]"
            if sizes.setdefault(axis, tensor.shape[place]) != tensor.shape[place]:
                yield (
                    f"{where[axis]} is {sizes[axis]} and {here} {tensor.shape[place]}, but both are "
                    f"{axis!r}"
                )
                return
            where.setdefault(axis, here)
    sizes |= {
        name: params[name] for name in declaration.numbers() if isinstance(params.get(name), int)
    }
    for name, offsets in declaration.of_kind(Offsets).items():
        if name in tensors:
            yield from _misfits_of_offsets(name, offsets, tensors[name], sizes)
            sizes.setdefault(offsets.count, tensors[name].shape[0] - (offsets.form == "bounds"))
    yield from _misfits_of_axes(declaration, tensors, sizes)
    for name, one in declaration.inputs.items():
        if name not in tensors:
            continue
        if isinstance(one, Index) and one.into in sizes:
            yield from _misfits_of_index(name, one, tensors[name], sizes[one.into])
        if isinstance(one, Tensor) and one.like is not None and one.like in tensors:
            kind, other = tensors[name].dtype, tensors[one.like].dtype
            if kind != other:
                yield f"tensor {name!r} is {kind} and {one.like!r} {other}, but both have one type"


def _misfits_of_axes(
    declaration: Declaration, tensors: _Tensors, sizes: Mapping[str, int]
) -> Iterator[str]:
    """Axes that are numbers, sums or products of dimensions."""
    for name, tensor in tensors.items():
        for place, axis in enumerate(axes_of(declaration.inputs[name])):
            try:
                wanted = extent(axis, sizes)
            except ValueError:  # a dimension that no tensor shows by itself
                continue
            if tensor.shape[place] != wanted:
                yield f"{name}.shape[{place}] is {tensor.shape[place]}, but {axis!r} is {wanted}"


def _misfits_of_offsets(
    name: str, offsets: Offsets, tensor: torch.Tensor, sizes: Mapping[str, int]
) -> Iterator[str]:
    told = [int(value) for value in tensor.tolist()]
    if offsets.form == "lengths":
        ends, lengths = [sum(told)], told
    else:
        bounds = told if offsets.form == "bounds" else [0, *told]
        ends, lengths = bounds, [b - a for a, b in itertools.pairwise(bounds)]
        if not bounds or bounds[0] != 0:
            yield f"{name!r} must begin with 0, it holds {told[:4]}"
    for length in lengths:
        if length < offsets.least:
            yield f"{name!r} has a part of {length} rows, they must be at least {offsets.least}"
            break
    rows = sizes.get(offsets.of)
    if ends and rows is not None and (ends[-1] > rows or (ends[-1] < rows and not offsets.slack)):
        yield f"{name!r} ends at row {ends[-1]}, but {offsets.of!r} has {rows}"


def _misfits_of_index(name: str, index: Index, tensor: torch.Tensor, into: int) -> Iterator[str]:
    fits = (tensor >= 0) & (tensor < into)
    if index.padding is not None:
        fits |= tensor == index.padding
    if not bool(fits.all()):
        wrong = int(tensor[~fits].flatten()[0])
        yield f"{name!r} picks row {wrong}, but {index.into!r} has {into}"
    elif index.unique and tensor.numel():
        sorted_rows = tensor.sort(dim=-1).values
        again = sorted_rows[..., 1:] == sorted_rows[..., :-1]
        if bool((again & (sorted_rows[..., 1:] >= 0)).any()):
            yield f"{name!r} picks a row twice, but its rows are unique"
