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
