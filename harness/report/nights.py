"""One run compared with the one before: what is new, gone, slower, or nearer to its bound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bitproof.harness.outcomes import Outcome
from bitproof.harness.report.summary import Entry

DEFECTS = frozenset(str(outcome) for outcome in Outcome if outcome.is_defect)

# Slower is what takes that many times as long for an example, over that many seconds at least.
_SLOWER = 1.5
_LEAST_SECONDS = 5.0
# Nearer is a worst distance that grew by that factor, to more than that share of its bound: drawn cases
# differ from night to night, and so do their distances.
_GREW = 1.1
_NEAR = 0.5


@dataclass(frozen=True, kw_only=True)
class Change:
    """What changed for one check of a kernel: `kind` is "new", "gone", "slower" or "nearer to its bound"."""

    kind: str
    kernel: str
    check: str
    text: str


def compare(before: Sequence[Entry], now: Sequence[Entry]) -> list[Change]:
    """The changes, sorted by kind, kernel and check."""
    old = {(entry.kernel, entry.check): entry for entry in before}
    new = {(entry.kernel, entry.check): entry for entry in now}
    found = [
        Change(kind=kind, kernel=kernel, check=check, text=text)
        for kernel, check in sorted({*old, *new})
        for kind, text in _changes(old.get((kernel, check)), new.get((kernel, check)))
    ]
    return sorted(found, key=lambda change: _ORDER.index(change.kind))


_ORDER = ("new", "gone", "slower", "nearer to its bound")


def _changes(old: Entry | None, new: Entry | None) -> Iterator[tuple[str, str]]:
    if new is None:
        assert old is not None
        yield "gone", f"it was not judged; it {old.outcome} before"
        return
    if old is None:
        yield "new", f"it was not judged before; it is {new.outcome}"
        return
    if new.outcome in DEFECTS and old.outcome not in DEFECTS:
        yield "new", f"{new.outcome}, it was {old.outcome} before"
    elif old.outcome in DEFECTS and new.outcome not in DEFECTS:
        yield "gone", f"{new.outcome}, it {old.outcome} before"
    elif old.outcome == Outcome.PASSED != new.outcome and new.outcome not in DEFECTS:
        yield "gone", f"{new.outcome}, it passed before"
    once, again = _each(old), _each(new)
    if again > _SLOWER * once and new.seconds - new.examples * once > _LEAST_SECONDS:
        yield "slower", f"{again:.3g} s an example, {once:.3g} s before"
    far, farther = _worst(old), _worst(new)
    if farther > _NEAR and farther > _GREW * far and new.outcome not in DEFECTS:
        yield "nearer to its bound", f"{farther:.3g} of its bound, {far:.3g} before"


def _each(entry: Entry) -> float:
    return entry.seconds / entry.examples if entry.examples else math.inf


def _worst(entry: Entry) -> float:
    value = entry.measures.get("worst", 0.0)
    return math.inf if value is None else value
