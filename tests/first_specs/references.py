"""What the kernels mean, in torch: as a stranger has it, casts and all."""

from __future__ import annotations

import torch


def row_norm(x, w, eps):
    """In fp32, then in the type of x."""
    wide = x.float()
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (y * w.float()).to(x.dtype)


def masked_softmax(x, keep):
    """Zeros for a row of which nothing is kept."""
    y = torch.softmax(x.float().masked_fill(~keep, float("-inf")), -1)
    return torch.where(keep.any(-1, keepdim=True), y, 0.0).to(x.dtype)


def swiglu_int8(x):
    """Symmetric codes, ties away from zero."""
    gate, up = x.float().chunk(2, -1)
    h = torch.nn.functional.silu(gate) * up
    scale = h.abs().amax(-1).clamp(min=1e-8) / 127
    q = h / scale[:, None]
    q = torch.where(q >= 0, torch.floor(q + 0.5), -torch.floor(0.5 - q))
    return q.clamp(-127, 127).to(torch.int8), scale


def scatter_add(x, index, target):
    """Padding goes to one row more, which is cut off."""
    y = torch.zeros(target.shape[0] + 1, x.shape[1], dtype=torch.float32, device=x.device)
    into = torch.where(index < 0, target.shape[0], index)
    return y.index_add(0, into, x)[:-1]


def packed_mean(x, cu_seqlens):
    """Sequence by sequence."""
    parts = torch.tensor_split(x.float(), cu_seqlens[1:-1].cpu().long())
    return torch.stack([part.sum(0) / max(part.shape[0], 1) for part in parts])
