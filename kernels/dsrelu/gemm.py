"""The product of the dsReLU backward pass over ragged experts, and what becomes of each tile of it.

One program computes one tile of BLOCK_M rows of one group by BLOCK_N columns. Groups are runs of rows; where
they begin is known to the device alone, so that a program finds its tile itself and the grid is an upper
bound. What a tile adds to sums over tiles it either adds atomically or parks in a slot that no other
program writes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bitproof.kernels.quantise.e4m3_rounding import to_e4m3
from bitproof.kernels.quantise.power_of_two_scales import covering_exponent, power_of_two

SCALED = tl.constexpr(32)  # elements that share one e8m0 scale
LARGEST = tl.constexpr(448.0)
TALL = tl.constexpr(4)  # M tiles that take each N tile one after the other
FLOOR = tl.constexpr(448.0 * 2.0**-127)  # the largest magnitude that e8m0's smallest scale covers


@triton.jit
def extents(offsets_ptr, rows, groups, GROUPS: tl.constexpr):
    """First row and end of every group, int32 [GROUPS]; the rows past the last one are group `groups`."""
    index = tl.arange(0, GROUPS)
    start = tl.load(offsets_ptr + index, mask=index <= groups, other=0)
    stop = tl.load(offsets_ptr + index + 1, mask=index < groups, other=0)
    return start, tl.where(index == groups, rows, stop)


@triton.jit
def find_tile(offsets_ptr, rows, groups, number, BLOCK_M: tl.constexpr, GROUPS: tl.constexpr):
    """(group, first row, end of the group, its first column-scale row) of tile `number`.

    The group is GROUPS or more where there are fewer tiles.
    """
    start, stop = extents(offsets_ptr, rows, groups, GROUPS)
    index = tl.arange(0, GROUPS)
    tiles = tl.cdiv(stop - start, BLOCK_M)
    ends = tl.cumsum(tiles, 0)
    group = tl.sum((ends <= number).to(tl.int32), 0)
    mine = index == group
    first = tl.sum(tl.where(mine, start + (number - ends + tiles) * BLOCK_M, 0), 0)
    end = tl.sum(tl.where(mine, stop, 0), 0)
    before = tl.sum(tl.where(index < group, tl.cdiv(stop - start, SCALED), 0), 0)
    begin = tl.sum(tl.where(mine, start, 0), 0)
    return group, first, end, before + (first - begin) // SCALED


@triton.jit
def _powers(code):
    """The powers of two of e8m0 codes in fp32; 255 is NaN."""
    power = (code.to(tl.int32) << 23).to(tl.float32, bitcast=True)
    return tl.where(code == 255, float("nan"), tl.where(code == 0, 2.0**-127, power))


@triton.jit
def _scaled_to_bf16(codes, scale, ROWS: tl.constexpr, DEPTH: tl.constexpr):
    """e4m3 [ROWS, DEPTH] times e8m0 [ROWS, DEPTH / 32], exact in bf16's normal range."""
    blocks = codes.to(tl.float32).reshape(ROWS, DEPTH // SCALED, SCALED)
    return (blocks * _powers(scale)[:, :, None]).reshape(ROWS, DEPTH).to(tl.bfloat16)


@triton.jit
def _operand(ptr, scale_ptr, inside, stride, k, depth, SCALES: tl.constexpr, BLOCK_K: tl.constexpr):
    """Columns k to k + BLOCK_K of the rows from `ptr` on, as bf16; zeros where `inside` is off."""
    ROWS: tl.constexpr = inside.shape[0]
    row = tl.arange(0, ROWS)
    column = k + tl.arange(0, BLOCK_K)
    mask = inside[:, None] & (column < depth)
    values = tl.load(ptr + row[:, None].to(tl.int64) * stride + column, mask=mask, other=0.0)
    if SCALES:
        per_row = tl.cdiv(depth, SCALED)
        block = k // SCALED + tl.arange(0, BLOCK_K // SCALED)
        place = scale_ptr + row[:, None] * per_row + block
        scale = tl.load(place, mask=inside[:, None] & (block < per_row), other=127)
        values = _scaled_to_bf16(values, scale, ROWS, BLOCK_K)
    return values


@triton.jit
def _quantised(blocks, AXIS: tl.constexpr):
    """(e4m3 codes, e8m0 codes) of `blocks`, one scale for the 32 values along AXIS of three.

    The scale is the smallest power of two 2^e with |x| <= 448 * 2^e; NaN, and NaN codes, where a value
    is not finite.
    """
    word = blocks.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    top = tl.max(word, AXIS)
    finite = top < 0x7F800000
    amax = tl.maximum(tl.where(finite, top, 0).to(tl.float32, bitcast=True), FLOOR)
    exponent = covering_exponent(amax, LARGEST)
    scaled = blocks * tl.expand_dims(power_of_two(-exponent), AXIS)
    scaled = tl.where(tl.expand_dims(finite, AXIS), scaled, float("nan"))
    return to_e4m3(scaled), tl.where(finite, exponent + 127, 255).to(tl.uint8)


@triton.jit
def _epilogue(
    acc,
    alpha,
    prob,
    first,
    end,
    owned,
    first_column,
    scale_row,
    c_ptr,
    c_stride,
    d_row_ptr,
    d_row_scale_ptr,
    d_col_ptr,
    d_col_scale_ptr,
    d_srelu_ptr,
    COLUMNS: tl.constexpr,
    QUANTISED: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Writes D and the recomputed activation of HEIGHT x WIDTH elements.

    Returns their sums over columns (dprob's share) and over rows (dbias's), and the bits of max |D|.
    """
    column = first_column + tl.arange(0, WIDTH)
    row = tl.arange(0, HEIGHT)
    mine = row < end - first
    inside = mine[:, None] & (column < COLUMNS)
    used = inside & owned
    # 64 bits where the tile begins; within, 32 for dense rows and 64 for those that may be any stride apart.
    start = first.to(tl.int64) * COLUMNS
    place = row[:, None] * COLUMNS + column
    c_ptr += first.to(tl.int64) * c_stride
    beneath = row[:, None].to(tl.int64) * c_stride
    c = tl.load(c_ptr + beneath + column, mask=used, other=0.0).to(tl.float32)
    r = tl.where(c > 0, c, 0.0)
    square = r * r
    g = alpha * acc
    d = tl.where(used, 2.0 * prob[:, None] * r * g, 0.0)
    tl.store(d_srelu_ptr + start + place, (prob[:, None] * square).to(tl.bfloat16), mask=inside)
    if QUANTISED:
        rows = tl.reshape(d, (HEIGHT, WIDTH // SCALED, SCALED))
        codes, scale = _quantised(rows, 2)
        tl.store(d_row_ptr + start + place, tl.reshape(codes, (HEIGHT, WIDTH)), mask=inside)
        per_row: tl.constexpr = (COLUMNS + SCALED - 1) // SCALED
        block = first_column // SCALED + tl.arange(0, WIDTH // SCALED)
        known = mine[:, None] & (block < per_row)
        d_row_scale_ptr += first.to(tl.int64) * per_row
        tl.store(d_row_scale_ptr + row[:, None] * per_row + block, scale, mask=known)
        columns = tl.reshape(d, (HEIGHT // SCALED, SCALED, WIDTH))
        codes, scale = _quantised(columns, 1)
        tl.store(d_col_ptr + start + place, tl.reshape(codes, (HEIGHT, WIDTH)), mask=inside)
        nth = tl.arange(0, HEIGHT // SCALED)
        known = (first + nth * SCALED < end)[:, None] & (column < COLUMNS)
        beside = (scale_row + nth).to(tl.int64)[:, None] * COLUMNS + column
        tl.store(d_col_scale_ptr + beside, scale, mask=known)
    else:
        tl.store(d_row_ptr + start + place, d.to(tl.bfloat16), mask=inside)
    share = tl.sum(tl.where(used, square * g, 0.0), 1)
    magnitude = d.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return share, tl.sum(d, 0), tl.max(tl.max(magnitude, 1), 0)


@triton.jit
def _deliver_columns(
    sums,
    first_column,
    number,
    group,
    owned,
    dbias_ptr,
    dbias_slots_ptr,
    COLUMNS: tl.constexpr,
    DETERMINISTIC: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A tile's sums over its rows to dbias, or to the slots of its M tile."""
    column = first_column + tl.arange(0, WIDTH)
    within = column < COLUMNS
    if DETERMINISTIC:
        tl.store(dbias_slots_ptr + number.to(tl.int64) * COLUMNS + column, sums, mask=within)
    else:
        place = dbias_ptr + group.to(tl.int64) * COLUMNS + column
        tl.atomic_add(place, sums, mask=within & owned, sem="relaxed")


@triton.jit
def _deliver_rows(
    share,
    first,
    mine,
    owned,
    n_tile,
    rows,
    dprob_ptr,
    dprob_slots_ptr,
    DETERMINISTIC: tl.constexpr,
):
    """A tile's sums over its columns to dprob, or to the slots of its N tile."""
    row = first + tl.arange(0, share.shape[0])
    if DETERMINISTIC:
        # Adding -0 changes no bit: rows that belong to nobody come out as they were.
        place = dprob_slots_ptr + (n_tile.to(tl.int64) * rows + row)
        tl.store(place, tl.where(owned, share, -0.0), mask=mine)
    else:
        tl.atomic_add(dprob_ptr + row, share, mask=mine & owned, sem="relaxed")


@triton.jit(do_not_specialize=["rows", "groups"])
def backward_tiles(
    a,
    a_scale_ptr,
    b,
    b_scale_ptr,
    c_ptr,
    prob_ptr,
    alpha_ptr,
    offsets_ptr,
    experts_ptr,
    d_row_ptr,
    d_row_scale_ptr,
    d_col_ptr,
    d_col_scale_ptr,
    d_srelu_ptr,
    dprob_ptr,
    dprob_slots_ptr,
    dbias_ptr,
    dbias_slots_ptr,
    amax_ptr,
    a_stride,
    c_stride,
    rows,
    groups,
    depth,
    COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr,
    GROUPS: tl.constexpr,
    DETERMINISTIC: tl.constexpr,
    QUANTISED: tl.constexpr,
    SCALES: tl.constexpr,
    DESCRIBED: tl.constexpr,
    SUBTILES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One program a tile, of an upper bound that TALL divides; see `kernels.dsrelu.backward` for arguments.

    `a` and `b` are TMA descriptors if DESCRIBED, else pointers. `amax_ptr` points to the bits of amax.
    """
    # A few programs in a row make a block of tiles TALL high, and so read fewer rows and columns than
    # they would along one row of tiles.
    stripe, place = tl.program_id(0) // (SLOTS * TALL), tl.program_id(0) % (SLOTS * TALL)
    number, n_tile = stripe * TALL + place % TALL, place // TALL
    group, first, end, scale_row = find_tile(offsets_ptr, rows, groups, number, BLOCK_M, GROUPS)
    if group <= groups:
        expert = tl.load(experts_ptr + group, mask=group < groups, other=-1)
        owned = expert >= 0
        expert = tl.maximum(expert, 0)
        mine = first + tl.arange(0, BLOCK_M) < end
        first_column = n_tile * BLOCK_N
        column = first_column + tl.arange(0, BLOCK_N)
        within = column < COLUMNS
        b_row = expert.to(tl.int64) * COLUMNS + first_column
        if not DESCRIBED:
            a_here, b_here = a + first.to(tl.int64) * a_stride, b + b_row * depth
            a_scale, b_scale = a_scale_ptr, b_scale_ptr
            if SCALES:
                per_row = tl.cdiv(depth, SCALED)
                a_scale, b_scale = a_scale + first.to(tl.int64) * per_row, b_scale + b_row * per_row
        alpha = tl.load(alpha_ptr + expert)
        prob = tl.load(prob_ptr + first + tl.arange(0, BLOCK_M), mask=mine & owned, other=0.0)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, tl.where(owned, depth, 0), BLOCK_K):
            if DESCRIBED:
                # Rows past the group and columns past the matrix bring values that nobody uses.
                left = a.load([first, k])
                right = b.load([expert * COLUMNS + first_column, k])
            else:
                left = _operand(a_here, a_scale, mine, a_stride, k, depth, SCALES, BLOCK_K)
                right = _operand(b_here, b_scale, within, depth, k, depth, SCALES, BLOCK_K)
            acc = tl.dot(left, right.T, acc)
        WIDTH: tl.constexpr = BLOCK_N // SUBTILES
        share = tl.zeros((BLOCK_M,), tl.float32)
        top = tl.full((), 0, tl.int32)
        for part in tl.static_range(SUBTILES):
            start = first_column + part * WIDTH
            some, sums, largest = _epilogue(
                _subtile(acc, part, SUBTILES, BLOCK_M, BLOCK_N),
                alpha,
                prob,
                first,
                end,
                owned,
                start,
                scale_row,
                c_ptr,
                c_stride,
                d_row_ptr,
                d_row_scale_ptr,
                d_col_ptr,
                d_col_scale_ptr,
                d_srelu_ptr,
                COLUMNS,
                QUANTISED,
                BLOCK_M,
                WIDTH,
            )
            share += some
            top = tl.maximum(top, largest)
            _deliver_columns(
                sums,
                start,
                number,
                group,
                owned,
                dbias_ptr,
                dbias_slots_ptr,
                COLUMNS,
                DETERMINISTIC,
                WIDTH,
            )
        _deliver_rows(
            share, first, mine, owned, n_tile, rows, dprob_ptr, dprob_slots_ptr, DETERMINISTIC
        )
        # Bits of magnitudes are ordered as the magnitudes are, NaN above all: the order never shows.
        tl.atomic_max(amax_ptr + group, top, mask=owned, sem="relaxed")


@triton.jit
def _subtile(
    acc, part: tl.constexpr, SUBTILES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr
):
    """Columns `part` * WIDTH / SUBTILES and on of `acc`, from registers."""
    chosen = acc
    if SUBTILES > 1:
        low, high = _halves(acc, HEIGHT, WIDTH)
        chosen = low if part < SUBTILES // 2 else high
    if SUBTILES == 4:
        first, second = _halves(chosen, HEIGHT, WIDTH // 2)
        chosen = first if part % 2 == 0 else second
    return chosen


@triton.jit
def _halves(acc, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    return acc.reshape(HEIGHT, 2, WIDTH // 2).permute(0, 2, 1).split()
