"""Cases of the quantisers: vectors that are cast, matrices in groups along their rows, one given scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness.case import Launch, Scale
from bitproof.harness.strategies import floats, launches
from bitproof.harness.strategies.content import content, widen
from bitproof.harness.strategies.encoding import Dtype
from bitproof.harness.strategies.sizes import length
from bitproof.harness.strategies.values import (
    CAST_KINDS,
    INPUT_TYPES,
    ONE,
    QUANTISER_KINDS,
    Kind,
    Values,
    values,
)
from bitproof.kernels.quantise.arguments import WIDTH

_CAST_BLOCKS = (1024, 128, 256)
_MATRIX_BLOCKS = (1024, 128, 512)
# Elements that coverage looks at: of a cast, all of what a case sets outright is among them.
_SHOWN, _DESCRIBED = 256, 1 << 14
_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000


@dataclass(frozen=True, kw_only=True)
class CastCase:
    """`count` values of type `dtype`."""

    count: int = 1
    dtype: Dtype = "fp32"
    values: Values = Values(kind="lattice")
    launch: Launch = Launch(block=_CAST_BLOCKS[0])

    @property
    def seed(self) -> int:
        """What a check derives its choices from."""
        return self.values.seed

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """x [count]."""
        return {"x": self.values.build((self.count,), device, dtype=self.dtype)}

    def params(self) -> dict[str, Any]:
        """None."""
        return {}

    def features(self) -> list[str]:
        """What the values contain, the input's type, a tail, the launch."""
        covered = [self.dtype, self.values.kind, *launches.features(self.launch)]
        if self.count % self.launch.block:
            covered.append("tail")
        elif self.count:
            covered.append("whole blocks")
        if self.count > self.launch.block:
            covered.append("several programs")
        if self.count == 0:
            covered.append("empty")
        shown = self.values.build((min(self.count, _SHOWN),), torch.device("cpu"), dtype=self.dtype)
        return covered + content(shown, self.values.target)

    def narrow(self, output: str | None, index: tuple[int, ...]) -> CastCase:
        """The one value at `index`, as its bits."""
        x = self.tensors(torch.device("cpu"))["x"][index]
        bits = (floats.hexadecimal(int(widen(x))),)
        explicit = Values(kind="explicit", bits=bits, target=self.values.target)
        return CastCase(count=1, dtype=self.dtype, values=explicit)


@st.composite
def casts(draw: Any, target: str, *, scale: Scale = Scale()) -> CastCase:
    """Vectors of values around what rounding to `target` decides, and of everything else."""
    launch = draw(launches.launches(_CAST_BLOCKS))
    dtype = draw(st.sampled_from(INPUT_TYPES))
    if draw(st.integers(0, 2)):
        count = draw(length(2100, block=launch.block, scale=scale))
        return CastCase(
            count=count, dtype=dtype, values=draw(values(target, CAST_KINDS)), launch=launch
        )
    bits = tuple(draw(st.lists(floats.patterns(target), min_size=1, max_size=8)))
    explicit = Values(kind="explicit", bits=bits, target=target)
    return CastCase(count=len(bits), dtype=dtype, values=explicit, launch=launch)


def explicit_cast(target: str, bits: tuple[int, ...]) -> CastCase:
    """fp32 values of these bit patterns, to be cast to `target`."""
    patterns = tuple(floats.hexadecimal(word) for word in bits)
    values = Values(kind="explicit", bits=patterns, target=target)
    return CastCase(count=len(bits), values=values)


@dataclass(frozen=True, kw_only=True)
class MatrixCase:
    """A matrix [rows, columns] of type `dtype`, quantised in groups of `group` along its rows.

    `packed` is how many codes share a byte of the output.
    """

    rows: int = 1
    columns: int = 1
    group: int = 128
    packed: int = 1
    dtype: Dtype = "fp32"
    values: Values = Values()
    launch: Launch = Launch(block=_MATRIX_BLOCKS[0])

    @property
    def seed(self) -> int:
        """What a check derives its choices from."""
        return self.values.seed

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """x [rows, columns]."""
        shape = (self.rows, self.columns)
        return {"x": self.values.build(shape, device, dtype=self.dtype, run=self.group)}

    def params(self) -> dict[str, Any]:
        """group, in elements."""
        return {"group": self.group}

    def features(self) -> list[str]:
        """Extents, what the values contain, the input's type, the launch."""
        covered = [self.dtype, self.values.kind, *launches.features(self.launch)]
        if self.rows * self.columns == 0:
            return [*covered, "no rows" if self.rows == 0 else "no columns"]
        if self.columns % self.group:
            covered.append("tail")
        if self.columns > self.group:
            covered.append("two or more groups")
        if self.rows > 1:
            covered.append("two or more rows")
        if self.rows * self.columns > _DESCRIBED:
            return [*covered, "large"]
        x = self.tensors(torch.device("cpu"))["x"]
        return covered + content(x, self.values.target) + self._of_groups(x)

    def _of_groups(self, x: Tensor) -> list[str]:
        magnitude = widen(x) & _MAGNITUDE
        starts = np.arange(0, self.columns, self.group)
        largest = np.maximum.reduceat(magnitude, starts, axis=1)
        found = {
            "zero rows": (magnitude == 0).all(axis=1),
            "zero groups": largest == 0,
            "tiny groups": (largest > 0) & (largest < floats.word("0x2edbe6ff")),
            "zero beside others": ((largest == 0).any() & (largest > 0).any())[None],
        }
        return [name for name, mask in found.items() if mask.any()]

    def element(self, index: tuple[int, ...]) -> MatrixCase:
        """The one element at `index`, as its bits."""
        return self._explicit([widen(self.tensors(torch.device("cpu"))["x"])[index]])

    def _explicit(self, words: Sequence[int]) -> MatrixCase:
        bits = tuple(floats.hexadecimal(int(word)) for word in words)
        values = Values(kind="explicit", bits=bits, target=self.values.target)
        return replace(self, rows=1, columns=len(bits), values=values, launch=MatrixCase().launch)

    def narrow(self, output: str | None, index: tuple[int, ...]) -> MatrixCase:
        """One row of the few elements that decide `output[index]`: its own, the group's amax, a NaN."""
        row = widen(self.tensors(torch.device("cpu"))["x"])[index[0]]
        if output == "scale":
            start, own = index[1] * self.group, row[:0]
        else:
            first = index[1] * self.packed
            start, own = first // self.group * self.group, row[first : first + self.packed]
        group = row[start : start + self.group]
        magnitude = group & _MAGNITUDE
        kept = [*own]
        for deciding in (group[magnitude <= _INFINITY], group[magnitude > _INFINITY]):
            largest = deciding[np.argmax(deciding & _MAGNITUDE)] if deciding.size else None
            if largest is not None and largest not in kept:
                kept.append(largest)
        return self._explicit(kept + [0] * (-len(kept) % self.packed))


