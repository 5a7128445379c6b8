"""Planted faults of the token alignment and of the mixture of experts."""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Fault

_in_align = partial(Fault, module="bitproof.kernels.fp8_gemm.align_tokens", caught_by="agreement")
_in_gemm = partial(Fault, module="bitproof.kernels.fp8_gemm.grouped_gemm", caught_by="agreement")
_in_activation = partial(
    Fault, module="bitproof.kernels.fp8_gemm.activation", caught_by="agreement"
)
_in_prefill = partial(Fault, module="bitproof.kernels.fp8_gemm.moe_prefill", caught_by="agreement")

STALE_PADDING = "leaves padding rows as they were"
STALE_SCALE = "keeps the scales of an earlier call"

ALIGNMENT = (
    _in_align(
        name="ranks routes within their chunk alone",
        within="_place",
        old="(ends - padded + earlier)[None, :]",
        new="(ends - padded)[None, :]",
    ),
    _in_align(
        name="counts a route before itself",
        within="_place",
        old="index[None, :] < index[:, None]",
        new="index[None, :] <= index[:, None]",
    ),
    _in_align(
        name="begins experts in the middle of blocks",
        within="_place",
        old="padded = tl.cdiv(total, BLOCK) * BLOCK",
        new="padded = total",
    ),
    _in_align(
        name="gives the last block of an expert to the next",
        within="_place",
        old="(ends[None, :] <= (block * BLOCK)[:, None])",
        new="(ends[None, :] <= (block * BLOCK + BLOCK)[:, None])",
    ),
    _in_align(
        name="names an expert for blocks that nobody needs",
        within="_place",
        old="tl.where(block * BLOCK < filled, owner, -1)",
        new="owner",
    ),
    _in_align(
        name="places routes to experts elsewhere",
        within="_place",
        old="mask=(choice >= 0) & (choice < experts)",
        new="mask=(route < routes) & (choice < experts)",
    ),
    _in_align(
        name="counts routes and not rows",
        within="_place",
        old="filled = tl.sum(padded, 0)",
        new="filled = tl.sum(total, 0)",
    ),
    _in_align(
        name="makes blocks for experts that are equally busy",
        within="most_blocks",
        old="int(used + (routes - used) // block)",
        new="int(-(-routes // block))",
    ),
    _in_align(
        name=STALE_PADDING,
        within="align",
        old="torch.full((number * block,), count, dtype=torch.int32, device=device)",
        new="torch.empty((number * block,), dtype=torch.int32, device=device)",
        caught_by="reproducibility",
    ),
)

EXPERTS = (
    _in_gemm(
        name="reads and writes padding rows",
        within="_multiply_blocks",
        old="inside = route < routes",
        new="inside = route <= routes",
        caught_by="memory",
    ),
    _in_gemm(
        name="launches blocks for experts that are equally busy",
        within="multiply_by_expert",
        old="m_blocks = alignment.experts.numel()",
        new="m_blocks = -(-routes // tiling.block_m)",
    ),
    _in_gemm(
        name="takes the first expert's weights",
        within="_multiply_blocks",
        old="_weights(b, expert * columns + first_column,",
        new="_weights(b, first_column,",
    ),
    _in_gemm(
        name="takes the first expert's scales",
        within="_multiply_blocks",
        old="expert.to(tl.int64) * (columns // SCALED) + first_column",
        new="first_column",
    ),
    _in_gemm(
        name="takes the tokens' scales of the first K block",
        within="_multiply_blocks",
        old="a_scale_place + block + 1",
        new="a_scale_place",
    ),
    _in_gemm(
        name="takes the weights' scales of the first K block",
        within="_multiply_blocks",
        old="b_scale_place + block + 1",
        new="b_scale_place",
    ),
    _in_gemm(
        name="takes a neighbour's route weight",
        within="_multiply_blocks",
        old="weight_ptr + route",
        new="weight_ptr + route // 2",
    ),
    _in_prefill(
        name="applies the route weight in both products",
        within="prefill",
        old="        top_k=top_k,\n",
        new="        top_k=top_k,\n        weights=weights,\n",
    ),
    _in_prefill(
        name="leaves out the route weight",
        within="prefill",
        old="weights=weights,",
        new="weights=None,",
    ),
    _in_prefill(
        name="takes the activations of another token's choice",
        within="prefill",
        old="top_k=1,",
        new="top_k=top_k,",
    ),
    _in_prefill(
        name="keeps the alignment of an earlier call",
        within="prefill",
        old="alignment = align(choices, experts=experts, block=tiling.block_m)",
        new=(
            "found = align(choices, experts=experts, block=tiling.block_m)\n"
            "    alignment = vars(prefill).setdefault(str(tiling.block_m), found)"
        ),
    ),
    _in_activation(
        name="gates the wrong half",
        within="_activate",
        old="_silu(gate) * up",
        new="_silu(up) * gate",
    ),
    _in_activation(
        name="leaves out the activation",
        within="_silu",
        old="return x / (1.0 + tl.exp(-x))",
        new="return x",
    ),
    _in_activation(
        name="takes the scale of half a group",
        within="_activate",
        old="largest_magnitude(value)",
        new="0.5 * largest_magnitude(value)",
    ),
    _in_activation(
        name=STALE_SCALE,
        within="_activate",
        old="scale, mask=owned)",
        new="scale, mask=owned & (group > 0))",
        caught_by="reproducibility",
    ),
    _in_activation(
        name="adds shares that nobody made",
        within="_add_choices",
        old="tl.load(choices_ptr + route) >= 0",
        new="tl.load(choices_ptr + route) >= -1",
    ),
    _in_activation(
        name="drops the last choice",
        within="_add_choices",
        old="tl.static_range(TOP_K)",
        new="tl.static_range(TOP_K - 1)",
    ),
)
