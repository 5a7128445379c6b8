"""Program orders: the sequence in which the interpreter runs the programs of a grid.

A GPU promises no order, the stock interpreter always keeps the same one. An order is a plain value
that a record can carry: "forward" (the stock sequence), "reverse", or ("drawn", seed), a permutation
of the whole grid that an integer hash decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch

from bitproof.harness import generators
from bitproof.harness.errors import UsageError

Order = Literal["forward", "reverse"] | tuple[Literal["drawn"], int]


def orders(count: int, seed: int) -> tuple[Order, ...]:
    """`count` distinct orders: forward, reverse, then ones drawn from `seed`, `seed + 1`, ..."""
    drawn: tuple[Order, ...] = tuple(("drawn", seed + i) for i in range(count - 2))
    return ("forward", "reverse", *drawn)[:count]


def sequence(order: Any, programs: int) -> Sequence[int]:
    """The program numbers 0 ... `programs` - 1 in the order named.

    None means forward; the list ["drawn", seed] that JSON gives back is accepted too. Raises
    UsageError on anything else.
    """
    match order:
        case None | "forward":
            return range(programs)
        case "reverse":
            return range(programs - 1, -1, -1)
        case ["drawn", int(seed)]:
            numbers: list[int] = generators.permutation(
                seed, programs, torch.device("cpu")
            ).tolist()
            return numbers
    raise UsageError(f"{order!r} is no program order: say forward, reverse or ('drawn', seed).")


def coordinates(order: Any, grid: Sequence[int]) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """(program number, (x, y, z)) for each program of a three-axis `grid`, in the order named.

    Programs are numbered as the stock interpreter runs them, the last axis fastest.
    """
    nx, ny, nz = grid
    for number in sequence(order, nx * ny * nz):
        yield number, (number // (ny * nz), number // nz % ny, number % nz)
