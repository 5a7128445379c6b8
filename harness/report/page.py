"""A run as one HTML page that needs nothing else: no script, no font, no network.

Whatever a kernel, a case or a file named is escaped by the template; pictures come from `plots`.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bitproof.harness import exercised
from bitproof.harness.errors import EnvironmentUnfit, UsageError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.report import files, plots, summary
from bitproof.harness.report.nights import DEFECTS, Change
from bitproof.harness.report.summary import Entry, Summary

T = TypeVar("T")

_TEMPLATE = Path(__file__).with_name("page.html")
_LOWERING = "lowering for "
# Kernels whose times are drawn.
_SLOWEST = 30
# What stands for an outcome in a narrow cell, beside its colour and its word.
_SIGNS = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✗",
    Outcome.CRASHED: "✗",
    Outcome.HUNG: "✗",
    Outcome.NOT_DEMONSTRATED: "?",
    Outcome.REFUSED: "–",
    Outcome.UNSUPPORTED: "–",
    Outcome.OUT_OF_RESOURCES: "–",
}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Of the census of a sweep, what a page shows."""

    kernel: str
    format: str
    tried: int
    wrong: int
    toward_zero: int
    away_from_zero: int
    largest_ulps: int
    fault: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    first: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A mutant in Stryker's schema."""

    status: str
    killedBy: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class MutatedFile:
    """The mutants of one file, in Stryker's schema."""

    mutants: list[Mutant]

    @property
    def statuses(self) -> dict[str, int]:
        """How many ended how."""
        return dict(collections.Counter(one.status for one in self.mutants).most_common())

    @property
    def checks(self) -> dict[str, int]:
        """How many each check killed."""
        killers = (name for one in self.mutants for name in one.killedBy)
        return dict(collections.Counter(killers).most_common())


@dataclass(frozen=True, kw_only=True)
class Mutants:
    """A report in Stryker's schema."""

    schemaVersion: str
    files: dict[str, MutatedFile]


@dataclass(frozen=True, kw_only=True)
class Point:
    """A stored intermediate, and the error where it alone is rounded; None where that is not finite."""

    name: str
    alone: float | None


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """Of an attribution, what a page shows."""

    kernel: str
    output: str
    points: list[Point]


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What other commands left beside a summary."""

    sweeps: list[Sweep] = field(default_factory=list)
    mutants: list[Mutants] = field(default_factory=list)
    attributions: list[Attribution] = field(default_factory=list)


def find_beside(folders: Sequence[Path]) -> Beside:
    """What lies in the folders of summaries; a file of another form is passed over."""
    return Beside(
        sweeps=list(_read(folders, "sweeps/*.census.json", Sweep)),
        mutants=list(_read(folders, "mutants/*.json", Mutants)),
        attributions=list(_read(folders, "attribution/*.json", Attribution)),
    )


def _read(folders: Sequence[Path], pattern: str, kind: type[T]) -> Iterator[T]:
    for folder in folders:
        for path in sorted(folder.glob(pattern)):
            try:
                yield files.read(path, kind, what="result")
            except UsageError:
                continue


def open_template(path: Path) -> Any:
    """The template in a file, which escapes whatever it shows.

    EnvironmentUnfit, with the remedy, where jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise EnvironmentUnfit("a page needs jinja2: pip install 'bitproof[report]'") from error
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(path.read_text(encoding="utf-8"))


