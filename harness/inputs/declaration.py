"""All inputs of a contract together: which dimensions there are, what decides them, what does not fit."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bitproof.harness.fields import show
from bitproof.harness.inputs.axes import Axis, Size, extent, names_in
from bitproof.harness.inputs.declared import (
    Choice,
    Index,
    Input,
    Integer,
    Offsets,
    Parameter,
    Real,
    Tensor,
)
from bitproof.harness.layouts import Layout

# The largest sizes where a contract names none: rows are often programs, which the interpreter runs in turn.
_ROWS, _COLUMNS = 40, 1100

# What every case has beside its inputs.
_RESERVED = ("launch", "seed", "tensors", "params", "features", "declaration")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The inputs, the parameters, and the ranges of the dimensions that `sizes` names."""

    name: str
    inputs: Mapping[str, Input]
    params: Mapping[str, Parameter] = field(default_factory=dict)
    sizes: Mapping[str, Size] = field(default_factory=dict)

    def of_kind(self, kind: type[Any]) -> dict[str, Any]:
        """The inputs of one kind by name: tensors, indices or offsets."""
        return {name: one for name, one in self.inputs.items() if isinstance(one, kind)}

    def numbers(self) -> frozenset[str]:
        """The parameters that axes may name: integers."""
        return frozenset(name for name, one in self.params.items() if type(simplest_of(one)) is int)

    def derived(self) -> dict[str, str]:
        """The dimensions whose sizes follow from offsets: the offsets' name by dimension."""
        found: dict[str, str] = {}
        for name, offsets in self.of_kind(Offsets).items():
            found |= {offsets.of: name, offsets.count: name}
        return found

    def axes(self) -> dict[str, tuple[Axis, ...]]:
        """The axes of each input by name."""
        return {name: axes_of(one) for name, one in self.inputs.items()}

    def free(self) -> dict[str, Size]:
        """The dimensions that a case decides, each with its range, in the order in which they are named."""
        derived, numbers = self.derived(), self.numbers()
        leading: dict[str, bool] = {}
        for axes in self.axes().values():
            for place, axis in enumerate(axes):
                for name in names_in(axis):
                    leading[name] = leading.get(name, True) and place == 0 and axis == name
        for index in self.of_kind(Index).values():
            leading[index.into] = False
        rows = {axes[0] for axes in self.axes().values() if len(axes) > 1}
        return {
            name: self._range(name, may_be_empty=first, rows=first and name in rows)
            for name, first in leading.items()
            if name not in derived and name not in numbers
        }

    def _range(self, name: str, *, may_be_empty: bool, rows: bool) -> Size:
        size = self.sizes.get(name, Size())
        lowest = size.least if size.least is not None else (0 if may_be_empty else size.multiple)
        least = -(-lowest // size.multiple) * size.multiple
        usual = max(_ROWS if rows else _COLUMNS, least)
        return Size(
            least=least, most=usual if size.most is None else size.most, multiple=size.multiple
        )

    def layouts(self) -> dict[str, tuple[Layout, ...]]:
        """The layouts beyond dense of the tensors that have any."""
        return {name: one.layouts for name, one in self.of_kind(Tensor).items() if one.layouts}

    def strided(self) -> frozenset[str]:
        """The tensors whose rows may be apart."""
        return frozenset(name for name, one in self.layouts().items() if "padded rows" in one)

    def inplace(self) -> frozenset[str]:
        """The tensors that the kernel writes."""
        return frozenset(name for name, one in self.of_kind(Tensor).items() if one.inplace)


def axes_of(one: Input) -> tuple[Axis, ...]:
    """The axes of a declared input."""
    if not isinstance(one, Offsets):
        return one.axes
    return (f"{one.count} + 1" if one.form == "bounds" else one.count,)


def simplest_of(parameter: Parameter) -> Any:
    """The plainest value of a declared parameter; a value stands for itself."""
    if isinstance(parameter, Choice):
        return parameter.values[0]
    if isinstance(parameter, Integer):
        return max(parameter.least, min(0, parameter.most))
    if isinstance(parameter, Real):
        return float(parameter.least if parameter.usual is None else parameter.usual)
    return parameter


def find_contradictions(declaration: Declaration) -> Iterator[str]:
    """What the inputs say against each other, a sentence each."""
    derived, numbers, free = declaration.derived(), declaration.numbers(), declaration.free()
    tensors = declaration.of_kind(Tensor)
    if not declaration.inputs:
        yield "inputs is empty: declare each tensor of the launcher by name"
    taken: dict[str, str] = {}
    for what, names in (
        ("an input", declaration.inputs),
        ("a parameter", declaration.params),
        ("a dimension", {**free, **derived}),
    ):
        for name in names:
            if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
                yield f"{what} is called {show(name)}: it must be a name as Python has them"
            elif name in _RESERVED or name.startswith("_"):
                yield f"{what} is called {name!r}, which every case has already: choose another"
            elif name in taken:
                yield f"{name!r} is {taken[name]} and {what}: give one of the two another name"
            taken[str(name)] = what
    for name, one in tensors.items():
        if one.like is not None and (one.like not in tensors or tensors[one.like].like is not None):
            yield f"{name!r} is to be like {one.like!r}, which is no tensor with types of its own"
    cut = [offsets.of for offsets in declaration.of_kind(Offsets).values()]
    for name in sorted({name for name in cut if cut.count(name) > 1}):
        yield f"two offsets cut {name!r}: its size can follow from one only"
    for name in sorted(set(declaration.sizes) - set(free)):
        why = "its offsets decide it" if name in derived else "no input has that dimension"
        yield f"sizes names {name!r}, but {why}"
    for name, index in declaration.of_kind(Index).items():
        if index.into not in {*free, *derived} and index.into not in numbers:
            yield f"{name!r} picks from {index.into!r}, which is no dimension of an input"


def measure(declaration: Declaration, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input where dimensions and parameters have those `sizes`; ValueError as `extent`."""
    return tuple(extent(axis, sizes) for axis in axes_of(declaration.inputs[name]))
