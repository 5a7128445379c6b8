"""A matrix seen as groups of consecutive elements of a row: which elements a program handles, their amax.

Groups are numbered row by row. A program handles `TILE` consecutive groups, whatever rows they are in,
so that many short rows cost no more programs than few long ones. The last group of a row may be partial.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_of_groups(columns, groups, per_row, GROUP: tl.constexpr, TILE: tl.constexpr):
    """(number, row, column, inside): the groups of this program and the elements in them.

    number and row are [TILE] int64, column [TILE, GROUP] int64; `inside` masks the elements that the
    matrix has. Offsets are 64 bits wide: a row's offset passes 2^31 long before memory ends.
    """
    number = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    row = number // per_row
    column = (number % per_row * GROUP)[:, None] + tl.arange(0, GROUP)[None, :]
    inside = (number < groups)[:, None] & (column < columns)
    return number, row, column, inside


@triton.jit
def largest_magnitude(x):
    """The largest |x| along the last axis over the elements that are not NaN; 0 if there is none."""
    magnitude = tl.where(x == x, tl.abs(x), 0.0)
    return tl.max(magnitude, axis=1)
