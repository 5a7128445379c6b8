"""Agreement: every output of a kernel is the oracle's, bit for bit or within its derived bound."""

from harness.discovery import Found
from harness.suite import Judge


def test_agreement(judge: Judge, kernel: Found) -> None:
    """Every output equals the oracle within its bound, on every drawn case."""
    judge("agreement", kernel)
