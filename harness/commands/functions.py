"""`bitproof functions`: the largest error of each of Triton's functions and conversions, as a table."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import click

from bitproof.harness import lanes
from bitproof.harness.commands import INTERRUPTED
from bitproof.harness.commands.screen import progress
from bitproof.harness.errors import EnvironmentUnfit, UsageError, causes, one_line
from bitproof.harness.lanes.base import Lane, LaunchFailed
from bitproof.harness.report import files
from bitproof.harness.sweep import page, table
from bitproof.harness.sweep.functions import (
    SAMPLE,
    Row,
    count_inputs,
    describe_inputs,
    list_rows,
    measure,
)
from bitproof.harness.sweep.table import Measured, Table
from bitproof.harness.targets.refusals import refuses, sentence

_ENDED = "the process ended while this was measured; --fresh tries it again"


def run(
    names: Sequence[str],
    *,
    exhaustive: bool,
    fresh: bool,
    seconds: int | None,
    data: Path,
    add: Sequence[Path],
    markdown: Path | None,
    lane: str | None,
) -> int:
    """Measure the rows that `data` lacks, a line each, and save it after every one; 1 where rows are left.

    No row is begun after `seconds`. With `add`, nothing is measured: the rows of those files go into `data`.
    """
    held = table.read(data)
    if add:
        for path in add:
            if not path.exists():
                raise UsageError(f"{path} cannot be read: there is no such file")
            held = held.merge(table.read(path))
        table.write(data, held)
    rows = _choose(names)
    left = 0
    if not add:
        lanes.choose(lane)
        here = lanes.present()
        try:
            held, left = _measure(
                held, rows, here, exhaustive=exhaustive, fresh=fresh, seconds=seconds, data=data
            )
        except KeyboardInterrupt:
            click.echo(f"bitproof: interrupted; {data} holds the rows that were done", err=True)
            return INTERRUPTED
    if markdown is not None:
        files.save(markdown, page.render(held, sample=SAMPLE).encode())
    if left:
        click.echo(f"{left} rows are left: run the same command again")
    return 1 if left else 0


def _choose(names: Sequence[str]) -> tuple[Row, ...]:
    rows = {row.name: row for row in list_rows()}
    for name in names:
        if name not in rows:
            known = ", ".join(rows)
            raise UsageError(f"there is no function or conversion {name!r}: choose from {known}")
    return tuple(rows[name] for name in names or rows)


def _measure(
    held: Table,
    rows: Sequence[Row],
    lane: Lane,
    *,
    exhaustive: bool,
    fresh: bool,
    seconds: int | None,
    data: Path,
) -> tuple[Table, int]:
    """(the table with what was measured, how many rows there was no time for)."""
    began = time.monotonic()
    versions = lane.versions()
    for place, row in enumerate(rows):
        run = held.find(lane.name, versions)
        inputs = describe_inputs(row, exhaustive=exhaustive)
        known = run.rows.get(row.name)
        if known is not None and not fresh and known.inputs in ("all", inputs):
            continue
        if seconds is not None and time.monotonic() - began > seconds:
            return held, len(rows) - place
        # A compiler may end the process, and would do so again and again.
        ended = Measured(inputs=inputs, lacking=_ENDED)
        table.write(
            data,
            held.replace(dataclasses.replace(run, rows={**run.rows, row.name: ended})),
        )
        try:
            measured = _measure_row(row, lane, inputs, exhaustive)
        except BaseException:
            table.write(data, held)
            raise
        held = held.replace(
            dataclasses.replace(run, versions=versions, rows={**run.rows, row.name: measured})
        )
        table.write(data, held)
        click.echo(_describe(row, measured))
    return held, 0


def _measure_row(row: Row, lane: Lane, inputs: str, exhaustive: bool) -> Measured:
    try:
        with progress(row.name, count_inputs(row, exhaustive=exhaustive)) as tell:
            errors = measure(row, lane, exhaustive=exhaustive, tell=lambda done: tell(done, ""))
    except LaunchFailed as failure:
        if not lane.usable():
            raise EnvironmentUnfit(
                f"{row.name} left the card unusable: {one_line(failure)}"
            ) from failure
        last = list(causes(failure))[-1]
        return Measured(inputs=inputs, lacking=sentence(last) if refuses(last) else one_line(last))
    return Measured(inputs=inputs, errors=errors)


def _describe(row: Row, measured: Measured) -> str:
    if measured.errors is None:
        return f"{row.name}: {measured.lacking}"
    worst = page.largest(measured.errors)
    at = f" at {', '.join(worst.inputs)}" if worst.inputs else ""
    return f"{row.name}: {worst.ulps:.4g} ulp{at} ({measured.inputs}: {measured.errors.tried:,})"
