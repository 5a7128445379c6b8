"""Graphs: a launch can be recorded once and replayed on whatever its memory holds by then."""

from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.suite import Judge


def test_graphs(judge: Judge, kernel: FoundSpec) -> None:
    """A CUDA graph of the launch, replayed on other values, gives every bit that an eager launch gives."""
    judge("graphs", kernel)
