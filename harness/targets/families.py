"""The families of lanes, by which specs speak of where a kernel runs.

A lane of another target, such as "cuda:sm_89" (its code) or "interpreter:sm_89" (its tensor cores), is of the
family of its first word.
"""

from __future__ import annotations

LANES = ("cuda", "interpreter")


def family(name: str) -> str:
    """The family of the lane `name`: "cuda" for "cuda:sm_89" too."""
    return name.partition(":")[0]


def lane_target(name: str) -> str:
    """The target that the lane `name` is of, "" where it names none."""
    return name.partition(":")[2]
