"""A run as Markdown, for the summary of a CI job: the verdict, what changed, and the failures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bitproof.harness.outcomes import Outcome
from bitproof.harness.report import summary
from bitproof.harness.report.nights import DEFECTS, Change
from bitproof.harness.report.summary import Entry, Summary


def render(told: Summary, *, verdict: str, changes: Sequence[Change] | None) -> str:
    """The text, ending in a newline; whatever names anything is escaped."""
    return "\n".join(_lines(told, verdict, changes)) + "\n"


def _lines(told: Summary, verdict: str, changes: Sequence[Change] | None) -> Iterator[str]:
    yield f"## bitproof {escape(verdict)}"
    yield ""
    yield escape(f"lane {told.lane}, profile {told.profile}, {told.seconds} s")
    if changes is not None:
        yield ""
        yield "### Since the run before"
        yield ""
        for change in changes:
            text = f"{change.kernel} {change.check}: {change.text}"
            yield f"* **{change.kind}**: {escape(text)}"
        if not changes:
            yield "Nothing new, gone, slower or nearer to its bound."
    failing = [entry for entry in told.entries if entry.outcome in DEFECTS]
    for entry in failing:
        yield ""
        yield f"### {escape(f'{entry.kernel}: {entry.check} {entry.outcome}')}"
        yield from _fenced(entry)
    idle = [entry for entry in told.entries if entry.outcome == Outcome.NOT_DEMONSTRATED]
    if idle:
        yield ""
        yield "### Not demonstrated"
        yield ""
        for entry in idle:
            yield f"* {escape(f'{entry.kernel} {entry.check}: {summary.missing(entry)}')}"


def tabulate(entries: Sequence[Entry]) -> str:
    """A table with a row for each check of each kernel, ending in a newline."""
    rows: list[tuple[str, ...]] = [
        ("kernel", "check", "outcome", "examples", "worst of its bound", "seconds"),
        ("---", "---", "---", "---:", "---:", "---:"),
    ]
    for entry in entries:
        worst = entry.measures.get("worst", 0.0)
        told = "inf" if worst is None else f"{worst:.3g}" if worst else ""
        named = (escape(text) for text in (entry.kernel, entry.check, entry.outcome))
        rows.append((*named, str(entry.examples), told, f"{entry.seconds:.1f}"))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _fenced(entry: Entry) -> Iterator[str]:
    """The report in a fence longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", entry.report)), default=0)
    fence = "`" * max(3, longest + 1)
    yield ""
    yield f"{fence}text"
    yield from entry.report.splitlines()
    replay = summary.find_replay(entry)
    if replay and replay not in entry.report:
        yield replay
    yield fence


def escape(text: str) -> str:
    """`text` on one line, so that Markdown and HTML show it as it is."""
    return re.sub(r"([\\`*_{}\[\]<>#+!|&~-])", r"\\\1", " ".join(text.split()))
