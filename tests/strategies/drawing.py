"""What a strategy draws and shrinks to, the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import Phase, find, settings

from bitproof.harness.search import draws

draws.register()
STEADY = settings(derandomize=True, database=None, max_examples=4000, backend=draws.STEADY)
# Explaining a failure draws other values once more, of which `find` then returns the last.
_PHASES = (Phase.generate, Phase.shrink)


def smallest(strategy: Any, holds: Callable[[Any], bool] = lambda value: True) -> Any:
    """The smallest value of `strategy` for which `holds`."""
    return find(
        strategy, lambda value: bool(holds(value)), settings=settings(STEADY, phases=_PHASES)
    )
