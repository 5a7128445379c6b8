"""Offsets multiplied in 32 bits are reported in small tensors, where a contract allows large ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness import checks, lanes
from bitproof.harness.case import Inputs
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.spec import Params, Tensors
from tests.harness.plain import SPEC

ROWS, COLUMNS = 4, 8


@triton.jit
def _copy(x, y, starts, columns, heads, HOW: tl.constexpr, N: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, N)
    tile = row
    if HOW == "row in 64 bits":
        place = row.to(tl.int64) * columns + i
    elif HOW == "pointer in 64 bits":
        x += row.to(tl.int64) * columns
        y += row.to(tl.int64) * columns
        place = i
    elif HOW == "elements of a row's number in 64 bits":
        number = row * 2 // 2 + i * 0
        place = number.to(tl.int64) * columns + i
    elif HOW == "few heads":
        place = (row // heads).to(tl.int64) * (heads * columns) + row % heads * columns + i
    elif HOW == "row":
        place = row * columns + i
    elif HOW == "shifted":
        place = (row << 3) + i
    elif HOW == "widened late":
        place = (row * columns + i).to(tl.int64)
    elif HOW == "loaded":
        place = tl.load(starts + row) * columns + i
    elif HOW == "picked":
        all_starts = tl.load(starts + tl.arange(0, 4))
        place = tl.sum(tl.where(tl.arange(0, 4) == row, all_starts, 0), 0) * columns + i
    elif HOW == "picked, in 64 bits":
        all_starts = tl.load(starts + tl.arange(0, 4))
        chosen = tl.sum(tl.where(tl.arange(0, 4) == row, all_starts, 0), 0)
        place = chosen.to(tl.int64) * columns + i
    elif HOW == "few tiles":
        tile = row * 2 + i // 4
        place = tile * 4 + i % 4
    tl.store(y + place, tl.load(x + place, tile < 8 if HOW == "few tiles" else i < N) * 2.0)


def _launcher(how: str) -> Callable[[Tensors, Params], Any]:
    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        x = tensors["x"]
        y = torch.empty_like(x)
        columns = COLUMNS if x.dim() == 2 else 8
        _copy[(x.numel() // columns,)](x, y, tensors["starts"], columns, 2, HOW=how, N=columns)
        return {"y": y}

    return run


def judge(how: str, *, vast: bool = True, flat: bool = False) -> CheckResult:
    """What memory finds in 4 rows of 8."""
    x = torch.arange(32.0).reshape((-1,) if flat else (ROWS, COLUMNS))
    named = frozenset({"x"}) if vast else frozenset[str]()
    spec = dataclasses.replace(SPEC, run=_launcher(how), vast=named)
    inputs = Inputs(tensors={"x": x, "starts": torch.arange(4, dtype=torch.int32)}, params={})
    return checks.run("memory", spec, inputs, lanes.present())


@pytest.mark.parametrize("how", ["row", "shifted", "widened late", "loaded", "picked"])
@pytest.mark.parametrize("flat", [False, True])
def test_a_product_in_32_bits_is_reported(how: str, flat: bool) -> None:
    """Of a program's number or of what is loaded, and only of a tensor that may be large."""
    found = judge(how, flat=flat)
    assert found.outcome is Outcome.FAILED
    assert "is multiplied in 32 bits" in found.text
    assert judge(how, vast=False, flat=flat).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    "how",
    [
        "row in 64 bits",
        "pointer in 64 bits",
        "elements of a row's number in 64 bits",
        "few heads",
        "picked, in 64 bits",
        "few tiles",
    ],
)
def test_offsets_in_64_bits_hold(how: str) -> None:
    """Also where the number of a row, or of a head among few, is made in 32 bits."""
    assert judge(how).outcome is Outcome.PASSED


