"""Cases of the quantisers that take a matrix in groups along its rows."""

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
from bitproof.harness.strategies.content import content, widened
from bitproof.harness.strategies.sizes import length
from bitproof.harness.strategies.values import (
    INPUT_TYPES,
    QUANTISER_KINDS,
    Dtype,
    Kind,
    Values,
    values,
)

BLOCKS = (1024, 128, 512)
_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000


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
    launch: Launch = Launch(block=BLOCKS[0])

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
        magnitude = widened(x) & _MAGNITUDE
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
        return self._explicit([widened(self.tensors(torch.device("cpu"))["x"])[index]])

    def _explicit(self, words: Sequence[int]) -> MatrixCase:
        bits = tuple(floats.hexadecimal(int(word)) for word in words)
        values = Values(kind="explicit", bits=bits, target=self.values.target)
        return replace(self, rows=1, columns=len(bits), values=values, launch=MatrixCase().launch)

    def narrow(self, output: str | None, index: tuple[int, ...]) -> MatrixCase:
        """One row of the few elements that decide `output[index]`: its own, the group's amax, a NaN."""
        row = widened(self.tensors(torch.device("cpu"))["x"])[index[0]]
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


_DESCRIBED = 1 << 14


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
    launch = draw(launches.launches(BLOCKS, strided=strided))
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
