"""`bitproof report`: the summary that a property run left behind, as a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from bitproof.harness.errors import UsageError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.report.summary import FORMAT, PATH, Entry

# Wide enough for a table outside of a terminal, where nothing says how wide a line may be.
_WIDTH = 140


def run(file: Path | None) -> int:
    """Print one row for each kernel and check, then how to see each failure again."""
    path = file or PATH
    plain, entries = load(path)
    versions = "  ".join(f"{name} {value}" for name, value in plain["versions"].items() if value)
    click.echo(
        f"lane {plain['lane']}  profile {plain['profile']}  {plain['seconds']} s  {versions}"
    )
    table = Table("kernel", "check", "outcome")
    for numeric in ("examples", "worst", "seconds"):
        table.add_column(numeric, justify="right")
    for entry in entries:
        worst = entry.measures.get("worst")
        table.add_row(
            entry.kernel,
            entry.check,
            entry.outcome,
            str(entry.examples),
            "" if worst is None else f"{worst:.3g}",
            f"{entry.seconds:.1f}",
        )
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    console.print(table)
    for entry in entries:
        if entry.reasons:
            click.echo(f"{entry.kernel} {entry.check}: {'; '.join(entry.reasons)}")
        if entry.record:
            click.echo(f"{entry.kernel} {entry.check}: bitproof replay {entry.record}")
    short = {str(outcome) for outcome in Outcome if outcome.is_defect}
    return 1 if any(entry.outcome in short for entry in entries) else 0


def load(path: Path) -> tuple[dict[str, Any], list[Entry]]:
    """The summary in `path`: its plain fields, and its entries.

    Raises UsageError in one sentence for a file that is missing, damaged, foreign or of another format.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}): `pytest properties/` writes it"
        ) from error
    try:
        plain = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a summary written by bitproof ({error})") from error
    if plain.get("format") != FORMAT:
        raise UsageError(
            f"{path} has summary format {plain.get('format')!r}, this version reads {FORMAT}: "
            "use the bitproof that wrote it"
        )
    try:
        entries = msgspec.convert(plain.get("entries"), type=list[Entry], strict=True)
        head = {name: plain[name] for name in ("lane", "profile", "seconds", "versions")}
        head["versions"] = msgspec.convert(head["versions"], type=dict[str, str])
    except (msgspec.ValidationError, KeyError) as error:
        raise UsageError(f"{path} is a damaged summary: {error}") from error
    return head, entries
