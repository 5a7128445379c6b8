"""Program orders, and what shows only when they differ."""

import json

import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness.errors import UsageError
from bitproof.harness.lanes.interpreter import order


@triton.jit
def finishing(log, counter):
    """Log the programs' numbers in the order in which they finish."""
    place = tl.atomic_add(counter, 1)
    y, z = tl.num_programs(1), tl.num_programs(2)
    number = (tl.program_id(0) * y + tl.program_id(1)) * z + tl.program_id(2)
    tl.store(log + place, number)


@triton.jit
def atomic_sum(x, total):
    """One atomic term a program."""
    tl.atomic_add(total, tl.load(x + tl.program_id(0)))


@triton.jit
def completion_order_sum(x, slots, counter, total, n: tl.constexpr):
    """The last program adds terms in the order in which the others finished."""
    place = tl.atomic_add(counter, 1)
    tl.store(slots + place, tl.load(x + tl.program_id(0)))
    if place == n - 1:
        sum = tl.load(slots)
        for i in tl.static_range(1, n):
            sum += tl.load(slots + i)
        tl.store(total, sum)


@triton.jit
def neighbours(x, n: tl.constexpr):
    """Each program reads what the next one writes."""
    here = tl.program_id(0)
    tl.store(x + here, tl.load(x + (here + 1) % n) + 1)


ORDERS = order.orders(8, seed=0)


@pytest.fixture
def run(watched):
    """The programs of a (2, 3, 4) grid as they finished under one order."""

    def finished(which):
        log, counter = torch.full((24,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        watched(finishing, log, counter, grid=(2, 3, 4), order=which)
        return log.tolist()

    return finished


def test_forward_is_the_stock_order():
    """With or without a session, "forward" is what Triton's own interpreter does."""
    log, counter = torch.empty(24, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    finishing[(2, 3, 4)](log, counter)
    assert log.tolist() == list(range(24)) == list(order.sequence("forward", 24))


def test_reverse_runs_the_last_program_first(run):
    """Reverse is the forward order backwards, over all three axes of the grid."""
    assert run("reverse") == list(range(23, -1, -1))


def test_a_drawn_order_runs_every_program_once(run):
    """A drawn order is a permutation of the whole grid, not only within an axis."""
    drawn = run(("drawn", 5))
    assert sorted(drawn) == list(range(24))
    assert len({number // 12 for number in drawn[:12]}) == 2


def test_an_order_is_its_value(run):
    """The same drawn order comes back from JSON, and another seed gives another."""
    assert run(json.loads(json.dumps(("drawn", 5)))) == run(("drawn", 5)) != run(("drawn", 6))


def test_orders_are_distinct_and_begin_with_the_two_plain_ones():
    """Asking for n orders gives n different ones; a seed decides all but the first two."""
    assert ORDERS[:2] == ("forward", "reverse")
    assert len({tuple(order.sequence(one, 24)) for one in ORDERS}) == 8
    assert order.orders(1, seed=3) == ("forward",)
    assert order.orders(3, seed=3) != order.orders(3, seed=4)


@pytest.mark.parametrize("unknown", ["backward", ("drawn",), ("drawn", "x"), 3])
def test_an_unknown_order_is_refused(unknown):
    """What is not an order is an error that says what is."""
    with pytest.raises(UsageError, match="reverse"):
        order.sequence(unknown, 4)


def outcomes(launch):
    """The distinct bit patterns that `launch(order)` returns over eight orders."""
    return {tuple(launch(which).view(torch.int32).tolist()) for which in ORDERS}


@pytest.mark.parametrize(("terms", "agree"), [([2.0**24, 1.0], True), ([2.0**24, 1.0, 1.0], False)])
def test_an_atomic_sum_of_three_terms_depends_on_the_order(watched, terms, agree):
    """fp32 addition is commutative but not associative: two terms agree in any order, three do not."""

    def launch(which):
        total = torch.zeros(1)
        watched(atomic_sum, torch.tensor(terms), total, grid=(len(terms),), order=which)
        return total

    assert (len(outcomes(launch)) == 1) == agree


def test_a_sum_in_completion_order_depends_on_the_order(watched):
    """Partial sums stored in the order in which programs finish add up differently."""

    def launch(which):
        x = torch.tensor([2.0**24, 1.0, 1.0, 1.0])
        slots, counter, total = torch.zeros(4), torch.zeros(1, dtype=torch.int32), torch.zeros(1)
        watched(completion_order_sum, x, slots, counter, total, 4, grid=(4,), order=which)
        return total

    assert len(outcomes(launch)) > 1


def test_a_read_of_what_another_program_writes_depends_on_the_order(watched):
    """Programs that read their neighbour's result see it or not, depending on who ran first."""

    def launch(which):
        x = torch.zeros(6, dtype=torch.int32)
        watched(neighbours, x, 6, grid=(6,), order=which)
        return x

    assert len(outcomes(launch)) > 1
