"""Agreement: every output of a kernel is the oracle's, bit for bit or within its derived bound."""

from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.suite import Judge


def test_agreement(judge: Judge, kernel: FoundSpec) -> None:
    """Every output equals the oracle within its bound, on every drawn case."""
    judge("agreement", kernel)
