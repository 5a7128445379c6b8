"""The strategy of a contract's declared inputs: sizes where kernels go wrong, then data, then the launch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hypothesis import strategies as st

from bitproof.harness.case import Launch, Scale
from bitproof.harness.inputs.axes import Size, names_in
from bitproof.harness.inputs.cases import DeclaredCase, Parts, Picks, orders_of
from bitproof.harness.inputs.declaration import Declaration, axes_of, measure, simplest_of
from bitproof.harness.inputs.declared import (
    Choice,
    Index,
    Integer,
    Offsets,
    Parameter,
    Real,
    Tensor,
)
from bitproof.harness.strategies import launches, packed, ragged
from bitproof.harness.strategies.fills import Fill, name_of

# Elements of one tensor at most, and as many times as many in a night on a card.
_ELEMENTS = 4096
_NIGHTLY = 64
# Sequences or experts at most.
_PARTS = 6
# Tiles that kernels have, next to which their edges are.
_EDGES = (16, 32, 64, 128, 256, 512, 1024)
_SMALL = 8

BLOCKS = (128, 64, 256)


@st.composite
def draw_case(
    draw: Any,
    case: type[DeclaredCase],
    blocks: tuple[int, ...] = BLOCKS,
    warm: bool = False,
    scale: Scale = Scale(),
) -> DeclaredCase:
    """A case of a contract that declares its inputs; `blocks` are tile sizes, the default first.

    Where `warm`, it may be a later call of an object.

    Shrinks toward the smallest sizes, ordinary data of the first type, seed 0 and the first block.
    """
    declaration = case.declaration
    cap = _ELEMENTS * (_NIGHTLY if scale.on_card and scale.nightly else 1)
    params = {name: draw(_parameter(one)) for name, one in declaration.params.items()}
    parts = {name: draw(_parts(declaration, name)) for name in declaration.of_kind(Offsets)}
    known = {name: params[name] for name in declaration.numbers()}
    for name, offsets in declaration.of_kind(Offsets).items():
        known[offsets.count] = len(parts[name].lengths)
        known[offsets.of] = sum(parts[name].lengths) + parts[name].slack
    free = declaration.free()
    sizes = {name: draw(_extent(size, cap)) for name, size in free.items()}
    sizes = _fit(declaration, sizes, known, cap)
    fills = {name: draw(_fill(one)) for name, one in declaration.of_kind(Tensor).items()}
    picks = {name: draw(_picks(one)) for name, one in declaration.of_kind(Index).items()}
    seed = draw(st.integers(0, 0xFFFF))
    strided, laid = bool(declaration.strided()), bool(declaration.layouts())
    launch: Launch = draw(launches.launches(blocks, strided=strided, layouts=laid, warm=warm))
    made: Any = case  # whose fields no type checker sees
    drawn: DeclaredCase = made(
        **params, **parts, **sizes, **fills, **picks, seed=seed, launch=launch
    )
    return drawn


def cases_of(
    case: type[DeclaredCase], blocks: tuple[int, ...] = BLOCKS, *, warm: bool = False
) -> Any:
    """What a spec's `cases` is: (scale) -> the strategy of such cases, of an object's calls where `warm`."""
    return partial(draw_case, case, blocks, warm)


@st.composite
def _extent(draw: Any, size: Size, cap: int) -> int:
    """A size in its range: few, next to a power of two, or any; either end one time in thirteen."""
    assert size.least is not None
    assert size.most is not None
    step = size.multiple
    top = max(min(size.most, cap) // step * step, size.least)
    edges = [p + d for p in _EDGES for d in (0, 1, -1) if size.least <= p + d <= top]
    first = max(size.least, min(step, top))
    # All are drawn whichever is taken, so that shrinking the choice keeps a number to shrink on.
    anything = draw(st.integers(first, top))
    few = draw(st.integers(first, min(max(first, _SMALL * step), top)))
    edge = draw(st.sampled_from(edges)) if edges else few
    often = ("any",) * 3 + ("few",) * 4 + ("edge",) * 4
    drawn = draw(st.sampled_from((*often, "least", "most")))
    drawn = {"any": anything, "few": few, "edge": edge, "least": size.least, "most": top}[drawn]
    return int(min(-(-drawn // step) * step, top))


def _fit(
    declaration: Declaration, sizes: dict[str, int], known: Mapping[str, int], cap: int
) -> dict[str, int]:
    """The sizes, halved where a tensor would be too large, and where unique indices would run out of rows."""
    free = declaration.free()
    fitted = dict(sizes)
    for name in declaration.inputs:
        while _elements(declaration, name, {**known, **fitted}) > cap:
            own = [
                d
                for axis in axes_of(declaration.inputs[name])
                for d in names_in(axis)
                if d in fitted
            ]
            own = [d for d in own if fitted[d] > max(free[d].least or 0, free[d].multiple)]
            if not own:
                break
            longest = max(own, key=lambda d: fitted[d])
            step, least = free[longest].multiple, free[longest].least or 0
            fitted[longest] = max(fitted[longest] // 2 // step * step, least, step)
    for index in declaration.of_kind(Index).values():
        last = index.axes[-1] if index.axes else ""
        if index.unique and last in fitted:
            fitted[last] = min(fitted[last], {**known, **fitted}[index.into])
    return fitted


def _elements(declaration: Declaration, name: str, sizes: Mapping[str, int]) -> int:
    total = 1
    for extent in measure(declaration, name, sizes):
        total *= extent
    return total


@st.composite
def _parts(draw: Any, declaration: Declaration, name: str) -> Parts:
    offsets: Offsets = declaration.inputs[name]  # type: ignore[assignment]
    if offsets.parts == "sequences":
        drawn = draw(packed.lengths(sequences=_PARTS, most=offsets.most, chunk=offsets.block))
    else:
        drawn = draw(ragged.sizes(groups=_PARTS, most=offsets.most, block=offsets.block))
    lengths = [max(length, offsets.least) for length in drawn]
    picked = any(index.into == offsets.of for index in declaration.of_kind(Index).values())
    if picked and not sum(lengths):
        lengths[0] = 1
    slack = draw(packed.slack(chunk=offsets.block)) if offsets.slack else 0
    return Parts(lengths=tuple(lengths), slack=slack)


@st.composite
def _fill(draw: Any, tensor: Tensor) -> Fill:
    kind = draw(st.sampled_from(tensor.kinds))
    low, high = tensor.scales
    exponent = draw(st.integers(low, high)) if draw(st.booleans()) else max(low, min(0, high))
    dtype = draw(st.sampled_from(tensor.dtypes)) if tensor.like is None else tensor.dtypes[0]
    if tensor.between is not None:
        kind, exponent = tensor.kinds[0], 0
    elif not dtype.is_floating_point:
        exponent = 0
    return Fill(kind=kind, exponent=exponent, dtype=name_of(dtype))


@st.composite
def _picks(draw: Any, index: Index) -> Picks:
    order = draw(st.sampled_from(orders_of(index)))
    return Picks(order=order, padded=index.padding is not None and draw(st.booleans()))


def _parameter(parameter: Parameter) -> st.SearchStrategy[Any]:
    if isinstance(parameter, Choice):
        return st.sampled_from(parameter.values)
    if isinstance(parameter, Integer):
        return st.integers(parameter.least, parameter.most)
    if isinstance(parameter, Real):
        ends = (simplest_of(parameter), float(parameter.least), float(parameter.most))
        between = st.floats(parameter.least, parameter.most, allow_nan=False, allow_subnormal=False)
        return st.one_of(st.sampled_from(ends), between)
    return st.just(parameter)
