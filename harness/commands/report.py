"""`bitproof report`: what the last property run came to; the verdict first, then failures, then a table."""

from __future__ import annotations

import collections
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bitproof.harness.outcomes import Outcome
from bitproof.harness.report import files, nights, page, summary
from bitproof.harness.report.markdown import render as render_markdown
from bitproof.harness.report.summary import Entry, Summary

# Wide enough for a table outside of a terminal, where nothing says how wide a line may be.
_WIDTH = 140


def run(
    paths: Sequence[Path], *, before: Sequence[Path], html: Path | None, markdown: Path | None
) -> int:
    """Print the verdict, each failure with its replay, what was not demonstrated, and a row a kernel.

    Several summaries are those of machines that shared a run. With `before`, also what changed since that
    run; with `html` and `markdown` the same as files.
    """
    paths = paths or [summary.PATH]
    told = summary.merge([summary.read(path) for path in paths])
    changes = None
    if before:
        earlier = summary.merge([summary.read(path) for path in before])
        changes = nights.compare(earlier.entries, told.entries)
    for line in _verdict(told):
        click.echo(line)
    for change in changes or ():
        click.echo(f"{change.kind}: {change.kernel} {change.check}: {change.text}")
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(_table(told.entries))
    for line in summary.never_executed(entry.lines for entry in told.entries):
        click.echo(line)
    verdict = describe_verdict(told.entries)
    if html is not None:
        beside = page.find_beside([path.parent for path in paths])
        text = page.render(told, verdict=verdict, changes=changes, beside=beside)
        files.save(html, text.encode())
    if markdown is not None:
        text = render_markdown(told, verdict=verdict, changes=changes)
        files.append(markdown, text.encode())
    return 1 if any(entry.outcome in nights.DEFECTS for entry in told.entries) else 0


def describe_verdict(entries: Sequence[Entry]) -> str:
    """Whether a run held, and how many checks ended how."""
    outcomes = collections.Counter(entry.outcome for entry in entries)
    counts = ", ".join(f"{outcomes[o]} {o}" for o in map(str, Outcome) if outcomes[o])
    undemonstrated = outcomes[Outcome.NOT_DEMONSTRATED] or not outcomes[Outcome.PASSED]
    held = "nothing fell short, but not all was demonstrated" if undemonstrated else "held"
    failing = any(outcomes[outcome] for outcome in nights.DEFECTS)
    return f"{'fell short' if failing else held}: {counts or 'nothing was judged'}"


def _verdict(told: Summary) -> Iterator[str]:
    """The verdict, and a line for each check that needs looking at."""
    yield describe_verdict(told.entries)
    versions = "  ".join(f"{name} {value}" for name, value in told.versions.items() if value)
    yield f"lane {told.lane}  profile {told.profile}  {told.seconds} s  {versions}"
    for entry in told.entries:
        if entry.outcome in nights.DEFECTS:
            yield f"{entry.kernel} {entry.check} {entry.outcome}{_format_finding(entry)}"
            replay = summary.find_replay(entry)
            if replay:
                yield f"  {replay}"
    for entry in told.entries:
        if entry.outcome == Outcome.NOT_DEMONSTRATED:
            yield f"{entry.kernel} {entry.check} not demonstrated: {summary.missing(entry)}"
    others = collections.defaultdict[str, list[str]](list)
    for entry in told.entries:
        if entry.outcome not in nights.DEFECTS and entry.outcome != Outcome.NOT_DEMONSTRATED:
            for reason in entry.reasons:
                others[f"{entry.check} {entry.outcome}: {reason}"].append(entry.kernel)
    for reason, kernels in sorted(others.items()):
        yield f"{reason} ({kernels[0] if len(kernels) == 1 else f'{len(kernels)} kernels'})"


def _format_finding(entry: Entry) -> str:
    """The line of a failure's report that says what was found, after the one that names the kernel."""
    lines = entry.report.splitlines()
    line = lines[1].strip() if len(lines) > 1 else "; ".join(entry.reasons)
    return f": {line}" if line else ""


def _table(entries: Sequence[Entry]) -> Table:
    """A row a kernel: its checks by outcome, examples, the worst distance over its bound, seconds."""
    table = Table("kernel", "checks")
    for numeric in ("examples", "worst", "seconds"):
        table.add_column(numeric, justify="right")
    kernels = collections.defaultdict[str, list[Entry]](list)
    for entry in entries:
        kernels[entry.kernel].append(entry)
    for kernel, judged in kernels.items():
        table.add_row(
            kernel,
            "; ".join(_by_outcome(judged)),
            str(sum(entry.examples for entry in judged)),
            _worst(judged),
            f"{sum(entry.seconds for entry in judged):.1f}",
        )
    return table


def _by_outcome(judged: Sequence[Entry]) -> Iterator[str]:
    """How many checks passed, and by name those that ended otherwise."""
    for outcome in map(str, Outcome):
        checks = [entry.check for entry in judged if entry.outcome == outcome]
        if checks:
            named = outcome != Outcome.PASSED
            yield f"{outcome}: {', '.join(checks)}" if named else f"{len(checks)} passed"


def _worst(judged: Sequence[Entry]) -> str:
    """The largest distance over its bound; "" where none was measured."""
    measured = [entry.measures["worst"] for entry in judged if "worst" in entry.measures]
    if not measured:
        return ""
    worst = max(float("inf") if value is None else value for value in measured)
    return f"{worst:.3g}"
