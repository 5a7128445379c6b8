"""Draws that depend on their seed alone, for searches that are to be the same everywhere.

A derandomised run of Hypothesis seeds itself from the test, but now and then draws a constant that it found
in the sources of whatever modules are loaded, so that an edit elsewhere, another order of tests or another
worker gives other cases. This provider of draws leaves constants out; as with any provider but Hypothesis'
own, examples are drawn anew instead of as variations of the last one. What is replayed or shrunk does not go
through it. Hypothesis' documentation has the interface under "alternative backends".
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from bitproof.harness.case import Scale
from bitproof.harness.errors import SpecError, describe
from bitproof.harness.spec import KernelSpec

STEADY = "bitproof-steady"


class Steady(HypothesisProvider):
    """Hypothesis' own provider without constants."""

    def _maybe_draw_constant(self, *args: Any, **kwargs: Any) -> None:
        return None


def register() -> None:
    """Make the provider known to Hypothesis by its name."""
    AVAILABLE_PROVIDERS[STEADY] = f"{__name__}.{Steady.__name__}"


def strategy_of(spec: KernelSpec, scale: Scale) -> st.SearchStrategy[Any]:
    """The spec's strategy of cases; what it raises while it draws is a SpecError of one sentence.

    SpecError at once where `cases` makes no strategy.
    """
    own = spec.strategy(scale)

    def drawn(draw: st.DrawFn) -> Any:
        try:
            return draw(own)
        except HypothesisException:  # a case that is to be drawn anew, or a strategy used wrongly
            raise
        except Exception as error:
            raise SpecError(
                f"spec {spec.name!r}: its strategy raised while a case was drawn: {describe(error)}"
            ) from error

    return st.composite(drawn)()
