"""The published table of functions: the page is that of its data, and each worst input shows its error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

from bitproof.harness import lanes
from bitproof.harness.sweep import functions, page, table
from bitproof.harness.sweep.errors import Largest
from bitproof.harness.sweep.functions import Row, list_rows
from bitproof.harness.sweep.table import Run
from bitproof.oracles import formats
from tests.oracles.test_elementary import exact

DOCS = Path(__file__).parents[2] / "docs"
TABLE = table.read(DOCS / "functions.json")
ROWS = {row.name: row for row in list_rows()}


def worst(run: Run) -> Iterator[tuple[Row, Largest]]:
    """Every largest error of a run with its row."""
    for name, measured in run.rows.items():
        if measured.errors is not None:
            for sides in (measured.errors.normal, measured.errors.subnormal):
                for largest in sides.values():
                    yield ROWS[name], largest


def test_the_page_is_that_of_the_data() -> None:
    """`bitproof functions --data docs/functions.json --markdown docs/functions.md` writes it."""
    assert page.render(TABLE, sample=functions.SAMPLE) == (DOCS / "functions.md").read_text()


@pytest.mark.parametrize("run", TABLE.runs, ids=lambda run: run.lane)
def test_every_row_is_answered_or_says_why_not(run: Run) -> None:
    """No row of the program is missing from a run."""
    assert set(run.rows) == set(ROWS)
    assert all(row.errors is not None or row.lacking for row in run.rows.values())


@pytest.mark.parametrize("run", TABLE.runs, ids=lambda run: run.lane)
def test_every_worst_input_has_the_error_that_is_told(run: Run) -> None:
    """In 80 digits, by mpmath or as the number itself, and by steps counted here."""
    compared = 0
    for row, largest in worst(run):
        operands = [
            page.decode(bits, name) for bits, name in zip(largest.inputs, row.operands, strict=True)
        ]
        right = mpmath.mpf(operands[0]) if row.converts else exact(row.name, *operands)
        got = page.decode(largest.got, row.result)
        if right is None or not math.isfinite(got):
            continue
        info = torch.finfo(functions.TYPES[row.result])
        with mpmath.workdps(80):
            exponent = mpmath.floor(mpmath.log(abs(right), 2)) if right else -math.inf
            step = max(mpmath.mpf(2) ** exponent, mpmath.mpf(info.smallest_normal)) * info.eps
            ulps = float(abs(got - right) / step)
        assert ulps == pytest.approx(largest.ulps, rel=1e-6, abs=1e-6), (row.name, largest)
        compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    "run", [run for run in TABLE.runs if run.lane == "interpreter"], ids=lambda run: run.lane
)
def test_this_lane_gives_the_results_that_are_told_of_it(run: Run) -> None:
    """Whatever versions are installed: what the lane computes does not depend on them."""
    for row, largest in worst(run):
        patterns = [
            np.array([int(bits, 16)], dtype=f"u{functions.TYPES[name].itemsize}")
            for bits, name in zip(largest.inputs, row.operands, strict=True)
        ]
        operands = tuple(
            torch.from_numpy(pattern.view(f"i{pattern.itemsize}")).view(functions.TYPES[name])
            for pattern, name in zip(patterns, row.operands, strict=True)
        )
        (got,) = formats.bits(functions.evaluate(row, lanes.present(), operands))
        assert int(got) == int(largest.got, 16), (row.name, largest)
