"""Invariances: relations between two runs of a kernel that hold bit for bit."""

from bitproof.harness.subjects.discovery import Found
from bitproof.suite import Judge


def test_invariances(judge: Judge, kernel: Found) -> None:
    """Each declared relation, such as one row alone and in a batch, holds bit for bit."""
    judge("invariances", kernel)
