"""The summary of a run: one entry a kernel and check, as lines for people and as JSON for reports."""

from __future__ import annotations

import collections
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from bitproof.harness.report import files
from bitproof.harness.report.files import Format

FORMAT = 1
PATH = Path(".bitproof") / "summary.json"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one check of one kernel came to: plain values only, since workers send it as such.

    `outcomes` and `covered` count examples; `measures` are maxima over them (worst: the largest
    distance over its bound), `counts` sums (on how many cases a control varied). An infinite measure is
    None once it was read from a file: JSON has no infinity.
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


def lines(entries: Sequence[Entry]) -> list[str]:
    """A line for each kernel: examples, launch outcomes other than passed, controls, coverage."""
    by_kernel: dict[str, list[Entry]] = collections.defaultdict(list)
    for item in sorted(entries, key=lambda item: item.check):
        by_kernel[item.kernel].append(item)
    return [line for kernel in sorted(by_kernel) for line in _kernel(kernel, by_kernel[kernel])]


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
        found += [f"  {name} on {n} of {item.examples} cases" for name, n in item.counts.items()]
        lost = item.outcomes.get("out of resources", 0)
        if lost and lost < item.examples:
            found.append(f"  {item.check}: {lost} of {item.examples} cases out of resources")
    return found


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
