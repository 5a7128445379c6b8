"""The file of the table of functions: what each lane's rows came to, under which versions.

It is written after every row, so that an interrupted command goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bitproof.harness.report import files
from bitproof.harness.report.files import Format
from bitproof.harness.sweep.errors import Errors

_FORM = Format(version=1, beside="runs")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One row: which inputs were tried and what errors they showed, or why there is no answer."""

    inputs: str = ""
    errors: Errors | None = None
    lacking: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The rows of one lane under one set of versions, by name."""

    lane: str
    versions: Mapping[str, str]
    rows: Mapping[str, Measured] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Table:
    """All runs that a file holds, one for each lane and versions of torch and triton, and for each card."""

    runs: tuple[Run, ...] = ()

    def find(self, lane: str, versions: Mapping[str, str]) -> Run:
        """The run of this lane and these versions; one without rows where there is none."""
        for run in self.runs:
            if _identify(run.lane, run.versions) == _identify(lane, versions):
                return run
        return Run(lane=lane, versions=dict(versions))

    def replace(self, run: Run) -> Table:
        """This table with `run` in the place of the one of its lane and versions, or at the end."""
        identity = _identify(run.lane, run.versions)
        runs = [run if _identify(one.lane, one.versions) == identity else one for one in self.runs]
        return Table(runs=tuple(runs) if run in runs else (*runs, run))

    def merge(self, other: Table) -> Table:
        """This table with the runs of `other`, whose rows stand where both have one."""
        merged = self
        for run in other.runs:
            known = merged.find(run.lane, run.versions)
            merged = merged.replace(dataclasses.replace(run, rows={**known.rows, **run.rows}))
        return merged


def read(path: Path) -> Table:
    """The table in `path`, an empty one where there is no such file; UsageError for another file."""
    if not path.exists():
        return Table()
    held = files.read(path, _File, what="table of functions", form=_FORM)
    return Table(runs=held.runs)


def write(path: Path, table: Table) -> None:
    """Save the table; the file appears whole or not at all."""
    held = msgspec.to_builtins(_File(format=_FORM.version, runs=table.runs))
    files.save(path, msgspec.json.format(msgspec.json.encode(held), indent=1) + b"\n")


@dataclass(frozen=True, kw_only=True)
class _File:
    format: int
    runs: tuple[Run, ...]


def _identify(lane: str, versions: Mapping[str, str]) -> tuple[str, ...]:
    return (lane, *(versions.get(name, "") for name in ("card", "torch", "triton")))
