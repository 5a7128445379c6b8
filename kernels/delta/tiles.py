"""Tiles of packed delta-rule operands: which rows a chunk has, normalisation, decayed halves, products.

Rows of all sequences lie one after another; `cu_seqlens` [N + 1] says where each begins. The rows past its
last entry are slack: they are counted as one more sequence, number N, so that somebody writes the zeros
that are their outputs.
"""

from __future__ import annotations

import triton
import triton.language as tl

CHUNK = tl.constexpr(64)
LEVELS = tl.constexpr(6)  # a chunk is halved so many times
BLOCK_LEVEL = tl.constexpr(4)  # pairs within blocks of 2^4 rows need one product with bounded gates
SHIFT = tl.constexpr(37.5)
LOG2_E = tl.constexpr(1.4426950408889634)
EPSILON = tl.constexpr(1e-6)


@triton.jit
def extents(cu_ptr, tokens, sequences, N: tl.constexpr):
    """(number, first row, end) of every sequence and of the slack rows, int32 [N], N a power of two."""
    index = tl.arange(0, N)
    start = tl.load(cu_ptr + index, mask=index <= sequences, other=0)
    stop = tl.load(cu_ptr + index + 1, mask=index < sequences, other=0)
    return index, start, tl.where(index == sequences, tokens, stop)


@triton.jit
def find_chunk(cu_ptr, tokens, sequences, number, N: tl.constexpr):
    """(sequence, first row, end of the sequence) of chunk `number`; N or more where there is none."""
    index, start, stop = extents(cu_ptr, tokens, sequences, N)
    chunks = tl.cdiv(stop - start, CHUNK)
    ends = tl.cumsum(chunks, 0)
    sequence = tl.sum((ends <= number).to(tl.int32), 0)
    mine = index == sequence
    first = tl.sum(tl.where(mine, start + (number - ends + chunks) * CHUNK, 0), 0)
    return sequence, first, tl.sum(tl.where(mine, stop, 0), 0)


@triton.jit
def find_sequence(cu_ptr, tokens, sequences, number, N: tl.constexpr):
    """(first row, end, number of its first chunk) of sequence `number`."""
    index, start, stop = extents(cu_ptr, tokens, sequences, N)
    mine = index == number
    before = tl.sum(tl.where(index < number, tl.cdiv(stop - start, CHUNK), 0), 0)
    return tl.sum(tl.where(mine, start, 0), 0), tl.sum(tl.where(mine, stop, 0), 0), before


