"""The fixed-order sums of the slots that `kernels.dsrelu.gemm` parks in deterministic mode."""

from __future__ import annotations

import triton
import triton.language as tl

from bitproof.kernels.dsrelu.gemm import extents


@triton.jit(do_not_specialize=["rows", "groups", "row_blocks"])
def add_slots(
    dprob_ptr,
    dprob_slots_ptr,
    dbias_ptr,
    dbias_slots_ptr,
    offsets_ptr,
    experts_ptr,
    rows,
    groups,
    row_blocks,
    COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
):
    """Adds to dprob the slots of each row, to dbias those of each group, as atomics would have.

    The first `row_blocks` programs take BLOCK_ROWS rows each, the others BLOCK_COLUMNS columns of one
    group. Slots are added in the order of their tiles.
    """
    number = tl.program_id(0)
    if number < row_blocks:
        _add_rows(dprob_ptr, dprob_slots_ptr, rows, number, SLOTS, BLOCK_ROWS)
    else:
        column_blocks: tl.constexpr = (COLUMNS + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS
        group = (number - row_blocks) // column_blocks
        first_column = (number - row_blocks) % column_blocks * BLOCK_COLUMNS
        start, stop = extents(offsets_ptr, rows, groups, GROUPS)
        index = tl.arange(0, GROUPS)
        tiles = tl.cdiv(stop - start, BLOCK_M)
        first = tl.sum(tl.where(index < group, tiles, 0), 0)
        count = tl.sum(tl.where(index == group, tiles, 0), 0)
        if (count > 0) & (tl.load(experts_ptr + group) >= 0):
            column = first_column + tl.arange(0, BLOCK_COLUMNS)
            within = column < COLUMNS
            total = tl.zeros((BLOCK_COLUMNS,), tl.float32)
            for i in range(0, count, BLOCK_TILES):
                tile = i + tl.arange(0, BLOCK_TILES)
                place = (first + tile).to(tl.int64)[:, None] * COLUMNS + column
                mask = (tile < count)[:, None] & within
                total += tl.sum(tl.load(dbias_slots_ptr + place, mask=mask, other=0.0), 0)
            place = dbias_ptr + group.to(tl.int64) * COLUMNS + column
            tl.store(place, tl.load(place, mask=within) + total, mask=within)


@triton.jit
def _add_rows(
    dprob_ptr,
    dprob_slots_ptr,
    rows,
    number,
    SLOTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    row = number.to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    mine = row < rows
    total = tl.load(dprob_slots_ptr + row, mask=mine, other=0.0)
    for slot in tl.static_range(1, SLOTS):
        place = dprob_slots_ptr + slot * rows.to(tl.int64) + row
        total += tl.load(place, mask=mine, other=0.0)
    tl.store(dprob_ptr + row, tl.load(dprob_ptr + row, mask=mine) + total, mask=mine)
