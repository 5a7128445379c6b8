"""The case that a process is judging, on disk, so that its death tells which case it died over.

A journal holds plain values, and nothing that it names is imported: what it becomes is a record.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bitproof.harness.errors import UsageError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.report import files, records

FOLDER = Path(".bitproof") / "in-flight"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One case to judge, in plain JSON values: what a child is sent, and what a journal holds."""

    spec: str
    kernel: str
    fault: str | None
    check: str
    runs: int
    case: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class InFlight:
    """What the file holds: who is judging, see `process`, on which lane, and what; None between two cases."""

    process: str
    lane: str
    request: Request | None


@dataclass(kw_only=True)
class Journal:
    """Names the case that this process is judging, in the file `path`."""

    path: Path
    lane: str
    _file: int | None = field(default=None, init=False, repr=False)
    _length: int = field(default=0, init=False, repr=False)

    def write(self, request: dict[str, Any] | None) -> None:
        """Replace what the file holds; EnvironmentUnfit where it cannot be written."""
        held = {"process": process(os.getpid()), "lane": self.lane, "request": request}
        text = json.dumps(held).encode()
        if self._file is None:
            files.save(self.path, text)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        else:
            # In one call and over the former text, blanks and all: this comes before every case.
            os.pwrite(self._file, text.ljust(self._length), 0)
        self._length = max(self._length, len(text))

    def close(self) -> None:
        """Remove the file, and its folder where it was the last one."""
        if self._file is None:
            return
        os.close(self._file)
        self._file = None
        try:
            self.path.unlink(missing_ok=True)
            self.path.parent.rmdir()
        except OSError:
            pass  # other processes' journals are there


def find_dead(folder: Path = FOLDER) -> Iterator[Path]:
    """The journals in `folder` whose processes have ended, sorted; what is no journal is passed over."""
    for path in sorted(folder.glob("*.json")):
        try:
            held = files.read(path, InFlight, what="case in flight")
        except UsageError:
            continue
        number = held.process.partition(" ")[0]
        if not number.isdecimal() or process(int(number[:9])) != held.process:
            yield path


def bury(path: Path) -> Path | None:
    """Make a record of what a dead process was judging, and remove its journal; None where it was none."""
    try:
        held = files.read(path, InFlight, what="case in flight")
    except UsageError:
        return None
    path.unlink(missing_ok=True)
    asked = held.request
    if asked is None:
        return None
    return records.save_plain(
        kernel=asked.kernel,
        spec=asked.spec,
        fault=asked.fault,
        check=asked.check,
        outcome=Outcome.CRASHED,
        case=asked.case,
        finding=[{"summary": "the process that ran this case ended before it was judged"}],
        versions={"lane": held.lane},
    )


def bury_dead() -> list[Path]:
    """A record of each case that a process was judging when it ended."""
    return [record for path in list(find_dead()) if (record := bury(path))]


def process(number: int) -> str:
    """A process's number and when it began, in ticks since the machine did; "" where it has ended."""
    return _own(number) if number == os.getpid() else _process(number)


def _process(number: int) -> str:
    try:
        stat = Path(f"/proc/{number}/stat").read_text(errors="replace")
    except OSError:
        return ""
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else f"{number} {fields[18]}"


@functools.cache
def _own(number: int) -> str:
    return _process(number)
