"""The summary of a run: one entry a kernel and check, as lines for people and as JSON for reports."""

from __future__ import annotations

import collections
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from bitproof.harness import exercised
from bitproof.harness.report import files
from bitproof.harness.report.files import Format

FORMAT = 1
PATH = Path(".bitproof") / "summary.json"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A case that was compared: the numbers in it, its features, and each output's distance / bound."""

    sizes: dict[str, int]
    features: list[str]
    distances: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one check of one kernel came to: plain values only, since workers send it as such.

    `outcomes` and `covered` count examples; `measures` are maxima over them (worst: the largest
    distance over its bound), `counts` sums (on how many cases a control varied). `lines` and
    `configurations` count the launches that exercised each (see `exercised`), zero where none did.
    `samples` are some of the cases, `ulps` counts elements of each output by their distance (see
    `measured`), `differing` the cases in which each repeated run of the kernel, and of its control, differed
    from the first. An infinite number is None once it was read from a file: JSON has no infinity.
    """

    kernel: str
    check: str
    outcome: str
    examples: int
    outcomes: dict[str, int]
    covered: dict[str, int]
    measures: Mapping[str, float | None]
    counts: dict[str, int]
    reasons: list[str]
    seconds: float
    report: str
    record: str | None
    lines: dict[str, int] = field(default_factory=dict)
    configurations: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    ulps: dict[str, dict[str, int]] = field(default_factory=dict)
    differing: dict[str, list[int]] = field(default_factory=dict)


def receive(plain: Mapping[str, Any]) -> Entry:
    """The entry that a worker sent, taken apart."""
    return msgspec.convert(plain, Entry)


# Cases of one check that a summary keeps: enough for a picture, few enough for a file of a hundred checks.
_KEPT = 100
_WORST = 20


def thin(samples: Sequence[Sample]) -> list[Sample]:
    """Those with the largest distances and, evenly spaced, some of the others, in their order."""
    if len(samples) <= _KEPT:
        return list(samples)
    order = sorted(range(len(samples)), key=lambda place: -_farthest(samples[place]))
    others = sorted(order[_WORST:])
    step = -(-len(others) // (_KEPT - _WORST))
    return [samples[place] for place in sorted(order[:_WORST] + others[::step])]


def _farthest(sample: Sample) -> float:
    return max((inf if value is None else value for value in sample.distances.values()), default=0)


def lines(entries: Sequence[Entry]) -> list[str]:
    """For each kernel: examples, launch outcomes other than passed, coverage, controls, configurations.

    Then the lines of kernels that no check of any executed, since kernels may share them.
    """
    by_kernel: dict[str, list[Entry]] = collections.defaultdict(list)
    for item in sorted(entries, key=lambda item: item.check):
        by_kernel[item.kernel].append(item)
    told = [line for kernel in sorted(by_kernel) for line in _kernel(kernel, by_kernel[kernel])]
    return told + never_executed(item.lines for item in entries)


def never_executed(lines: Iterable[Mapping[str, int]]) -> list[str]:
    """A line for each passage of a kernel's source that none of these counts saw executed."""
    return [f"never executed: {passage}" for passage in exercised.never_executed(lines)]


def _kernel(kernel: str, entries: list[Entry]) -> list[str]:
    covered: collections.Counter[str] = collections.Counter()
    for item in entries:
        covered.update(item.covered)
    checks = ", ".join(
        f"{item.check} {item.examples}" + ("" if item.outcome == "passed" else f" ({item.outcome})")
        for item in entries
    )
    found = [f"{kernel}: {checks} in {sum(item.seconds for item in entries):.1f} s"]
    if covered:
        found.append("  covered " + ", ".join(f"{name} {n}" for name, n in sorted(covered.items())))
    for item in entries:
        if item.outcome == "not demonstrated":
            found.append(f"  {item.check} not demonstrated: {missing(item)}")
        found += [f"  {name} on {n} of {item.examples} cases" for name, n in item.counts.items()]
        lost = item.outcomes.get("out of resources", 0)
        if lost and lost < item.examples:
            found.append(f"  {item.check}: {lost} of {item.examples} cases out of resources")
    told = exercised.describe_configurations(item.configurations for item in entries)
    return found + [f"  {line}" for line in told]


def find_replay(entry: Entry) -> str:
    """The command that runs a failing case again, as its report gives it; "" where there is none."""
    for line in reversed(entry.report.splitlines()):
        if line.startswith("replay "):
            return line.removeprefix("replay").strip()
    return f"bitproof replay {entry.record}" if entry.record else ""


def missing(entry: Entry) -> str:
    """What a check that was not demonstrated would have had to show."""
    said = (
        entry.report.partition(" not demonstrated: ")[2] or "; ".join(entry.reasons) or entry.report
    )
    return said.splitlines()[0] if said else "no case was judged"


def write(
    entries: Sequence[Entry], *, lane: str, profile: str, seconds: float, path: Path = PATH
) -> Path:
    """Write the machine-readable summary; `seconds` is the run's wall time."""
    ordered = sorted(entries, key=lambda item: (item.kernel, item.check))
    data = {
        "format": FORMAT,
        "lane": lane,
        "profile": profile,
        "seconds": round(seconds, 1),
        "versions": _versions(),
        "entries": [asdict(item) for item in ordered],
    }
    # JSON has no infinity: msgspec writes null.
    files.save(path, msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")
    return path


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the file holds; `seconds` is the run's wall time."""

    format: int
    lane: str
    profile: str
    seconds: float
    versions: dict[str, str]
    entries: list[Entry]


def merge(summaries: Sequence[Summary]) -> Summary:
    """One summary of the machines that shared a run: all their entries, and the longest of their times."""
    first = summaries[0]
    lane, profile = (
        " and ".join(dict.fromkeys(getattr(one, name) for one in summaries))
        for name in ("lane", "profile")
    )
    return replace(
        first,
        lane=lane,
        profile=profile,
        seconds=max(one.seconds for one in summaries),
        entries=[entry for one in summaries for entry in one.entries],
    )


def read(path: Path = PATH) -> Summary:
    """The summary in `path`.

    Raises UsageError in one sentence for a file that is missing, damaged, foreign or of another format.
    """
    form = Format(version=FORMAT, beside="entries")
    remedy = "`pytest properties/` writes it"
    return files.read(path, Summary, what="summary", form=form, remedy=remedy)


def _versions() -> dict[str, str]:
    from bitproof.harness.targets.versions import libraries

    return {"machine": platform.machine(), **libraries()}