@st.composite
def matrices(
    draw: Any,
    target: str,
    *,
    groups: Sequence[int],
    kinds: tuple[Kind, ...] = QUANTISER_KINDS,
    packed: int = 1,
    strided: bool = False,
    scale: Scale = Scale(),
) -> MatrixCase:
    """Matrices of a few rows and up to about 300 columns, `groups[0]` the usual group.

    Shrinks toward one row of one column, the usual group, ordinary values.
    """
    group = draw(st.sampled_from(groups))
    launch = draw(launches.launches(_MATRIX_BLOCKS, strided=strided))
    return MatrixCase(
        rows=draw(length(8, scale=scale)),
        columns=draw(columns(group, packed, scale=scale)),
        group=group,
        packed=packed,
        dtype=draw(st.sampled_from(INPUT_TYPES)),
        values=draw(values(target, kinds)),
        launch=launch,
    )


@cache
@st.composite
def columns(draw: Any, group: int, packed: int, *, scale: Scale = Scale()) -> int:
    """A row's length: any, or next to a multiple of the group; one in ten is 0."""
    choice = draw(st.integers(0, 9))
    if choice % 2:
        size = group * draw(st.integers(1, 3)) + packed * draw(st.sampled_from((0, 1, -1)))
    else:
        size = draw(length(300, step=packed, empty=False, scale=scale))
    return 0 if choice == 9 else int(size)


_PLAIN = MatrixCase(values=Values(kind="lattice"))


@dataclass(frozen=True, kw_only=True)
class StaticCase:
    """A matrix and its scale, as fp32 bits."""

    matrix: MatrixCase = _PLAIN
    scale: str = ONE

    @property
    def launch(self) -> Launch:
        """The matrix's launch configuration."""
        return self.matrix.launch

    @property
    def seed(self) -> int:
        """What a check derives its choices from."""
        return self.matrix.seed

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """x [rows, columns] and scale [1]."""
        scale = Values(kind="constant", bits=(self.scale,)).build((1,), device)
        return {**self.matrix.tensors(device), "scale": scale}

    def params(self) -> dict[str, Any]:
        """None."""
        return {}

    def features(self) -> list[str]:
        """The matrix's, and whether the scale is a power of two."""
        whole = floats.word(self.scale) & 0x7FFFFF == 0
        return [*self.matrix.features(), f"{'a' if whole else 'no'} power of two for scale"]

    def narrow(self, output: str | None, index: tuple[int, ...]) -> StaticCase:
        """The one element at `index`, as its bits, with the scale."""
        return replace(self, matrix=self.matrix.element(index))


@st.composite
def scaled_matrices(draw: Any, *, scale: Scale = Scale()) -> StaticCase:
    """Matrices, half of them of what rounding decides in units of the kernel's scale."""
    unit = draw(_scales())
    matrix = draw(matrices("e4m3", groups=(WIDTH,), kinds=CAST_KINDS, strided=True, scale=scale))
    if matrix.values.kind == "lattice":
        matrix = replace(matrix, values=replace(matrix.values, unit=unit))
    return StaticCase(matrix=matrix, scale=unit)


def _scales() -> st.SearchStrategy[str]:
    """Powers of two, ordinary numbers, anything from 2^-126 to 2^126."""
    powers = st.integers(-20, 20).map(lambda exponent: exponent + 127 << 23)
    ordinary = st.integers(floats.word("0x38000000"), floats.word("0x47000000"))
    extreme = st.integers(floats.word("0x00800000"), floats.word("0x7e800000"))
    return st.one_of(powers, ordinary, extreme).map(floats.hexadecimal)