@triton.jit
def _walk(x, w, y, starts, rows, columns, heads, HOW: tl.constexpr, N: tl.constexpr):
    """y = 2 x + w, a row at a time, or its heads one after another, or its tiles."""
    i, TILE = tl.arange(0, N), N // 2
    j = tl.arange(0, TILE)
    if HOW == "rows":
        for row in range(rows):
            tl.store(y + row * columns + i, tl.load(x + row * columns + i) * 2)
    elif HOW == "rows in pairs":
        for first in tl.range(0, rows, 2):
            place = (first + tl.arange(0, 2))[:, None] * columns + i[None, :]
            tl.store(y + place, tl.load(x + place) * 2)
    elif HOW == "from a loaded row to another":
        for row in range(tl.load(starts), tl.load(starts + 3) + 1):
            tl.store(y + row * columns + i, tl.load(x + row * columns + i) * 2)
    elif HOW == "rows of this program":
        for row in range(tl.program_id(0), rows, tl.num_programs(0)):
            tl.store(y + row * columns + i, tl.load(x + row * columns + i) * 2)
    elif HOW == "rows in 64 bits":
        for row in range(rows):
            place = row.to(tl.int64) * columns + i
            tl.store(y + place, tl.load(x + place) * 2)
    elif HOW == "rows by moved pointers":
        for _ in range(rows):
            tl.store(y + i, tl.load(x + i) * 2)
            x += columns
            y += columns
    elif HOW == "tiles of a row":
        row = tl.program_id(0).to(tl.int64) * columns
        for tile in range(tl.cdiv(columns, TILE)):
            tl.store(y + row + tile * TILE + j, tl.load(x + row + tile * TILE + j) * 2)
    elif HOW == "heads of a row":
        row = tl.program_id(0).to(tl.int64) * columns
        width = columns // heads
        for head in range(heads):
            place = row + head * width + j
            tl.store(y + place, tl.load(x + place, j < width) * 2, j < width)
    elif HOW == "rows of weights":
        row = tl.program_id(0).to(tl.int64) * columns
        total = tl.load(x + row + i) * 2
        for k in range(rows):
            total += tl.load(w + k * columns + i)
        tl.store(y + row + i, total)


def walk(how: str, tokens: int = ROWS) -> CheckResult:
    """What memory finds in a loop over x [tokens, 2, 4] or over weights of 4 rows."""

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        x = tensors["x"]
        y = torch.empty_like(x)
        given = (tensors["w"], y, tensors["starts"])
        grid = (1 if how.startswith("rows") and how != "rows of weights" else tokens,)
        rows = 4 if how == "rows of weights" else tokens
        _walk[grid](x, *given, rows, COLUMNS, 2, HOW=how, N=COLUMNS)
        return {"y": y}

    spec = dataclasses.replace(SPEC, run=run, vast=frozenset({"x"}))
    x = torch.arange(tokens * 8.0).reshape(tokens, 2, 4)
    starts = torch.arange(4, dtype=torch.int32)
    inputs = Inputs(tensors={"x": x, "w": torch.zeros(4, 8), "starts": starts}, params={})
    return checks.run("memory", spec, inputs, lanes.present())


@pytest.mark.parametrize(
    "how", ["rows", "rows in pairs", "from a loaded row to another", "rows of this program"]
)
def test_a_loop_s_variable_multiplied_in_32_bits_is_reported(how: str) -> None:
    """Whatever it begins at."""
    found = walk(how)
    assert found.outcome is Outcome.FAILED, found
    assert "is multiplied in 32 bits" in found.text


@pytest.mark.parametrize("tokens", [1, ROWS])
@pytest.mark.parametrize(
    "how",
    [
        "rows in 64 bits",
        "rows by moved pointers",
        "tiles of a row",
        "heads of a row",
        "rows of weights",
    ],
)
def test_a_loop_within_a_row_holds(how: str, tokens: int) -> None:
    """Or over the rows of what is never large."""
    assert walk(how, tokens).outcome is Outcome.PASSED
