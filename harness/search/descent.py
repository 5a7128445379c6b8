"""Shrinks a failing case that Hypothesis did not draw, such as a corner, field by field.

What a field may hold is taken from cases that the spec's strategy draws: the simplest one's value is tried,
and of whole numbers what lies between, in steps that divide all that was drawn. So no field gets a value of a
kind that callers never send. A smaller case counts if it fails in the same way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from bitproof.harness import case as cases
from bitproof.harness.case import Case
from bitproof.harness.errors import SpecError, UsageError
from bitproof.harness.outcomes import CheckResult

Path = tuple[str, ...]
CaseT = TypeVar("CaseT", bound=Case)


def shrink(case: CaseT, drawn: Sequence[CaseT], fails: Callable[[CaseT], bool]) -> CaseT:
    """The smallest case on the way from `case` to the first of `drawn` for which `fails` holds throughout.

    `fails` raises what ends the search, or answers False from then on.
    """
    known = [cases.encode(one) for one in drawn]
    plain, progress = cases.encode(case), True

    def accept(smaller: dict[str, Any]) -> bool:
        try:
            candidate = cases.decode(type(case), smaller)
            return fails(candidate)
        except (SpecError, UsageError):
            return False  # no case, or none whose tensors can be built

    while progress and known:
        progress = False
        for path in list(_list_paths(plain)):
            for value in _propose(path, plain, known):
                smaller = _replace(plain, path, value)
                if accept(smaller):
                    plain, progress = smaller, True
                    break
    return cases.decode(type(case), plain)


def describe_failure(findings: CheckResult) -> tuple[str, str]:
    """What two cases that fail in the same way share: the outcome and, without its numbers, the finding."""
    first = findings.findings[0] if findings.findings else None
    if first is None:
        return str(findings.outcome), ""
    told = first.output or re.sub(r"0x[0-9a-f]+|\d[\d.e+-]*|\binf\b|\bnan\b", "#", first.summary)
    return str(findings.outcome), told


def _list_paths(plain: Any, path: Path = ()) -> Iterator[Path]:
    """Every field, those that hold fields before what is within them."""
    if path:
        yield path
    if isinstance(plain, dict):
        for name, inner in plain.items():
            yield from _list_paths(inner, (*path, name))


def _find(plain: Any, path: Path) -> Any:
    """What lies at `path`; None where a case of another shape has nothing there."""
    for name in path:
        plain = plain.get(name) if isinstance(plain, dict) else None
    return plain


def _replace(plain: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    name, *rest = path
    inner = _replace(plain[name], tuple(rest), value) if rest else value
    return {**plain, name: inner}


def _propose(path: Path, plain: dict[str, Any], known: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """Smaller values for a field, the boldest first."""
    held, simplest = _find(plain, path), _find(known[0], path)
    if simplest is None or held == simplest:
        return
    yield simplest
    found = [value for one in known if (value := _find(one, path)) is not None]
    if _is_number(held) and _is_number(simplest):
        yield from _approach(held, simplest, [n for n in found if _is_number(n)])
    elif isinstance(held, (list, tuple)):
        yield from _shorten(
            list(held), [n for one in found if isinstance(one, (list, tuple)) for n in one]
        )


def _shorten(held: list[Any], elements: list[Any]) -> Iterator[list[Any]]:
    """Without one element, then with one that is nearer to the smallest that was drawn."""
    for place in range(len(held)):
        yield held[:place] + held[place + 1 :]
    numbers = [n for n in elements if _is_number(n)]
    for place, element in enumerate(held):
        if numbers and _is_number(element) and element != min(numbers):
            for smaller in (min(numbers), *_approach(element, min(numbers), numbers)):
                yield [*held[:place], smaller, *held[place + 1 :]]


def _approach(held: int, simplest: int, drawn: Sequence[int]) -> Iterator[int]:
    """Whole numbers from half-way to `simplest` up to `held`, in steps that divide all `drawn`."""
    step = math.gcd(*(n - simplest for n in (*drawn, held))) or 1
    distance = abs(held - simplest) // step // 2
    while distance:
        yield held - int(math.copysign(distance * step, held - simplest))
        distance //= 2


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
