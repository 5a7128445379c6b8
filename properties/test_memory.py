"""Memory: outputs are written everywhere, nothing else is, and nothing unwritten is read."""

from bitproof.harness.subjects.discovery import Found
from bitproof.suite import Judge


def test_memory(judge: Judge, kernel: Found) -> None:
    """Every output element is written, guard bands and inputs stay as they were."""
    judge("memory", kernel)
