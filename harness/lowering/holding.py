"""Whether the reason holds for which a hazard is accepted: measured on this machine, not taken at its word.

A hazard may be accepted because every value that reaches a conversion is on the grid of its target, so
that nothing is left to round. The interpreter sees these values, whatever target the code was read for.
"""

from __future__ import annotations

import dataclasses

from hypothesis import settings

from bitproof.harness.lanes.base import Lane
from bitproof.harness.lowering.report import Judged
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify, profiles
from bitproof.harness.search.isolation import Careful
from bitproof.harness.subjects.discovery import FoundSpec

_EXAMPLES = 24
_SECONDS = 10


def needs_holding(judged: Judged) -> bool:
    """Whether some hazard was accepted for a reason that a run can refute."""
    return any(accepted.on_grid for _, accepted in judged.accepted)


def refute_grid(found: FoundSpec, lane: Lane) -> str:
    """What the check `memory` finds on some drawn cases against the reason, "" where it finds nothing.

    `lane` is the interpreter.
    """
    profiles.register()
    careful = Careful.on(lane, known=[found])
    try:
        result = falsify.search(
            found.spec,
            "memory",
            lane,
            max_examples=_EXAMPLES,
            base=settings.get_profile(profiles.CI),
            execute=lambda case: careful(found, "memory", case),
            seconds=_SECONDS,
            shrinking=_SECONDS,
        )
    finally:
        careful.close()
    if result.findings is not None:
        return result.findings.findings[0].summary
    return (
        "" if result.outcome is Outcome.PASSED else f"memory ended as {result.outcome} on its cases"
    )


def withdraw(judged: Judged, refuted: str) -> Judged:
    """The verdict with nothing accepted for the reason that `refuted` refutes."""
    kept = tuple(pair for pair in judged.accepted if not pair[1].on_grid)
    withdrawn = tuple(
        dataclasses.replace(hazard, detail=f"{hazard.detail}; accepted in vain: {refuted}")
        for hazard, accepted in judged.accepted
        if accepted.on_grid
    )
    outcome = judged.outcome if judged.outcome is Outcome.HUNG else Outcome.FAILED
    return dataclasses.replace(
        judged,
        outcome=outcome,
        undeclared=(*judged.undeclared, *withdrawn),
        accepted=kept,
    )
