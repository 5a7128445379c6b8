"""Kernels whose calls are cut over several ranks: which numbers of ranks a run asks for."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Collection, Sequence
from typing import Any

from bitproof.harness.errors import UsageError
from bitproof.harness.spec import KernelSpec
from bitproof.harness.subjects.discovery import FoundSpec


def parse_ranks(text: str) -> tuple[int, ...]:
    """Numbers of ranks, such as "1,2,4,8"; UsageError for anything else."""
    numbers = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in numbers):
        raise UsageError(f"--ranks {text}: write numbers of at least 1, such as 1,2,4,8")
    return tuple(sorted({int(part) for part in numbers}))


def takes_ranks(spec: KernelSpec) -> bool:
    """Whether the spec's cases can be drawn for given numbers of ranks."""
    try:
        return "ranks" in inspect.signature(spec.cases).parameters
    except (TypeError, ValueError):
        return False


def with_ranks(found: FoundSpec, ranks: Collection[int]) -> FoundSpec:
    """The same, with cases over these numbers of ranks alone, corners and refusals included.

    UsageError where its cases know nothing of ranks.
    """
    spec = found.spec
    if not takes_ranks(spec):
        raise UsageError(
            f"kernel {spec.name!r} runs on one rank: --ranks is for specs whose cases take `ranks`"
        )

    def asked(case: Any) -> bool:
        return getattr(case, "ranks", None) in ranks

    narrowed = dataclasses.replace(
        spec,
        cases=functools.partial(spec.cases, ranks=tuple(ranks)),
        corners=tuple(case for case in spec.corners if asked(case)),
        refusals=tuple(refusal for refusal in spec.refusals if asked(refusal.case)),
    )
    return dataclasses.replace(found, spec=narrowed)


def with_ranks_where_taken(
    found: Sequence[FoundSpec], ranks: Collection[int]
) -> tuple[FoundSpec, ...]:
    """`with_ranks` of those whose cases take ranks, the others as they are; UsageError where none does."""
    if not any(takes_ranks(item.spec) for item in found):
        raise UsageError("none of these kernels runs on several ranks: leave --ranks out")
    return tuple(with_ranks(item, ranks) if takes_ranks(item.spec) else item for item in found)
