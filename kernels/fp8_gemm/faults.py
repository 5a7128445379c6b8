"""Planted faults of the block-scaled linear and of its form for one token."""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Fault

_in_tiles = partial(Fault, module="bitproof.kernels.fp8_gemm.tiles", caught_by="agreement")
_in_linear = partial(
    Fault, module="bitproof.kernels.fp8_gemm.block_scaled_linear", caught_by="agreement"
)
_in_split = partial(Fault, module="bitproof.kernels.fp8_gemm.split_k_linear", caught_by="agreement")

STALE_ROW = "leaves the last row as it was"
_BOTH = "both = scale_of(scale, POWERS) * weight"
_PROMOTED = "upper = promote(upper, block_product(left, right, DECODED), both)"
_SCALES = (
    _in_linear(
        name="takes the tokens' scales for the weights'",
        within="_multiply_tiles",
        old=_BOTH,
        new="both = scale_of(scale, POWERS) * scale_of(scale, POWERS)",
    ),
    _in_linear(
        name="applies the last scales to the whole sum",
        within="_multiply_tiles",
        old=_PROMOTED,
        new=(
            "last = tl.where(more, 1.0, both)\n"
            "        upper = (upper + block_product(left, right, DECODED)) * last[:, None]"
        ),
    ),
    _in_linear(
        name="takes the weights' scales of the first K block",
        within="_multiply_tiles",
        old="b_scale_ptr + block + 1",
        new="b_scale_ptr",
    ),
    _in_linear(
        name="takes the weights' scales of the first columns",
        within="_multiply_tiles",
        old="(first_column // SCALED).to(tl.int64) * per_row",
        new="first_column * 0",
    ),
    _in_linear(
        name="takes the tokens' scales of the first K block",
        within="_multiply_tiles",
        old="upper_place += a_scale_block",
        new="upper_place += 0",
    ),
    _in_linear(
        name="takes the upper part's scales for the lower part",
        within="_multiply_tiles",
        old="lower_both = scale_of(lower_scale, POWERS) * weight",
        new="lower_both = both",
    ),
)

LINEAR = (
    *_SCALES,
    _in_linear(
        name="rounds the product of two scales to bf16",
        within="_multiply_tiles",
        old=_BOTH,
        new="both = (scale_of(scale, POWERS) * weight).to(tl.bfloat16).to(tl.float32)",
    ),
    _in_linear(
        name="drops the promotion",
        within="_multiply_tiles",
        old=_PROMOTED,
        new=("upper = tl.dot(left, right.T, upper / both[:, None]) * both[:, None]"),
        lanes=("cuda",),
        because="the interpreter sums products without the tensor core's cuts, however many there are",
    ),
    _in_tiles(
        name="accumulates in bf16",
        within="promote",
        old="return tl.fma(product, tl.broadcast_to(scale[:, None], product.shape), acc)",
        new=(
            "total = tl.fma(product, tl.broadcast_to(scale[:, None], product.shape), acc)\n"
            "    return total.to(tl.bfloat16).to(tl.float32)"
        ),
    ),
    _in_linear(
        name="reads on past the end of a row",
        within="_operand",
        old="(row < rows)[:, None] & (column < depth)",
        new="(row < rows)[:, None] & (column >= 0)",
    ),
    _in_linear(
        name="writes the row after the last",
        within="_store",
        old="(row < rows)[:, None] & (column < columns)",
        new="(row <= rows)[:, None] & (column < columns)",
        caught_by="memory",
    ),
    _in_linear(
        name="launches whole tiles of rows alone",
        within="multiply",
        old="triton.cdiv(m, tiling.block_m) * ",
        new="max(m // tiling.block_m, 1) * ",
    ),
    _in_linear(
        name="drops the last K block",
        within="_multiply_tiles",
        old="for block in range(per_row):",
        new="for block in range(tl.maximum(per_row - 1, 1)):",
    ),
    _in_linear(
        name=STALE_ROW,
        within="_store",
        old="(row < rows)[:, None] & (column < columns)",
        new="(row < rows - 1)[:, None] & (column < columns)",
        caught_by="reproducibility",
    ),
    _in_linear(
        name="compiles for the number of rows",
        within="_multiply_tiles",
        old='do_not_specialize=["rows", "a_scale_block"]',
        new='do_not_specialize=["a_scale_block"]',
        caught_by="compile_cache",
    ),
)

POWERS = (
    *_SCALES,
    _in_tiles(
        name="takes 128 for the bias of a scale",
        within="scale_of",
        old="code.to(tl.int32) << 23",
        new="(code.to(tl.int32) - 1) << 23",
    ),
    _in_tiles(
        name="takes code 0 for zero",
        within="scale_of",
        old="tl.where(code == 0, 2.0**-127, power)",
        new="power",
    ),
    _in_linear(
        name=STALE_ROW,
        within="_store",
        old="(row < rows)[:, None] & (column < columns)",
        new="(row < rows - 1)[:, None] & (column < columns)",
        caught_by="reproducibility",
    ),
)

VECTOR = (
    _in_split(
        name="adds partial sums as they come",
        within="multiply_vector",
        old="kept = splits if ordered else 1",
        new="ordered, kept = False, 1",
        caught_by="reproducibility",
    ),
    _in_split(
        name="drops the last split",
        within="_add_slots",
        old="tl.static_range(1, SLOTS)",
        new="tl.static_range(1, SLOTS - 1)",
    ),
    _in_split(
        name="adds a slot that nobody wrote",
        within="_add_slots",
        old="tl.static_range(1, SLOTS)",
        new="tl.static_range(1, SLOTS + 1)",
        caught_by="memory",
    ),
    _in_split(
        name="gives all splits one slot",
        within="_add_blocks",
        old="tl.program_id(1).to(tl.int64) * columns",
        new="tl.program_id(1).to(tl.int64) * 0",
    ),
    _in_split(
        name="leaves out the blocks that splits do not divide",
        within="_add_blocks",
        old="each = tl.cdiv(per_row, SPLITS)",
        new="each = per_row // SPLITS",
    ),
    _in_split(
        name="takes the scale of a split's first block",
        within="_add_blocks",
        old="b_scale_ptr + block",
        new="b_scale_ptr + first",
    ),
    _in_split(
        name="takes the scales of the first columns",
        within="_add_blocks",
        old="(first_column // SCALED).to(tl.int64) * per_row",
        new="first_column * 0",
    ),
    _in_split(
        name="parks partial sums in bf16",
        within="_add_blocks",
        old="tl.store(slot + column, share, mask=inside)",
        new="tl.store(slot + column, share.to(tl.bfloat16).to(tl.float32), mask=inside)",
    ),
    _in_split(
        name="quantises x",
        within="_add_blocks",
        old="mask=k < depth, other=0.0).to(tl.float32)",
        new="mask=k < depth, other=0.0).to(tl.float8e4nv).to(tl.float32)",
    ),
)
