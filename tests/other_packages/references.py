"""What Liger's kernels mean, in torch and in the types that their documentation names."""

from __future__ import annotations

import torch


def rms_norm(x, w, eps):
    """As Llama has it: normalised in fp32, times the weight in the type of x."""
    wide = x.float()
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * w


def swiglu(a, b):
    """silu(a) in fp32, times b in its type."""
    return torch.nn.functional.silu(a.float()).to(b.dtype) * b


def rotate(q, k, cos, sin):
    """q, k [batch, tokens, heads, 2n], cos, sin [1, tokens, 2n], whose second half is as the first.

    Channel i is turned with channel n + i.
    """

    def turn(x):
        first, second = x.chunk(2, -1)
        c, s = (one.chunk(2, -1)[0][:, :, None] for one in (cos, sin))
        return torch.cat((first * c - second * s, second * c + first * s), -1).to(x.dtype)

    return turn(q), turn(k)


def cross_entropy(x, target, dy):
    """The loss of each row of x and its gradient, 0 where the target is -100.

    The loss is the logarithm of the sum of exponentials, less the target's; the gradient is stored in the
    type of x before it is scaled by the one that arrives.
    """
    keep, wide = (target >= 0)[:, None], x.float()
    hit = torch.arange(x.shape[1], device=x.device) == target[:, None]
    chosen = wide.gather(1, target.clamp(min=0)[:, None])
    loss = torch.where(keep, wide.logsumexp(-1, keepdim=True) - chosen, 0.0)[:, 0]
    stored = torch.where(keep, torch.softmax(wide, -1) - hit.float(), 0.0).to(x.dtype)
    return loss.to(x.dtype), stored * dy[:, None]
