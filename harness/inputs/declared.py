"""What a contract says of each input: tensors over named dimensions, offsets, indices, plain parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch

from bitproof.harness.fields import (
    inspect_choice,
    inspect_choices,
    inspect_count,
    inspect_text,
    inspect_tuple,
    reject,
    show,
)
from bitproof.harness.inputs.axes import Axis, names_in
from bitproof.harness.layouts import LAYOUTS, Layout
from bitproof.harness.strategies.fills import EVERY_KIND, KINDS, Kind, takes

Form = Literal["bounds", "ends", "lengths"]
Cut = Literal["sequences", "experts"]


@dataclass(frozen=True, init=False)
class Tensor:
    """A tensor of values over `axes`, dimensions by name: `Tensor("rows", "n", dtypes=(torch.bfloat16,))`.

    axes      a dimension's name, a number, or a sum or product of those: "n", 64, "2 * n", "n // 32"
    dtypes    the types that it may have; the first is the simplest
    like      the tensor that it always shares its type with, in place of `dtypes`
    kinds     the kinds of data that it may hold (`harness.strategies.fills`)
    scales    the least and the largest k of the powers 2^k that values may be times; half of the cases have 0
    between   the least and the largest value, in place of kinds and scales
    layouts   how it may lie in memory beyond dense (`harness.layouts`)
    inplace   whether the kernel writes it
    """

    axes: tuple[Axis, ...]
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    like: str | None = None
    kinds: tuple[Kind, ...] = KINDS
    scales: tuple[int, int] = (-8, 8)
    between: tuple[float, float] | None = None
    layouts: tuple[Layout, ...] = ()
    inplace: bool = False

    def __init__(
        self,
        *axes: Axis,
        dtypes: tuple[torch.dtype, ...] = (torch.float32,),
        like: str | None = None,
        kinds: tuple[Kind, ...] = KINDS,
        scales: tuple[int, int] = (-8, 8),
        between: tuple[float, float] | None = None,
        layouts: tuple[Layout, ...] = (),
        inplace: bool = False,
    ) -> None:
        """SpecError for a type, a kind or a layout that there is not."""
        for name, value in locals().copy().items():
            if name != "self":
                object.__setattr__(self, name, value)
        reject("Tensor", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        yield from inspect_axes(self.axes)
        yield from inspect_types("dtypes", self.dtypes)
        if self.like is not None:
            yield from inspect_text("like", self.like, "the name of a tensor")
        yield from inspect_choices("kinds", self.kinds, EVERY_KIND)
        if not self.kinds:
            yield "kinds is empty: name at least one"
        yield from inspect_range("scales", self.scales, int)
        if not all(-80 <= k <= 80 for k in self.scales):
            yield f"scales must lie from -80 to 80, got {self.scales}"
        if self.between is not None:
            yield from inspect_range("between", self.between, (int, float))
        yield from inspect_choices("layouts", self.layouts, LAYOUTS)


@dataclass(frozen=True, init=False)
class Index:
    """Integers over `axes` that pick rows of the dimension `into`: each from 0 to its size less 1.

    unique    whether no row is picked twice: along the last axis, which is then no longer than `into`
    padding   a value such as -1 that some of them have instead, None for none
    """

    axes: tuple[Axis, ...]
    into: str
    dtype: torch.dtype = torch.int64
    unique: bool = False
    padding: int | None = None

    def __init__(
        self,
        *axes: Axis,
        into: str,
        dtype: torch.dtype = torch.int64,
        unique: bool = False,
        padding: int | None = None,
    ) -> None:
        """SpecError for what picks nothing."""
        for name, value in locals().copy().items():
            if name != "self":
                object.__setattr__(self, name, value)
        reject("Index", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        yield from inspect_axes(self.axes)
        yield from inspect_text("into", self.into, "the name of a dimension")
        if self.dtype not in _INDICES:
            yield f"dtype must be torch.int32 or torch.int64, got {self.dtype}"
        if self.padding is not None and self.padding >= 0:
            yield f"padding must be below 0, where no row is, got {self.padding}"


@dataclass(frozen=True, kw_only=True)
class Offsets:
    """Where the parts of a dimension begin and end, one tensor of integers for all of them.

    of       the dimension that is cut, whose size follows from the parts
    count    the dimension that counts the parts
    parts    "sequences", whose lengths lie next to chunks' ends, or "experts", next to tiles'
    form     "bounds" [count + 1], from 0 to the last end, as `cu_seqlens`; "ends" [count]; "lengths" [count]
    block    tokens of a chunk or of a tile
    most     rows at most, in all of the sequences or in each expert
    least    rows of each part at least: 0 for parts that may be empty
    slack    whether the dimension may have rows past the last part
    """

    of: str
    count: str = "sequences"
    parts: Cut = "sequences"
    form: Form = "bounds"
    dtype: torch.dtype = torch.int32
    block: int = 64
    most: int = 200
    least: int = 0
    slack: bool = False

    def __post_init__(self) -> None:
        """SpecError for parts, a form or a type that there is not."""
        reject("Offsets", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        yield from inspect_text("of", self.of, "the name of a dimension")
        yield from inspect_text("count", self.count, "the name of a dimension")
        yield from inspect_choice("parts", self.parts, get_args(Cut))
        yield from inspect_choice("form", self.form, get_args(Form))
        if self.dtype not in _INDICES:
            yield f"dtype must be torch.int32 or torch.int64, got {self.dtype}"
        for name, least in (("block", 2), ("most", 1), ("least", 0)):
            yield from inspect_count(name, getattr(self, name), least)


Input = Tensor | Index | Offsets


@dataclass(frozen=True, init=False)
class Choice:
    """A parameter that is one of `values`, plain ones; the first is the simplest."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        """SpecError for no values, and for ones that are not plain and of one type."""
        object.__setattr__(self, "values", values)
        reject("Choice", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        if not self.values:
            yield "there is nothing to choose from: give at least one value"
        for value in self.values:
            if not isinstance(value, (bool, int, float, str)):
                yield f"a value must be a number, text, True or False, got {show(value)}"
        if len({type(value) for value in self.values}) > 1:
            yield f"the values must be of one type, got {self.values}"


@dataclass(frozen=True)
class Integer:
    """A parameter that is an integer from `least` to `most`."""

    least: int
    most: int

    def __post_init__(self) -> None:
        """SpecError for ends that are no integers in ascending order."""
        reject("Integer", inspect_range("range", (self.least, self.most), int))


@dataclass(frozen=True)
class Real:
    """A parameter that is a float from `least` to `most`; `usual` is the simplest, by default the least."""

    least: float
    most: float
    usual: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """SpecError for ends that are no finite numbers in ascending order."""
        reject("Real", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        wrong = list(inspect_range("range", (self.least, self.most), (int, float)))
        yield from wrong
        if not wrong and self.usual is not None and not self.least <= self.usual <= self.most:
            yield f"usual must lie from {self.least} to {self.most}, got {self.usual}"


Parameter = Choice | Integer | Real | bool | int | float | str

_INDICES = (torch.int32, torch.int64)


def inspect_axes(axes: tuple[Any, ...]) -> Iterator[str]:
    """Axes must be numbers from 0 upwards, or text that names dimensions."""
    for axis in axes:
        if isinstance(axis, bool) or not isinstance(axis, (int, str)):
            yield f'an axis must be a name, such as "rows", or a number, got {show(axis)}'
        elif isinstance(axis, int):
            yield from inspect_count("an axis", axis, 0)
        else:
            try:
                names_in(axis)
            except ValueError as error:
                yield str(error)


def inspect_types(name: str, value: Any) -> Iterator[str]:
    """Types must be a tuple of torch types that can be filled."""
    wrong = list(inspect_tuple(name, value, torch.dtype))
    yield from wrong
    if not wrong and not value:
        yield f"{name} is empty: name at least one"
    for dtype in () if wrong else value:
        if not takes(dtype):
            yield f"{name} names {dtype}, of which no values can be drawn"


def inspect_range(name: str, value: Any, kind: type | tuple[type, ...]) -> Iterator[str]:
    """A range must be two finite numbers of a kind in ascending order."""
    if (
        not isinstance(value, tuple)
        or len(value) != 2
        or not all(isinstance(end, kind) and not isinstance(end, bool) for end in value)
        or not all(math.isfinite(end) for end in value)
        or value[0] > value[1]
    ):
        yield f"{name} must be two numbers in ascending order, got {show(value)}"
