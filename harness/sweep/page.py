"""The table of functions as a page in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bitproof.harness.sweep.errors import Errors, Largest
from bitproof.harness.sweep.functions import Row, list_rows
from bitproof.harness.sweep.table import Measured, Run, Table
from bitproof.oracles import formats

_HEAD = """# The largest error of every function and conversion

For each elementary function and each conversion between floats that Triton has: how far its result may be
from the exact value, and the input that shows it. `bitproof functions` measures it and writes this page;
the numbers are in [functions.json](functions.json).

An *ulp* is the distance between the numbers of the result's type around the exact value. Half an ulp is a
correctly rounded result. *Toward zero* and *away* are the largest errors of results that are too small and
too large in magnitude; where one of them is 0, all errors lie on one side. An infinity counts as one step
beyond the largest number. Exact values are computed in float64, whose own error is below 2^-26 ulp of fp32.
*Subnormal* has the larger of both where an argument or the exact value is subnormal: 8388608 ulp mean that
subnormal numbers are taken for zero.

*Inputs*: "all" is every bit pattern; "4 of every 4,096" takes of each 4096 consecutive patterns the first
two, the last and a hashed one, so that the ties of every narrower type are among them; of several operands,
and of fp64, {sample} are hashed: any patterns, numbers near 1, and numbers beside ties or whose sum nearly
cancels.

*Beyond* says what becomes of numbers whose magnitude rounds past the largest of the type, and of infinities
where that differs. *NaN* counts the inputs where a NaN is right and a number came ("lost"), and the reverse
("made").

The interpreter lane rounds once what a GPU approximates, and follows what the compiler puts around it:
[interpreter](interpreter.md).
"""
_FIELDS = (
    "| function | inputs | largest error | at | toward zero | away | subnormal | beyond | NaN |"
)
_RULE = "| --- | --- | ---: | --- | ---: | ---: | ---: | --- | --- |"


def render(table: Table, *, sample: int) -> str:
    """The page, a section for each run; `sample` is how many inputs a hashed sample has."""
    sections = [_HEAD.replace("{sample}", f"{sample:,}")]
    sections += ["\n".join(_render_run(run)) + "\n" for run in table.runs]
    return "\n".join(sections)


def largest(errors: Errors) -> Largest:
    """The larger error of both sides, where all numbers are normal."""
    return max(errors.normal.values(), key=lambda one: one.ulps, default=Largest())


def decode(pattern: str, name: str) -> float:
    """The value of a bit pattern in hexadecimal, of the type `name`."""
    code = int(pattern, 16)
    if name == "fp64":  # which oracles compute in: no format of theirs
        return float(np.array(code, dtype=np.uint64).view(np.float64))
    return float(formats.decode(np.array(code), formats.by_name(name)))


def _render_run(run: Run) -> Iterator[str]:
    told = [f"{name} {run.versions[name]}" for name in ("torch", "triton") if name in run.versions]
    where = [run.versions[name] for name in ("card",) if name in run.versions]
    yield f"## Lane {run.lane}"
    yield ""
    yield ", ".join([*where, *told]) + "."
    yield ""
    yield _FIELDS
    yield _RULE
    lacking: dict[str, list[str]] = {}
    for row in list_rows():
        measured = run.rows.get(row.name)
        if measured is None:
            continue
        if measured.errors is None:
            lacking.setdefault(measured.lacking, []).append(row.name)
        else:
            yield _render_row(row, measured, measured.errors)
    if lacking:
        yield ""
        yield "No answer:"
        yield ""
        for why, names in lacking.items():
            yield f"* {', '.join(names)}: {why}"


def _render_row(row: Row, measured: Measured, errors: Errors) -> str:
    worst = largest(errors)
    at = ", ".join(
        f"{_round(decode(pattern, name))} (`{pattern}`)"
        for pattern, name in zip(worst.inputs, row.operands, strict=False)
    )
    sides = [errors.normal.get(side, Largest()).ulps for side in ("toward", "away")]
    tiny = max((one.ulps for one in errors.subnormal.values()), default=0.0)
    cells = [
        row.name,
        measured.inputs,
        _count_ulps(worst.ulps),
        at or "exact",
        *(_count_ulps(ulps) for ulps in sides),
        _count_ulps(tiny),
        _tell_beyond(errors),
        _tell_nan(errors),
    ]
    return f"| {' | '.join(cells)} |"


def _tell_beyond(errors: Errors) -> str:
    beyond, infinite = " or ".join(errors.beyond), " or ".join(errors.infinite)
    if beyond and infinite and beyond != infinite:
        return f"{beyond}; infinity gives {infinite}"
    if infinite not in ("", "infinity") and not beyond:
        return f"infinity gives {infinite}"
    return beyond


def _tell_nan(errors: Errors) -> str:
    told = [
        f"{count:,} {name}, first at {', '.join(f'`{bits}`' for bits in errors.nan_at[name])}"
        for name, count in (("lost", errors.nan_lost), ("made", errors.nan_made))
        if count
    ]
    return "; ".join(told)


def _count_ulps(ulps: float) -> str:
    """Rounded up, so that no error is above what is said: to four decimals, large ones to a whole."""
    if ulps == 0:
        return "0"
    if ulps < 1e4:
        return f"{math.ceil(ulps * 1e4 - 1e-6) / 1e4:g}" if ulps > 1e-4 else "< 0.0001"
    return f"{math.ceil(ulps)}" if ulps < 1e8 else f"{ulps:.2g}"


def _round(value: float) -> str:
    return f"{value:.6g}"
