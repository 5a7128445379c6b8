"""Invariances: relations between two runs of a kernel that hold bit for bit."""

from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.suite import Judge


def test_invariances(judge: Judge, kernel: FoundSpec) -> None:
    """Each declared relation, such as one row alone and in a batch, holds bit for bit."""
    judge("invariances", kernel)
