"""The families of lanes, by which specs speak of where a kernel runs.

A lane on which another target's code runs, such as "cuda:sm_89", is of the family of its first word.
"""

from __future__ import annotations

LANES = ("cuda", "interpreter")


def family(name: str) -> str:
    """The family of the lane `name`: "cuda" for "cuda:sm_89" too."""
    return name.partition(":")[0]
