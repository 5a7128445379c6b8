"""The kernel a command is about, as it is or with a fault planted, on the lane it runs on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from bitproof.harness.errors import UsageError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.subjects.discovery import Found, find
from bitproof.harness.subjects.planting import plant


def subject(kernel: str, specs: Sequence[str], fault: str | None = None) -> Found:
    """The one kernel of that name in `specs`, with `fault` planted where one is named.

    The lane must have been chosen: this imports kernels. Raises UsageError for an unknown name.
    """
    return planted(find(specs, [kernel])[0], fault)


def planted(found: Found, fault: str | None) -> Found:
    """`found` with the fault of that name planted; as it is for None. UsageError for unknown names."""
    if fault is None:
        return found
    faults = {known.name: known for known in found.spec.faults}
    if fault not in faults:
        names = ", ".join(repr(name) for name in faults)
        raise UsageError(f"kernel {found.spec.name!r} has no fault {fault!r}: there are {names}")
    return dataclasses.replace(found, spec=plant(found, faults[fault]))


def status(outcomes: Iterable[Outcome]) -> int:
    """0 where every claim that could be judged holds, 1 where one falls short, 2 where none could."""
    seen = set(outcomes)
    if any(outcome.is_defect for outcome in seen) or Outcome.NOT_DEMONSTRATED in seen:
        return 1
    return 0 if Outcome.PASSED in seen else 2
