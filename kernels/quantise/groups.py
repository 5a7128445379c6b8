"""A matrix seen as groups of consecutive elements of a row: which elements a program handles, their amax.

Groups are numbered row by row. A program handles `TILE` consecutive groups, whatever rows they are in,
so that many short rows cost no more programs than few long ones. The last group of a row may be partial.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bitproof.harness.case import Inputs, Launch
from bitproof.harness.spec import Fault


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


def program(inputs: Inputs, row: int, column: int, group: int) -> str:
    """Which program handles the element of `x` at (row, column), for reports."""
    per_row = triton.cdiv(inputs.tensors["x"].shape[1], group)
    return f"program ({(row * per_row + column // group) // tile(inputs.launch, group)},)"


def tile(launch: Launch, group: int) -> int:
    """Groups per program: `launch.block` counts elements."""
    return max(launch.block // group, 1)


def faults(*names: str) -> tuple[Fault, ...]:
    """The planted faults of this module, or those called `names`, for the specs of its importers."""
    return tuple(fault for fault in _FAULTS if not names or fault.name in names)


def _fault(name: str, within: str, old: str, new: str, caught_by: str) -> Fault:
    return Fault(
        name=name,
        within=within,
        old=old,
        new=new,
        caught_by=caught_by,
        module="bitproof.kernels.quantise.groups",
    )


_FAULTS = (
    _fault(
        "does not mask the tail of a row", "tile_of_groups", " & (column < columns)", "", "memory"
    ),
    _fault(
        "does not mask the last program's surplus groups",
        "tile_of_groups",
        "(number < groups)[:, None] & (column < columns)",
        "column < columns",
        "memory",
    ),
    _fault(
        "takes the magnitude of positive values alone",
        "largest_magnitude",
        "tl.abs(x)",
        "x",
        "agreement",
    ),
    _fault(
        "shares one amax between the groups of a program",
        "largest_magnitude",
        "tl.max(magnitude, axis=1)",
        "tl.zeros_like(tl.max(magnitude, axis=1)) + tl.max(magnitude)",
        "invariances",
    ),
)
