"""Streams: a launcher's work waits for what is on the caller's stream already."""

from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.suite import Judge


def test_streams(judge: Judge, kernel: FoundSpec) -> None:
    """With a late producer on a side stream, every output still equals the oracle within its bound."""
    judge("streams", kernel)
