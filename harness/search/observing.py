"""What Hypothesis's own observability writes of each case beside what it knows itself.

With HYPOTHESIS_EXPERIMENTAL_OBSERVABILITY set, Hypothesis writes a line of JSON for each case to
`.hypothesis/observed/`, which Tyche reads. The features of a line are the events noted here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import currently_in_test_context, event

from bitproof.harness import case as cases
from bitproof.harness.case import Case
from bitproof.harness.outcomes import CheckResult


def name(judge: Callable[..., Any], kernel: str, check: str) -> None:
    """Have Hypothesis call the property `judge` by its check and kernel, as Python names things."""
    judge.__name__ = judge.__qualname__ = re.sub(r"\W", "_", f"{check}_{kernel}")


def note(case: Case, features: Iterable[str], findings: CheckResult) -> None:
    """The outcome, the numbers in the case, what it covers, and each output's error over its bound.

    Nothing where Hypothesis did not draw the case.
    """
    if not currently_in_test_context():
        return
    event("outcome", str(findings.outcome))
    for feature in features:
        event(f"covers {feature}")
    for size, value in cases.measure(case).items():
        event(size, value)
    for output, distance in findings.distances.items():
        # JSON has no infinity.
        event(f"error / bound of {output}", distance if math.isfinite(distance) else "infinite")