@triton.jit
def row_places(ptr, first, end, heads, head, column, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """(pointers [64, BLOCK], mask) of columns `column` on of a tensor [T, heads, WIDTH]."""
    row = tl.arange(0, CHUNK)
    index = column + tl.arange(0, BLOCK)
    # 64 bits where the tile begins, 32 within.
    start = ptr + (first.to(tl.int64) * heads + head) * WIDTH
    mask = (first + row < end)[:, None] & (index < WIDTH)[None, :]
    return start + row[:, None] * (heads * WIDTH) + index[None, :], mask


@triton.jit
def load_rows(ptr, first, end, heads, head, column, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """What lies there, in its own type, zeros past the end."""
    place, mask = row_places(ptr, first, end, heads, head, column, WIDTH, BLOCK)
    return tl.load(place, mask=mask, other=0.0)


@triton.jit
def store_rows(
    ptr, values, first, end, heads, head, column, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """The counterpart of `load_rows`, rounded to the tensor's type."""
    place, mask = row_places(ptr, first, end, heads, head, column, WIDTH, BLOCK)
    tl.store(place, values.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def inverse_norm(x, NORMALISE: tl.constexpr):
    """1 / sqrt(sum x^2 + 1e-6) of each row of fp32 `x`, [64, 1]; ones where nothing is normalised."""
    norm = tl.full((CHUNK,), 1.0, tl.float32)
    if NORMALISE:
        norm = 1.0 / tl.sqrt_rn(tl.sum(x * x, 1) + EPSILON)
    return norm[:, None]


@triton.jit
def load_norm(
    ptr, first, end, heads, head, WIDTH: tl.constexpr, PADDED: tl.constexpr, NORMALISE: tl.constexpr
):
    """`inverse_norm` of whole rows."""
    x = load_rows(ptr, first, end, heads, head, 0, WIDTH, PADDED).to(tl.float32)
    return inverse_norm(x, NORMALISE)


@triton.jit
def load_unit(
    ptr,
    norm,
    first,
    end,
    heads,
    head,
    column,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    STORED: tl.constexpr,
):
    """Columns of q or k times `norm` [64, 1], rounded to STORED, as fp32."""
    x = load_rows(ptr, first, end, heads, head, column, WIDTH, BLOCK).to(tl.float32)
    return (x * norm).to(STORED).to(tl.float32)


@triton.jit
def natural_exp(x):
    """e^x by the hardware's power of two."""
    return tl.exp2(x * LOG2_E)


@triton.jit
def lower_half(level):
    """Which rows lie in the lower half of their block of 2 * 2^level rows."""
    return (tl.arange(0, CHUNK) >> level) & 1 == 1


@triton.jit
def quarter(level):
    """Which of [64, 64] lie in the lower-left quarter of a diagonal block of 2 * 2^level."""
    block = tl.arange(0, CHUNK) >> (level + 1)
    lower = lower_half(level)
    return (block[:, None] == block[None, :]) & lower[:, None] & (lower == 0)[None, :]


@triton.jit
def half_factors(decay_ptr, tile, column, decay, level, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """(decay of lower rows from their block's first lower row, of upper rows until it), zero elsewhere.

    `decay` is the columns from `column` on of tile `tile`. Neither half looks past the row that a product of
    the two belongs to, and neither exceeds 1.
    """
    first_lower = (tl.arange(0, CHUNK) >> level | 1) << level
    distance = decay - load_decays(decay_ptr, tile, first_lower, column, PADDED, BLOCK)
    under = lower_half(level)[:, None]
    fade = natural_exp(tl.where(under, distance, -distance))
    return tl.where(under, fade, 0.0), tl.where(under, 0.0, fade)


@triton.jit
def near():
    """Which of [64, 64] lie below the diagonal of a diagonal block of 16."""
    row = tl.arange(0, CHUNK)
    block = row >> BLOCK_LEVEL
    return (block[:, None] == block[None, :]) & (row[:, None] > row[None, :])


@triton.jit
def near_factors(decay_ptr, tile, column, decay, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """(decay from the first row of the block of 16, its inverse), both within e^37.5 of 1.

    For log-decays of at least -5, 15 of which come to -75; the shift of half that is a constant, so that no
    row looks at a later one.
    """
    anchor = tl.arange(0, CHUNK) >> BLOCK_LEVEL << BLOCK_LEVEL
    distance = decay - load_decays(decay_ptr, tile, anchor, column, PADDED, BLOCK) + SHIFT
    return natural_exp(distance), natural_exp(-distance)


@triton.jit
def load_decays(decay_ptr, tile, row, column, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """Cumulative log-decays of rows `row` of a tile, columns from `column` on, [rows, BLOCK] in fp32."""
    index = column + tl.arange(0, BLOCK)
    start = decay_ptr + tile.to(tl.int64) * (CHUNK * PADDED)
    return tl.load(start + row[:, None] * PADDED + index[None, :])


@triton.jit
def load_last(decay_ptr, tile, column, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """Those of a tile's last row, [1, BLOCK]: what the whole chunk decays by."""
    last = tl.full((1,), CHUNK - 1, tl.int32)
    return load_decays(decay_ptr, tile, last, column, PADDED, BLOCK)


@triton.jit
def product(a, b, total=None):
    """a @ b in fp32, plus `total`; where one of them is fp32, a tensor core reads both as tf32."""
    if a.dtype == tl.float32 or b.dtype == tl.float32:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="tf32")


@triton.jit
def parts(x):
    """(high, low): two bf16 numbers whose sum is a finite fp32 `x` to within 2^-17 of it."""
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def fine_product(a, b, stored):
    """a @ b in fp32, where a policy keeps some in fp32 and others as `stored` is.

    Beside bf16, what is fp32 is read as two bf16 parts: eight bits finer than tf32, and quicker, since a
    tensor core takes bf16 as it lies in shared memory, transposed or not.
    """
    if stored.dtype != tl.bfloat16:
        total = product(a, b)
    elif a.dtype == tl.float32:
        high, low = parts(a)
        if b.dtype == tl.float32:
            b, rest = parts(b)
            total = tl.dot(high, b, tl.dot(high, rest, tl.dot(low, b)))
        else:
            total = tl.dot(high, b, tl.dot(low, b))
    elif b.dtype == tl.float32:
        high, low = parts(b)
        total = tl.dot(a, high, tl.dot(a, low))
    else:
        total = tl.dot(a, b)
    return total


@triton.jit
def columns_of(
    ptr, tile, first_column, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Pointers [HEIGHT, BLOCK] to columns of tile `tile` of a workspace [.., HEIGHT, WIDTH]."""
    row = tl.arange(0, HEIGHT)[:, None]
    column = first_column + tl.arange(0, BLOCK)[None, :]
    return ptr + tile.to(tl.int64) * (HEIGHT * WIDTH) + row * WIDTH + column


@triton.jit
def load_tile(ptr, tile, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """All of tile `tile`."""
    return tl.load(columns_of(ptr, tile, 0, HEIGHT, WIDTH, WIDTH))


@triton.jit
def store_tile(ptr, tile, values):
    """The counterpart of `load_tile`, rounded to the workspace's type."""
    HEIGHT: tl.constexpr = values.shape[0]
    WIDTH: tl.constexpr = values.shape[1]
    place = columns_of(ptr, tile, 0, HEIGHT, WIDTH, WIDTH)
    tl.store(place, values.to(ptr.dtype.element_ty))
