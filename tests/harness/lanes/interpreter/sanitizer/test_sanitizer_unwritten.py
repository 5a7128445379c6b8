"""Reads of what nobody wrote, each reported at its line; of what was written, by which program."""

import torch
import triton
import triton.language as tl

from bitproof.harness.lanes.interpreter.sanitizer.sanitizer import Sanitizer
from tests.harness.lanes.interpreter.marking import only


@triton.jit
def fill_most(work, n, BLOCK: tl.constexpr):
    """Write the first n elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(work + at, 1.0, mask=at < n)


@triton.jit
def add_up(work, total, n, BLOCK: tl.constexpr):
    """Read the first n elements."""
    at = tl.arange(0, BLOCK)
    tl.store(total, tl.sum(tl.load(work + at, mask=at < n, other=0.0)))  # here


@triton.jit
def accumulate(x, total, BLOCK: tl.constexpr):
    """Add atomically to whatever is there."""
    tl.atomic_add(total + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))  # here


@triton.jit
def halves(x, y):
    """Writes int32 as pairs of int16, and reads the pairs back."""
    at = x.to(tl.pointer_type(tl.int16)) + tl.arange(0, 2)
    tl.store(at, tl.arange(1, 3).to(tl.int16))
    tl.store(y, tl.load(x))


@triton.jit
def tiles(y, BLOCK: tl.constexpr):
    """Programs of a two-axis grid, of which some store less."""
    row, column = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    tl.store(y + row * 4 + column * BLOCK + at, 1.0, mask=at < 2 - row)


def test_a_read_of_an_unwritten_workspace_is_reported(watched):
    """What one launch wrote another may read; the element it left out is reported."""
    work, total = torch.empty(100), torch.empty(1)
    watch = watched(fill_most, work, 99, 64, grid=(2,), unwritten=[work, total])
    assert not watch.violations
    watched(add_up, work, total, 99, 128, watch=watch)
    assert not watch.violations
    watched(add_up, work, total, 100, 128, watch=watch)
    violation = only(watch, add_up, "unwritten")
    assert (violation.tensor, violation.index) == ("work", (99,))


def test_an_atomic_sum_into_unwritten_memory_is_reported(watched):
    """Accumulating reads its accumulator first."""
    total = torch.empty(4)
    watch = watched(accumulate, torch.ones(4), total, 4, unwritten=[total])
    assert only(watch, accumulate, "unwritten").tensor == "total"


def test_what_torch_wrote_is_written(watched):
    """A launcher that zeroes its workspace with torch has written it, before or between launches."""
    total = torch.empty(4)
    watch = Sanitizer([total])
    total.zero_()
    watched(accumulate, torch.ones(4), total, 4, watch=watch)
    assert not watch.violations


def test_fresh_memory_may_be_listed_late(watched):
    """A list that grows as the launcher allocates is looked at before every launch."""
    fresh: list[torch.Tensor] = []
    watch = Sanitizer(lambda: fresh)
    fresh.append(torch.empty(4))
    watched(accumulate, torch.ones(4), fresh[0], 4, watch=watch)
    only(watch, accumulate, "unwritten")


def test_elements_may_be_written_in_parts(watched):
    """Memory is known at the width of the narrowest access, so that two halves make a whole."""
    x, y = torch.empty(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    assert not watched(halves, x, y, unwritten=[x]).violations
    assert y.item() == 0x20001


def test_the_writer_of_every_element_is_known(watched):
    """A failure message can name the program that wrote a wrong element, or say that none did."""
    y = torch.zeros(2, 4)
    writer = watched(tiles, y, 2, grid=(2, 2)).writer(y)
    nobody = [-1, -1, -1]
    assert writer[0].tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert writer[1].tolist() == [[1, 0, 0], nobody, [1, 1, 0], nobody]
