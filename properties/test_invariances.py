"""Invariances: relations between two runs of a kernel that hold bit for bit."""

from harness.discovery import Found
from harness.suite import Judge


def test_invariances(judge: Judge, kernel: Found) -> None:
    """Each declared relation, such as one row alone and in a batch, holds bit for bit."""
    judge("invariances", kernel)
