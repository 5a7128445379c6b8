"""What the language leaves undefined holds the run's poison, so that a kernel that uses it shows."""

import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness.lanes.interpreter import overlay, state
from bitproof.harness.lanes.interpreter.sanitizer.sanitizer import Sanitizer


@triton.jit
def total(x, y, n):
    """The sum of n elements, if lanes that are off hold zeros."""
    i = tl.arange(0, 16)
    tl.store(y, tl.sum(tl.load(x + i, mask=i < n)))


@triton.jit
def careful_total(x, y, n):
    """The sum of n elements, whatever lanes hold that are off."""
    i = tl.arange(0, 16)
    tl.store(y, tl.sum(tl.where(i < n, tl.load(x + i, mask=i < n), 0.0)))


@triton.jit
def flagged(x, y, n):
    """How many of n flags are set, if lanes that are off hold False."""
    i = tl.arange(0, 16)
    tl.store(y, tl.sum(tl.load(x + i, mask=i < n).to(tl.int32)).to(tl.float32))


def launched(kernel, x, n, poison, *, watch=None):
    """What one program leaves in y."""
    overlay.install()
    y = torch.zeros(1)
    with state.session(state.Session(poison=poison, watch=watch)):
        kernel[(1,)](x, y, n)
    return float(y[0])


@pytest.mark.parametrize("watched", [False, True], ids=["plain", "watched"])
def test_a_masked_load_without_other_holds_poison(watched):
    """A sum over it depends on the poison, and not where the lanes are left out."""
    x = torch.ones(16)
    for kernel, same in ((total, False), (careful_total, True)):
        sums = {
            launched(kernel, x, 5, poison, watch=Sanitizer() if watched else None)
            for poison in (0x00, 0x3C, 0x55)
        }
        assert (sums == {5.0}) is same
    assert launched(total, x, 16, 0x55) == 16.0


def test_masked_flags_hold_poison_too():
    """A boolean that is undefined is true under a poison whose bits are set."""
    flags = torch.tensor([True] * 16)
    assert launched(flagged, flags, 5, 0x00) == 5.0
    assert launched(flagged, flags, 5, 0xA5) == 16.0
