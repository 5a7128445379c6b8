"""What nobody defined may be read, moved and discarded; where it matters, both places are told."""

import inspect

import pytest
import torch
import triton
import triton.language as tl

from tests.harness.lanes.interpreter.marking import marked


@triton.jit
def discarded(work, x, y, n):
    """Reads a whole padded row of scratch and keeps its first n elements."""
    i = tl.arange(0, 8)
    row = tl.load(work + i)
    tl.store(y + i, tl.where(i < n, row * 2.0, tl.load(x + i)))


@triton.jit
def twice(row):
    """A nested function."""
    return row * 2.0


@triton.jit
def used(work, x, y, n):
    """The same, but keeps all."""
    i = tl.arange(0, 8)
    row = tl.load(work + i)  # here
    tl.store(y + i, tl.where(i < 8, twice(row), tl.load(x + i)))


@triton.jit
def masked_sum(work, x, y, n):
    """A sum over the n elements that were written."""
    i = tl.arange(0, 8)
    tl.store(y, tl.sum(tl.where(i < n, tl.load(work + i), 0.0)))


@triton.jit
def whole_sum(work, x, y, n):
    """A sum over all elements."""
    i = tl.arange(0, 8)
    tl.store(y, tl.sum(tl.load(work + i)))  # here


@triton.jit
def rows_summed(work, x, y, n):
    """Sums of the rows of a block whose last row nobody wrote."""
    i, j = tl.arange(0, 4), tl.arange(0, 2)
    block = tl.load(work + i[:, None] * 2 + j[None, :])
    tl.store(y + i, tl.sum(tl.trans(tl.trans(block)), axis=1), mask=i < n // 2)


@triton.jit
def columns_summed(work, x, y, n):
    """Sums of the columns, which meet the row that nobody wrote."""
    i, j = tl.arange(0, 4), tl.arange(0, 2)
    block = tl.load(work + i[:, None] * 2 + j[None, :])  # here
    tl.store(y + j, tl.sum(block, axis=0))


@triton.jit
def summed_so_far(work, x, y, n):
    """Running sums, of which the first n are stored."""
    i = tl.arange(0, 8)
    tl.store(y + i, tl.cumsum(tl.load(work + i)), mask=i < n)


@triton.jit
def summed_backwards(work, x, y, n):
    """Running sums from the end, which nobody wrote."""
    i = tl.arange(0, 8)
    tl.store(y + i, tl.cumsum(tl.load(work + i), reverse=True), mask=i < n)  # here


@triton.jit
def times_zero(work, x, y, n):
    """A NaN times zero is no zero."""
    i = tl.arange(0, 8)
    row = tl.load(work + i)  # here
    tl.store(y + i, row * (i < n).to(tl.float32))


@triton.jit
def addressed(work, x, y, n):
    """An index that nobody wrote."""
    at = tl.load(work + 7).to(tl.int32)  # here
    tl.store(y, tl.load(x + at * 0))


@triton.jit
def masking(work, x, y, n):
    """A mask made of what nobody wrote."""
    i = tl.arange(0, 8)
    keep = tl.load(work + i) > 0  # here
    tl.store(y + i, 1.0, mask=keep)


@triton.jit
def masking_inside(work, x, y, n):
    """A mask that is off, whatever the elements hold that nobody wrote."""
    i = tl.arange(0, 8)
    tl.store(y + i, 1.0, mask=(i < n) & (tl.load(work + i) > 0))


@triton.jit
def branching(work, x, y, n):
    """A branch on what nobody wrote."""
    if tl.load(work + 7) > 0:  # here
        tl.store(y, 1.0)


@triton.jit
def combining(work, x, y, n):
    """Adds atomically what nobody wrote."""
    i = tl.arange(0, 8)
    tl.atomic_add(y + i, tl.load(work + i))  # here


@triton.jit
def multiplied(work, x, y, n):
    """A row of a product, of which only those are stored whose factors were written."""
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    a = tl.load(x + at % 8, mask=(i < n)[:, None])
    tl.store(y + i, tl.sum(tl.dot(a, tl.full((16, 16), 1.0, tl.float32)), axis=1), mask=i < n)


@triton.jit
def multiplied_through(work, x, y, n):
    """The undefined factors lie along the axis that is summed."""
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    a = tl.load(x + at % 8, mask=(i < n)[None, :])  # here
    tl.store(y + i, tl.sum(tl.dot(a, tl.full((16, 16), 1.0, tl.float32)), axis=1))


@triton.jit
def left_off(work, x, y, n):
    """A masked load without other, stored whole."""
    i = tl.arange(0, 8)
    tl.store(y + i, tl.load(x + i, mask=i < n))  # here


@triton.jit
def left_off_again(work, x, y, n):
    """A masked load without other, stored under its mask."""
    i = tl.arange(0, 8)
    tl.store(y + i, tl.exp(tl.load(x + i, mask=i < n)), mask=i < n)


@triton.jit
def copied(work, x, y, n):
    """Copies padded scratch to other scratch."""
    i = tl.arange(0, 8)
    tl.store(x + i, tl.load(work + i))  # here


@triton.jit
def copied_back(x, y, n):
    """Copies n elements of scratch to the output."""
    i = tl.arange(0, 8)
    tl.store(y + i, tl.load(x + i), mask=i < n)


def launched(watched, kernel, **options):
    """`kernel` on a scratch row of eight elements, of which torch wrote six."""
    work = torch.zeros(8)
    x, y = torch.ones(8), torch.zeros(16)
    return watched(
        kernel,
        work,
        x,
        y,
        6,
        unwritten=[work[6:]],
        scratch=options.pop("scratch", [work]),
        **options,
    )


CLEAN = (
    discarded,
    masked_sum,
    rows_summed,
    summed_so_far,
    masking_inside,
    multiplied,
    left_off_again,
)
USES = {
    used: "stores it in an output",
    whole_sum: "stores it in an output",
    columns_summed: "stores it in an output",
    summed_backwards: "stores it in an output",
    times_zero: "stores it in an output",
    addressed: "accesses memory at an address made of it",
    masking: "masks an access with it",
    branching: "decides by it",
    combining: "atomically combines it with memory",
    multiplied_through: "stores it in an output",
    left_off: "stores it in an output",
    copied: "stores it in an output",
}


@pytest.mark.parametrize("kernel", CLEAN, ids=lambda kernel: kernel.fn.__name__)
def test_what_is_discarded_is_not_reported(watched, kernel):
    """Undefined lanes that reach no output, address, mask or branch are no violation."""
    assert [violation.text for violation in launched(watched, kernel).violations] == []


@pytest.mark.parametrize("kernel", USES, ids=lambda kernel: kernel.fn.__name__)
def test_what_matters_is_reported(watched, kernel):
    """The report lies at the load, and says what came of the value."""
    violation, *others = launched(watched, kernel).violations
    assert (violation.kind, violation.line, others) == ("unwritten", marked(kernel), [])
    assert USES[kernel] in violation.detail


def test_both_places_are_told(watched):
    """The element that was read, the line that read it, and the line that stored what came of it."""
    (violation,) = launched(watched, used).violations
    assert (violation.tensor, violation.index) == ("work", (6,))
    stored = marked(used) + 1
    assert violation.detail == (
        "reads what nobody wrote, and stores it in an output "
        f"at {inspect.getsourcefile(used.fn)}:{stored} (2 elements)"
    )


def test_scratch_passes_on_what_is_undefined(watched):
    """A copy between scratch is silent; read from there into an output, the first load is named."""
    for n, found in ((6, []), (7, [("work", (6,))])):
        work, other, y = torch.zeros(8), torch.ones(8), torch.zeros(16)
        scratch = [work, other]
        watch = watched(copied, work, other, y, n, unwritten=[work[6:]], scratch=scratch)
        assert watch.violations == []
        watched(copied_back, other, y, n, watch=watch, scratch=scratch)
        assert [(one.tensor, one.index) for one in watch.violations] == found