def render(told: Summary, *, verdict: str, changes: Sequence[Change] | None, beside: Beside) -> str:
    """The page; `changes` is None where no earlier run was named.

    EnvironmentUnfit, with the remedy, where what draws it is not installed.
    """
    plots.require()
    template = open_template(_TEMPLATE)
    judged = [entry for entry in told.entries if not entry.check.startswith(_LOWERING)]
    read = [entry for entry in told.entries if entry.check.startswith(_LOWERING)]
    page: str = template.render(
        told=told,
        verdict=verdict,
        held=not any(entry.outcome in DEFECTS for entry in told.entries),
        signs={str(outcome): sign for outcome, sign in _SIGNS.items()},
        grid=_grid(judged),
        targets=_grid(read, drop=_LOWERING),
        hazards=[entry for entry in read if entry.outcome != Outcome.PASSED],
        failing=[
            (entry, summary.find_replay(entry))
            for entry in told.entries
            if entry.outcome in DEFECTS
        ],
        undemonstrated=[
            (entry, summary.missing(entry))
            for entry in told.entries
            if entry.outcome == Outcome.NOT_DEMONSTRATED
        ],
        unjudged=_unjudged(judged),
        accuracy=list(_accuracy(judged)),
        differing=[entry for entry in judged if entry.differing],
        covered=_covered(judged),
        idle=exercised.never_executed(entry.lines for entry in judged),
        configurations=exercised.describe_configurations(entry.configurations for entry in judged),
        changes=changes,
        sweeps=beside.sweeps,
        mutants={name: file for report in beside.mutants for name, file in report.files.items()},
        attributions=[(one, _draw_costs(one)) for one in beside.attributions],
        times=plots.draw_bars(_times(told.entries), "seconds"),
        number=_number,
    )
    return page


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of entries: a row for each kernel, a column for each check."""

    columns: list[str]
    rows: dict[str, dict[str, Entry]]


def _grid(entries: Sequence[Entry], drop: str = "") -> Grid:
    rows: dict[str, dict[str, Entry]] = collections.defaultdict(dict)
    for entry in sorted(entries, key=lambda entry: (entry.kernel, entry.check)):
        rows[entry.kernel][entry.check.removeprefix(drop)] = entry
    columns = sorted({check for row in rows.values() for check in row})
    return Grid(columns=columns, rows=dict(rows))


def _unjudged(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Reasons why something was no defect and not judged, with the kernels that each concerns."""
    others = (Outcome.REFUSED, Outcome.UNSUPPORTED, Outcome.OUT_OF_RESOURCES)
    found: dict[str, list[str]] = collections.defaultdict(list)
    for entry in entries:
        if entry.outcome in others:
            for reason in entry.reasons or ["no reason was given"]:
                found[f"{entry.check} {entry.outcome}: {reason}"].append(entry.kernel)
    return dict(sorted(found.items()))


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """How far one output was from the oracle, in pictures: none, or "", where there is nothing to see."""

    kernel: str
    check: str
    output: str
    worst: float
    distances: list[str]
    ulps: str


def _accuracy(entries: Sequence[Entry]) -> Iterator[Accuracy]:
    for entry in entries:
        outputs = {name for sample in entry.samples for name in sample.distances}
        for output in sorted(outputs | set(entry.ulps)):
            values = [
                sample.distances[output] for sample in entry.samples if output in sample.distances
            ]
            yield Accuracy(
                kernel=entry.kernel,
                check=entry.check,
                output=output,
                worst=max((math.inf if v is None else v for v in values), default=0.0),
                distances=plots.draw_distances(entry.samples, output),
                ulps=plots.draw_ulps(entry.ulps.get(output, {})),
            )


def _covered(entries: Sequence[Entry]) -> dict[str, dict[str, int]]:
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for entry in entries:
        found[entry.kernel].update(entry.covered)
    return {kernel: dict(counts.most_common()) for kernel, counts in found.items() if counts}


def _draw_costs(one: Attribution) -> str:
    """Bars of what each stored intermediate costs."""
    bars = {point.name: 100 * point.alone for point in one.points if point.alone is not None}
    return plots.draw_bars(bars, "error in % where it alone is rounded")


def _times(entries: Sequence[Entry]) -> dict[str, float]:
    total = collections.defaultdict[str, float](float)
    for entry in entries:
        total[entry.kernel] += entry.seconds
    slowest = sorted(total, key=lambda kernel: -total[kernel])[:_SLOWEST]
    return {kernel: round(total[kernel], 2) for kernel in slowest}


def _number(value: float | None) -> str:
    """A number in three digits; JSON's null stands for infinity."""
    return "inf" if value is None else f"{value:.3g}"
