"""Compile cache: calls that differ only in what changes from call to call share their compiled code."""

from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.suite import Judge


def test_compile_cache(judge: Judge, kernel: FoundSpec) -> None:
    """Token counts and the like never add a compiled variant."""
    judge("compile_cache", kernel)
