"""Mixture-of-experts prefill in block-scaled fp8, after FreeToken's `fused_experts_fp8_blockscale`.

For token t and its choice j of expert e with weight w:

    x8, sx          = hidden[t] quantised, a scale for 128 columns
    gate, up        = bf16(x8 W1[e]^T), halves of 2 I columns
    h8, sh          = silu(gate) * up quantised, a scale for 128 columns
    share[t, j]     = bf16(w * (h8 W2[e]^T))
    y[t]            = bf16(sum of share[t, j] over j with e >= 0, in order)

Both products are block-scaled (`kernels.fp8_gemm.block_scaled_linear`); sums are fp32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bitproof.harness.case import Launch
from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.fp8_gemm.activation import activate, add_choices
from bitproof.kernels.fp8_gemm.align_tokens import align
from bitproof.kernels.fp8_gemm.arguments import (
    CODES,
    SCALED,
    Tiling,
    require,
    require_dense,
    require_dense_rows,
    require_whole_blocks,
    tiling_of,
)
from bitproof.kernels.fp8_gemm.grouped_gemm import multiply_by_expert
from bitproof.kernels.quantise.per_token_group import per_token_group

_QUANTISER = Launch(block=1024)


def prefill(
    hidden: Tensor,
    w1: Tensor,
    w1_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    choices: Tensor,
    weights: Tensor,
    *,
    decoded: bool = False,
    tiling: Tiling | None = None,
) -> Tensor:
    """The outputs [T, H] bf16 of hidden [T, H] bf16, rows any stride apart.

    w1 [E, 2 I, H] and w2 [E, H, I] are e4m3 with scales w1_scale [E, 2 I / 128, H / 128] and w2_scale
    [E, H / 128, I / 128] fp32; choices [T, top_k] int32, experts or -1 for one that lives elsewhere and adds
    nothing here; weights [T, top_k] fp32. H and I are multiples of 128. `decoded` multiplies in bf16.
    ValueError: tensors that do not fit together.
    """
    tiling = tiling or Tiling()
    if tiling.parts != 1:
        raise ValueError(f"parts must be 1 for experts, it is {tiling.parts}")
    if hidden.dim() != 2 or w2.dim() != 3 or choices.dim() != 2:
        raise ValueError(
            "hidden and choices must be matrices, and w1 and w2 have an axis of experts"
        )
    (tokens, width), (experts, _, inner) = hidden.shape, w2.shape
    require_whole_blocks(H=width, I=inner)
    scales = {
        "w1_scale": (experts, 2 * inner // SCALED, width // SCALED),
        "w2_scale": (experts, width // SCALED, inner // SCALED),
    }
    require("hidden", hidden, (tokens, width), (torch.bfloat16,))
    require("w1", w1, (experts, 2 * inner, width), (CODES,))
    require("w2", w2, (experts, width, inner), (CODES,))
    require("w1_scale", w1_scale, scales["w1_scale"], (torch.float32,))
    require("w2_scale", w2_scale, scales["w2_scale"], (torch.float32,))
    require("choices", choices, tuple(choices.shape), (torch.int32,))
    require("weights", weights, (tokens, choices.shape[1]), (torch.float32,))
    if choices.shape[0] != tokens:
        raise ValueError(
            f"choices must have a row for each of {tokens} tokens: pass the same tokens"
        )
    require_dense_rows("hidden", hidden)
    dense = {"w1": w1, "w1_scale": w1_scale, "w2": w2, "w2_scale": w2_scale}
    for name, tensor in {**dense, "choices": choices, "weights": weights}.items():
        require_dense(name, tensor)
    routes, top_k = choices.numel(), choices.shape[1]
    quantised = per_token_group({"x": hidden}, {"group": SCALED, "launch": _QUANTISER})
    alignment = align(choices, experts=experts, block=tiling.block_m)
    gate_up = multiply_by_expert(
        quantised["y"],
        quantised["scale"],
        w1,
        w1_scale,
        alignment,
        routes=routes,
        top_k=top_k,
        decoded=decoded,
        tiling=tiling,
    )
    codes, scale = activate(gate_up, choices)
    shares = multiply_by_expert(
        codes,
        scale,
        w2,
        w2_scale,
        alignment,
        routes=routes,
        top_k=1,
        weights=weights,
        decoded=decoded,
        tiling=tiling,
    )
    return add_choices(shares, choices)


def moe_prefill(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`prefill` on the tensors of a case -> y."""
    names = ("hidden", "w1", "w1_scale", "w2", "w2_scale", "choices", "weights")
    operands = (tensors[name] for name in names)
    return {"y": prefill(*operands, decoded=params["decoded"], tiling=tiling_of(params))}
