"""Races between programs, each reported once at its line; what is ordered or declared is not reported."""

import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness.lanes.interpreter.sanitizer.sanitizer import Sanitizer
from tests.harness.lanes.interpreter.marking import only


@triton.jit
def racing_store(y, BLOCK: tl.constexpr):
    """Every program writes its own number to the same place."""
    tl.store(y + tl.arange(0, BLOCK), tl.program_id(0))  # here


@triton.jit
def same_store(y, BLOCK: tl.constexpr):
    """Every program writes the same number to the same place."""
    tl.store(y + tl.arange(0, BLOCK), 5)


@triton.jit
def shifted_in_place(x, BLOCK: tl.constexpr):
    """Reads the elements that the next program writes."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at + BLOCK)
    tl.store(x + at, value + 1)


@triton.jit
def two_values_at_once(y):
    """Two lanes for each element."""
    tl.store(y + tl.arange(0, 4) // 2, tl.arange(0, 4))  # here


@triton.jit
def last_block(x, partial, counter, total, n: tl.constexpr):
    """The program that counts last adds up what the others stored."""
    here = tl.program_id(0)
    tl.store(partial + here, tl.load(x + here))
    if tl.atomic_add(counter, 1) == n - 1:
        tl.store(total, tl.sum(tl.load(partial + tl.arange(0, n))))


@triton.jit
def last_block_relaxed(x, partial, counter, total, n: tl.constexpr):
    """The same with a counter that orders nothing."""
    here = tl.program_id(0)
    tl.store(partial + here, tl.load(x + here))
    if tl.atomic_add(counter, 1, sem="relaxed") == n - 1:
        tl.store(total, tl.sum(tl.load(partial + tl.arange(0, n))))  # here


@triton.jit
def last_block_too_early(x, partial, counter, total, n: tl.constexpr):
    """The same with the counter counted before the store."""
    here = tl.program_id(0)
    finished = tl.atomic_add(counter, 1)
    tl.store(partial + here, tl.load(x + here))
    if finished == n - 1:
        tl.store(total, tl.sum(tl.load(partial + tl.arange(0, n))))  # here


@triton.jit
def locked_sum(x, lock, total):
    """Adds plainly, inside a spin lock."""
    value = tl.load(x + tl.program_id(0))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + value)
    tl.atomic_xchg(lock, 0)


@triton.jit
def atomic_sum(x, total):
    """One atomic term a program."""
    tl.atomic_add(total, tl.load(x + tl.program_id(0)))


@triton.jit
def peeking(x, total):
    """Reads a sum that others are adding to."""
    tl.atomic_add(total, tl.load(x + tl.program_id(0)))  # here
    tl.store(x + tl.program_id(0), tl.load(total))


def test_a_racing_store_is_reported(watched):
    """Two programs that write different values to one element, with the earlier one's name."""
    y = torch.zeros(8, dtype=torch.int32)
    violation = only(watched(racing_store, y, 8, grid=(3,)), racing_store, "race")
    assert (violation.program, violation.tensor) == ((1, 0, 0), "y")
    assert "program (0, 0, 0)" in violation.detail


def test_the_same_value_may_be_written_twice(watched):
    """Whoever wins, memory holds the same."""
    y = torch.zeros(8, dtype=torch.int32)
    assert not watched(same_store, y, 8, grid=(3,)).violations


@pytest.mark.parametrize(
    ("order", "verb"), [("forward", "writes what program"), ("reverse", "reads what program")]
)
def test_a_read_of_another_programs_write_is_reported_in_either_order(watched, order, verb):
    """Whether the reader or the writer happens to run first, they race."""
    x = torch.zeros(16)
    (violation,) = watched(shifted_in_place, x, 4, grid=(3,), order=order).violations
    assert (violation.kind, violation.tensor) == ("race", "x")
    assert violation.detail.startswith(verb)


def test_two_values_in_one_store_are_reported(watched):
    """Lanes of one store that disagree about an element: the hardware picks one."""
    y = torch.zeros(2, dtype=torch.int32)
    assert only(watched(two_values_at_once, y), two_values_at_once, "race").index == (0,)


def launched(watched, kernel, order):
    """The watch of a last-block reduction of eight programs."""
    counter = torch.zeros(1, dtype=torch.int32)
    x, partial, total = torch.ones(8), torch.zeros(8), torch.zeros(1)
    watch = watched(kernel, x, partial, counter, total, 8, grid=(8,), order=order)
    assert total.item() == 8
    return watch


@pytest.mark.parametrize("order", ["forward", "reverse", ("drawn", 1)])
def test_a_last_block_reduction_is_no_race(watched, order):
    """The counter's acquire and release order the last program after all others."""
    assert not launched(watched, last_block, order).violations


@pytest.mark.parametrize("kernel", [last_block_relaxed, last_block_too_early])
def test_a_last_block_reduction_without_its_order_is_a_race(watched, kernel):
    """A relaxed counter orders nothing, and neither does one that is counted up before the store."""
    assert only(launched(watched, kernel, "forward"), kernel, "race").tensor == "partial"


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_spin_lock_orders_its_critical_sections(watched, order):
    """Compare-and-swap acquires what the exchange at the end of the section released."""
    total, lock = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    watch = watched(locked_sum, torch.ones(5), lock, total, grid=(5,), order=order)
    assert not watch.violations
    assert total.item() == 5


def test_atomics_do_not_race_with_each_other(watched):
    """A sum of atomics is reported by nobody; with a plain read of it in the same launch, it is."""
    total = torch.zeros(1)
    assert not watched(atomic_sum, torch.ones(5), total, grid=(5,)).violations
    watch = watched(peeking, torch.ones(5), total, grid=(5,))
    assert only(watch, peeking, "race").detail == "atomically changes what program (0, 0, 0) reads"


def test_a_declared_exception_is_silent(watched):
    """What a spec allows by name is not reported, on that tensor only."""
    y = torch.zeros(8, dtype=torch.int32)
    allowing = Sanitizer(allow=frozenset({"race:y"}))
    assert not watched(racing_store, y, 8, grid=(3,), watch=allowing).violations
    allowing = Sanitizer(allow=frozenset({"race:x"}))
    assert watched(racing_store, y, 8, grid=(3,), watch=allowing).violations


def test_one_line_is_reported_once(watched):
    """A kernel that errs in every program is one report a line, kind and tensor."""
    y = torch.zeros(8, dtype=torch.int32)
    assert len(watched(racing_store, y, 8, grid=(50,)).violations) == 1
