"""Reproducibility: the same inputs give the same bits, however the runs are made to differ."""

from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.suite import Judge


def test_reproducibility(judge: Judge, kernel: FoundSpec) -> None:
    """Eight runs with fresh poisoned memory, other streams or program orders give the same bits."""
    judge("reproducibility", kernel)
