"""The kernel a command is about, as it is or with a fault planted, and the status a command ends with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bitproof.harness.outcomes import Outcome
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import with_fault


def find_subject(kernel: str, specs: Sequence[str], fault: str | None = None) -> FoundSpec:
    """The one kernel of that name in `specs`, with `fault` planted where one is named.

    The lane must have been chosen: this imports kernels. Raises UsageError for an unknown name.
    """
    return with_fault(find(specs, [kernel])[0], fault)


def exit_status(outcomes: Iterable[Outcome]) -> int:
    """0 where every claim that could be judged holds, 1 where one falls short, 2 where none could."""
    seen = set(outcomes)
    if any(outcome.is_defect for outcome in seen) or Outcome.NOT_DEMONSTRATED in seen:
        return 1
    return 0 if Outcome.PASSED in seen else 2
