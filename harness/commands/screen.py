"""Progress of long work: a bar for a person at a terminal, a line now and then for a log.

Both go to standard error, so that standard output holds results alone.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import click

EVERY = 10.0

Tell = Callable[[int, str], None]


@contextlib.contextmanager
def progress(title: str, total: int) -> Iterator[Tell]:
    """`tell(done, note)` shows that `done` of `total` is reached."""
    if not sys.stderr.isatty():
        yield _lines(title, total)
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TextColumn("{task.fields[note]}"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=total, note="")

        def tell(done: int, note: str) -> None:
            shown.update(task, completed=done, note=note)

        yield tell


def _lines(title: str, total: int) -> Tell:
    """A line on standard error at most every ten seconds."""
    started = last = time.monotonic()

    def tell(done: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < EVERY:
            return
        last = now
        left = (now - started) / max(done, 1) * max(total - done, 0)
        told = [
            f"{title}: {done / total:.1%}",
            *([note] if note else []),
            f"about {left:.0f} s left",
        ]
        click.echo(", ".join(told), err=True)

    return tell
