"""What the block-scaled products share: scales, operands of one K block, the product of one K block.

A K block is the 128 elements along K that share a scale. Its product is summed apart, by the tensor core
from zero, and then added to the accumulator in fp32 by one fused multiply-add with the product of the two
scales: that promotes what a tensor core sums with few bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

SCALED = tl.constexpr(128)  # elements along K, and columns of weights, that share one scale


@triton.jit
def find_tile(rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TALL: tl.constexpr):
    """(M tile, N tile) of this program: TALL M tiles take each N tile one after the other.

    Neighbouring programs then read fewer rows and columns than along one row of tiles.
    """
    m_tiles = tl.cdiv(rows, BLOCK_M)
    n_tiles = tl.cdiv(columns, BLOCK_N)
    stripe = tl.program_id(0) // (TALL * n_tiles)
    height = tl.minimum(m_tiles - stripe * TALL, TALL)
    place = tl.program_id(0) % (TALL * n_tiles)
    return stripe * TALL + place % height, place // height


@triton.jit
def scale_of(code, POWERS: tl.constexpr):
    """Scales in fp32: as they are, or the powers of two of e8m0 codes, of which 255 is NaN."""
    if POWERS:
        power = (code.to(tl.int32) << 23).to(tl.float32, bitcast=True)
        code = tl.where(code == 255, float("nan"), tl.where(code == 0, 2.0**-127, power))
    return code


@triton.jit
def block_product(left, right, DECODED: tl.constexpr):
    """[M, 128] e4m3 times [N, 128] e4m3 transposed, summed from zero in fp32; in bf16 if DECODED."""
    if DECODED:
        # Every e4m3 value is one of bf16.
        left, right = left.to(tl.bfloat16), right.to(tl.bfloat16)
    return tl.dot(left, right.T)


@triton.jit
def promote(acc, product, scale):
    """acc + product * scale, rounded once: [M, N], [M, N] and a scale for each row."""
    return tl.fma(product, tl.broadcast_to(scale[:, None], product.shape), acc)
