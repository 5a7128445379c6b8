"""Lengths that a candidate refuses in words keep the listed ones, so that it is judged where it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from bitproof.harness.acceptance.trials import Bench
from bitproof.harness.outcomes import Outcome

# A length unlike the listed one, of a dimension that may vary.
_OTHER = 17
_WHY = "the candidate refuses others"


def narrow(bench: Bench) -> Bench:
    """The same bench, with the fewest lengths kept as listed that the candidate answers with.

    Unchanged where it answers anyhow, and where it answers at the listed lengths alone: a candidate that
    refuses every other shape has shown nothing of what lies around them.
    """
    around = bench.problem.around
    free = [name for name, n in around.sizes.items() if name not in around.fixed and n > 1]
    free.sort(key=lambda name: around.sizes[name])

    def refuses(kept: Collection[str]) -> bool:
        lengths = {
            name: around.sizes[name] if name in kept else min(around.sizes[name] - 1, _OTHER)
            for name in free
        }
        return bench.judge(around.simplest(**lengths))[1].outcome is Outcome.REFUSED

    if not free or not refuses(()):
        return bench
    kept: list[str] = []
    for name in free:
        kept.append(name)
        if len(kept) == len(free) or not refuses(kept):
            break
    for name in kept[:]:
        others = [other for other in kept if other != name]
        if len(kept) > 1 and not refuses(others):
            kept = others
    if len(kept) == len(free) or refuses(kept):
        return bench
    lengths = {around.sizes[name]: _WHY for name in kept}
    return dataclasses.replace(bench, problem=bench.problem.with_fixed(lengths))
