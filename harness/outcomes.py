"""What can come of running a check on a case, and which of it is a defect of the kernel."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bitproof.harness.errors import (
    BitproofError,
    Refused,
    Uncompilable,
    Unlaunchable,
    Unsupported,
    causes,
    one_line,
)


class Outcome(enum.StrEnum):
    """The verdict on one check of one case, worded as in every report and record."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_DEMONSTRATED = "not demonstrated"
    REFUSED = "refused"
    UNSUPPORTED = "unsupported"
    OUT_OF_RESOURCES = "out of resources"
    CRASHED = "crashed"
    HUNG = "hung"

    @property
    def is_defect(self) -> bool:
        """Whether this outcome counts against the kernel (and is worth shrinking)."""
        return self in (Outcome.FAILED, Outcome.CRASHED, Outcome.HUNG)


# Ends the name of a count of cases in which something could have been seen; the count without it is of those
# in which it was.
TRIED = ", where it can be"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing a check found wrong, complete enough to be acted on without opening a source file.

    `summary` is one sentence. `index` is the element of `output` (or None), `lines` the worded details
    from `compare`, `facts` the same as plain JSON values for records and machine-readable summaries.
    """

    summary: str
    output: str | None = None
    index: tuple[int, ...] | None = None
    lines: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """A check's answer: the outcome, what it found, and measurements the summary aggregates.

    `measures` holds numbers of which a summary keeps the largest, such as the worst distance over its
    bound; `counts` holds numbers that it adds up, such as the cases on which a control varied. `lines` and
    `configurations` count what its launches exercised of the kernel (see `exercised`). `distances` and
    `ulps` tell how far each output was from the oracle (see `report.measured`); `differing` has, for the
    kernel and for its control, a flag for each repeated run, set where it differed from the first.
    """

    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    measures: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    configurations: dict[str, int] = field(default_factory=dict)
    distances: dict[str, float] = field(default_factory=dict)
    ulps: dict[str, dict[str, int]] = field(default_factory=dict)
    differing: dict[str, tuple[bool, ...]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The findings as the lines of a report."""
        lines = [self.reason] if self.reason else []
        for finding in self.findings:
            lines.append(finding.summary)
            lines.extend(f"  {line}" for line in finding.lines)
        return "\n".join(lines)


def conclude(findings: Iterable[Finding], **measures: float) -> CheckResult:
    """Failed when anything was found, passed otherwise."""
    found = tuple(findings)
    outcome = Outcome.FAILED if found else Outcome.PASSED
    return CheckResult(outcome=outcome, findings=found, measures=measures)


def classify(error: BaseException, refuses: tuple[type[Exception], ...]) -> CheckResult:
    """The outcome that an exception out of a launch stands for; an error of our own inside it is raised.

    A launcher refuses with the very exception it raises. For everything else the chain of causes is
    followed, since the interpreter and the compiler wrap what they raise; a crash is named by its root.
    Code that no target's compiler takes, or a launch that no card starts, has failed, on whatever lane that
    was noticed.
    """
    if isinstance(error, (Refused, *refuses)):
        return CheckResult(outcome=Outcome.REFUSED, reason=one_line(error))
    for link in causes(error, contexts=True):
        if isinstance(link, Unsupported):
            return CheckResult(outcome=Outcome.UNSUPPORTED, reason=one_line(link))
        if isinstance(link, (Uncompilable, Unlaunchable)):
            return conclude([Finding(summary=one_line(link))])
        if isinstance(link, BitproofError):
            raise link
        if type(link).__name__ in _SCARCE or (
            isinstance(link, RuntimeError) and _SPENT.search(str(link))
        ):
            return CheckResult(outcome=Outcome.OUT_OF_RESOURCES, reason=one_line(link))
    links = list(causes(error))
    last = links[-1]
    # A lane that knows where in a kernel the error arose says so on the exception that it wraps it in.
    where = next((f" {link.in_kernel}" for link in links if hasattr(link, "in_kernel")), "")
    summary = f"the launch raised {type(last).__name__}{where}: {one_line(last)}"
    return CheckResult(outcome=Outcome.CRASHED, findings=(Finding(summary=summary),))


_SCARCE = ("OutOfMemoryError", "OutOfResources", "MemoryError")
_SPENT = re.compile(r"out of memory(?! bounds)|can't allocate memory|not enough memory")
