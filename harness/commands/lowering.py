"""`bitproof lowering`: what other targets' compilers make of kernels, read without any GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from bitproof.harness import lanes
from bitproof.harness.commands.screen import progress
from bitproof.harness.outcomes import Outcome


def run(
    kernels: Sequence[str],
    *,
    targets: str,
    fault: str | None,
    specs: Sequence[str],
    as_json: bool,
) -> int:
    """Print a report on each kernel and target, and a table of all where there are several.

    What a kernel is not for is read only where the kernel is named. Raises SpecError, once all others
    are read, for specs that have mistakes.
    """
    lanes.choose("interpreter")  # this process compiles nothing: its workers do
    from bitproof.harness.lowering import report
    from bitproof.harness.lowering.compile import readings
    from bitproof.harness.lowering.holding import needs_holding, refute_grid, withdraw
    from bitproof.harness.subjects.discovery import locate, require_sound
    from bitproof.harness.subjects.planting import with_fault
    from bitproof.harness.targets.architectures import parse_targets

    names = parse_targets(targets)
    every = locate(specs, kernels)
    found = [with_fault(kernel, fault) for kernel in every if not kernel.mistakes]
    by_name = {kernel.spec.name: kernel.spec for kernel in found}
    wanted = [
        (kernel, name)
        for kernel in found
        for name in names
        if kernels or report.find_excluded(kernel.spec, name) is None
    ]
    done = 0
    with progress("lowering", len(wanted)) as tell:

        def heard(reading: object) -> None:
            nonlocal done
            done += 1
            tell(done, "")

        made = readings(wanted, tell=heard)
    judged = [report.judge(reading, by_name[reading.kernel]) for reading in made]
    accepting = {each.reading.kernel for each in judged if needs_holding(each)}
    refuted = {
        kernel.spec.name: refute_grid(kernel, lanes.present())
        for kernel in found
        if kernel.spec.name in accepting
    }
    judged = [
        withdraw(each, because)
        if (because := refuted.get(each.reading.kernel, "")) and needs_holding(each)
        else each
        for each in judged
    ]
    if as_json:
        click.echo(json.dumps([report.plain(each) for each in judged], indent=2))
    else:
        for each in judged:
            click.echo("\n".join(report.lines(each)))
        if len(judged) > 1:
            _table(*report.table(judged))
    require_sound(every)
    return int(
        any(each.outcome.is_defect or each.outcome is Outcome.NOT_DEMONSTRATED for each in judged)
    )


def _table(header: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(*header)
    for row in rows:
        shown.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 200).print(shown)
