"""What became of a mutant, in plain values that pass through processes and JSON."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Fate(enum.StrEnum):
    """The verdict on one mutant, worded as in every report."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNCOVERED = "uncovered"
    EQUIVALENT = "equivalent"
    INVALID = "could not run"

    @property
    def counts(self) -> bool:
        """Whether a suite is to be measured by it: it is a fault that can run."""
        return self in (Fate.KILLED, Fate.SURVIVED, Fate.UNCOVERED)


# Why a mutant is no fault, the strongest proof first.
SWEEP = "equal over the exhaustive sweep"
CODE = "equal code"
LANE = "equal bits on the lane"
ARGUED = "argued by a person"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one mutant of one kernel.

    check     the check that killed it, "" otherwise
    outcome   what that check ended with, such as "failed" or "hung"
    examples  cases judged, of all checks together, until it was killed or given up
    size      elements of the input tensors of the case that killed it, and `shrunk` of the smallest one found
    proof     of an equivalent, the kind of proof
    because   the finding in a sentence, or the reason
    cut       whether its time limit ended the search
    checks    of every check that judged it, whether it noticed: more than one only where all were asked
    """

    kernel: str
    mutant: str
    fate: Fate
    check: str = ""
    outcome: str = ""
    examples: int = 0
    size: int | None = None
    shrunk: int | None = None
    proof: str = ""
    because: str = ""
    cut: bool = False
    seconds: float = 0.0
    checks: dict[str, bool] = field(default_factory=dict)
