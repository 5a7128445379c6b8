"""What launches exercise of a kernel: passages of its source and autotune configurations, counted by name.

Lanes note what they meet, and whoever judges collects it. A count of zero belongs to what exists and was
never exercised. Names are text, so that counts pass through processes and JSON; they can be read back.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, order=True)
class Passage:
    """Lines of a kernel function that run together; `condition` says under what, "" for all of it."""

    file: str
    first: int
    last: int
    function: str
    condition: str = ""

    def __str__(self) -> str:
        """As people read it: "gemm.py:131-140 (in _epilogue, if QUANTISED)"."""
        lines = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        under = f", {self.condition}" if self.condition else ""
        return f"{self.file}:{lines} (in {self.function}{under})"

    def holds(self, other: Passage) -> bool:
        """Whether the other's lines are among these."""
        return self.file == other.file and self.first <= other.first and other.last <= self.last


_PASSAGE = re.compile(
    r"(?P<file>.+):(?P<first>\d+)(?:-(?P<last>\d+))? \(in (?P<function>\w+)(?:, (?P<condition>.+))?\)"
)


def read_passage(text: str) -> Passage:
    """The passage that reads so."""
    found = _PASSAGE.fullmatch(text)
    assert found is not None
    return Passage(
        file=found["file"],
        first=int(found["first"]),
        last=int(found["last"] or found["first"]),
        function=found["function"],
        condition=found["condition"] or "",
    )


@dataclass(frozen=True, kw_only=True, order=True)
class Configuration:
    """One configuration of an autotuned kernel: its number from 0 on, and what it sets."""

    kernel: str
    number: int
    settings: str

    def __str__(self) -> str:
        """As people read it: "matmul configuration 1 (BLOCK: 32, num_warps: 4)"."""
        return f"{self.kernel} configuration {self.number} ({self.settings})"


_CONFIGURATION = re.compile(r"(?P<kernel>\w+) configuration (?P<number>\d+) \((?P<settings>.*)\)")


def read_configuration(text: str) -> Configuration:
    """The configuration that reads so."""
    found = _CONFIGURATION.fullmatch(text)
    assert found is not None
    number = int(found["number"])
    return Configuration(kernel=found["kernel"], number=number, settings=found["settings"])


@dataclass(frozen=True, kw_only=True)
class Exercised:
    """In how many launches each passage began, and each configuration ran."""

    lines: collections.Counter[str] = field(default_factory=collections.Counter)
    configurations: collections.Counter[str] = field(default_factory=collections.Counter)


_open: list[Exercised] = []


@contextmanager
def collecting() -> Iterator[Exercised]:
    """What the launches within exercise; collections may nest, and each gets everything within it."""
    found = Exercised()
    _open.append(found)
    try:
        yield found
    finally:
        _open.pop()


def note_lines(counts: Mapping[str, int]) -> None:
    """Add what one launch executed of the functions that it called."""
    for one in _open:
        one.lines.update(counts)


def note_configuration(possible: Iterable[Configuration], ran: Configuration) -> None:
    """Add that a kernel ran in one of the configurations that were possible."""
    counts = {str(one): int(one == ran) for one in possible}
    for collected in _open:
        collected.configurations.update(counts)


def never_executed(lines: Iterable[Mapping[str, int]]) -> list[str]:
    """Passages that none of these counts saw begin, in order; those within others are left out."""
    idle = sorted((read_passage(text) for text in _zeros(lines)), key=_outermost_first)
    told: list[Passage] = []
    for passage in idle:
        if not (told and told[-1].holds(passage)):
            told.append(passage)
    return [str(passage) for passage in told]


def _outermost_first(passage: Passage) -> tuple[str, int, int]:
    return passage.file, passage.first, -passage.last


def never_run(configurations: Iterable[Mapping[str, int]]) -> list[Configuration]:
    """Configurations in which none of these counts saw their kernel run, in order."""
    return sorted(read_configuration(text) for text in _zeros(configurations))


def describe_configurations(configurations: Iterable[Mapping[str, int]]) -> list[str]:
    """For each autotuned kernel in how many of its configurations it ran, and which are missing."""
    counts = list(configurations)
    every = sorted({read_configuration(text) for one in counts for text in one})
    missing = never_run(counts)
    told = []
    for kernel in dict.fromkeys(one.kernel for one in every):
        total = sum(one.kernel == kernel for one in every)
        lacking = [f"{one.number} ({one.settings})" for one in missing if one.kernel == kernel]
        line = f"configurations of {kernel}: {total - len(lacking)} of {total} ran"
        told.append(line + (f", never {', '.join(lacking)}" if lacking else ""))
    return told


def _zeros(counts: Iterable[Mapping[str, int]]) -> list[str]:
    total: collections.Counter[str] = collections.Counter()
    for one in counts:
        total.update(one)
    return [name for name, count in total.items() if count == 0]
