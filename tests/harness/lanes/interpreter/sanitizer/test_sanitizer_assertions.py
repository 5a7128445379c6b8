"""Device assertions that do not hold, reported at their line."""

import torch
import triton
import triton.language as tl

from tests.harness.lanes.interpreter.marking import only


@triton.jit
def asserting(x, n):
    """Asserts that an element is small."""
    tl.device_assert(tl.load(x) < n, "too large")  # here


def test_a_failing_device_assertion_is_reported(watched):
    """Assertions that compiled code leaves out by default are looked at here."""
    x = torch.ones(1)
    assert not watched(asserting, x, 2).violations
    assert "too large" in only(watched(asserting, x, 1), asserting, "assert").detail
