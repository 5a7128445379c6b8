"""Generated mutants of the block-scaled products that are no faults, and why each changes nothing."""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Equivalent

_in_linear = partial(Equivalent, module="bitproof.kernels.fp8_gemm.block_scaled_linear")
_in_tiles = partial(Equivalent, module="bitproof.kernels.fp8_gemm.tiles")

LINEAR = tuple(
    _in_linear(
        within="_multiply_tiles",
        old=f"mask={mask}, other=0)",
        new=f"mask={mask}{other})",
        because="where the mask is off, a row is not stored or no K block is left to take the scale",
    )
    for mask in (
        "some",
        "upper_mask & some",
        "lower_mask & some",
        "more",
        "upper_mask & more",
        "lower_mask & more",
    )
    for other in (", other=1", "")
)
TILES = tuple(
    _in_tiles(
        within="block_product",
        old=f"{operand}.to(tl.bfloat16)",
        new=f"{operand}.to(tl.float16).to(tl.bfloat16)",
        because="every e4m3 value is one of fp16 and of bf16, so that neither conversion rounds",
    )
    for operand in ("left", "right")
)
ALIGNMENT = (
    Equivalent(
        module="bitproof.kernels.fp8_gemm.align_tokens",
        within="_place",
        old="block * BLOCK < filled, owner",
        new="block * BLOCK < filled - 1, owner",
        because="filled is whole blocks, of 16 rows or more in a product: no block begins on its last row",
    ),
)
