"""`bitproof report`: the summary that a property run left behind, as a table."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bitproof.harness.outcomes import Outcome
from bitproof.harness.report import summary
from bitproof.harness.report.summary import Entry

# Wide enough for a table outside of a terminal, where nothing says how wide a line may be.
_WIDTH = 140


def run(file: Path | None) -> int:
    """Print one row for each kernel and check, then how to see each failure again."""
    told = summary.read(file or summary.PATH)
    versions = "  ".join(f"{name} {value}" for name, value in told.versions.items() if value)
    click.echo(f"lane {told.lane}  profile {told.profile}  {told.seconds} s  {versions}")
    table = Table("kernel", "check", "outcome")
    for numeric in ("examples", "worst", "seconds"):
        table.add_column(numeric, justify="right")
    for entry in told.entries:
        table.add_row(
            entry.kernel,
            entry.check,
            entry.outcome,
            str(entry.examples),
            _worst(entry),
            f"{entry.seconds:.1f}",
        )
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    console.print(table)
    for entry in told.entries:
        if entry.reasons:
            click.echo(f"{entry.kernel} {entry.check}: {'; '.join(entry.reasons)}")
        if entry.record:
            click.echo(f"{entry.kernel} {entry.check}: bitproof replay {entry.record}")
    for line in summary.never_executed(entry.lines for entry in told.entries):
        click.echo(line)
    short = {str(outcome) for outcome in Outcome if outcome.is_defect}
    return 1 if any(entry.outcome in short for entry in told.entries) else 0


def _worst(entry: Entry) -> str:
    """The largest distance over its bound; "" where none was measured."""
    if "worst" not in entry.measures:
        return ""
    worst = entry.measures["worst"]
    return "inf" if worst is None else f"{worst:.3g}"
