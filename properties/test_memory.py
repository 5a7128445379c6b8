"""Memory: outputs are written everywhere, nothing else is, and nothing unwritten is read."""

from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.suite import Judge


def test_memory(judge: Judge, kernel: FoundSpec) -> None:
    """Every output element is written, guard bands and inputs stay as they were."""
    judge("memory", kernel)
