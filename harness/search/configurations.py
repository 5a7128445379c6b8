"""Cases in the autotune configurations of a kernel that none of a search's own cases ran in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from bitproof.harness.case import Case, with_launch
from bitproof.harness.exercised import never_run


def find_missing_cases(configurations: Mapping[str, int], judged: Iterable[Case]) -> Iterator[Case]:
    """Each of the `judged` cases, launched in each configuration that the counts say no launch ran in."""
    cases = list(judged)
    for number in sorted({one.number for one in never_run([configurations])}):
        for case in cases:
            moved = with_launch(case, dataclasses.replace(case.launch, config=number))
            if moved is not None:
                yield moved
