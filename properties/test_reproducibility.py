"""Reproducibility: the same inputs give the same bits, however the runs are made to differ."""

from harness.discovery import Found
from harness.suite import Judge


def test_reproducibility(judge: Judge, kernel: Found) -> None:
    """Eight runs with fresh poisoned memory, other streams or program orders give the same bits."""
    judge("reproducibility", kernel)
