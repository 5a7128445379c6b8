"""Operations as people write references, each with the inputs of a case and with right kernels.

A right kernel is torch in the very precision that the reference declares, torch in fp32 throughout with one
rounding at the end, and the exact answer rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from bitproof.harness import generators
from bitproof.harness.references import Reference

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A reference, and its inputs by name: their shapes.

    `eager` says that torch itself computes it on a CPU as well as the declared types allow.
    """

    reference: Reference
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: tuple[torch.dtype, ...] = (BF16, FP16, FP32)
    eager: bool = True


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    """Each row over its root mean square, in fp32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)


def rms_norm_stored(x: Tensor, w: Tensor) -> Tensor:
    """The same with the normalised row stored in the input's type."""
    wide = x.float()
    y = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
    return y * w


def layer_norm(x: Tensor, w: Tensor) -> Tensor:
    """torch's own, in the type of its input."""
    return functional.layer_norm(x, (x.shape[-1],), w)


def softmax(x: Tensor) -> Tensor:
    """Of each row, in fp32."""
    return torch.softmax(x.float(), -1).to(x.dtype)


def masked_softmax(x: Tensor) -> Tensor:
    """Of the lower triangle, in the input's type."""
    mask = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril()
    return torch.softmax(x.masked_fill(~mask, torch.finfo(x.dtype).min), -1)


def log_softmax(x: Tensor) -> Tensor:
    """Of each row."""
    return functional.log_softmax(x, -1)


def swiglu(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """silu(x w) * (x v) with both products stored."""
    return functional.silu(x @ w) * (x @ v)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal, by torch's fused operation."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def centred(x: Tensor) -> Tensor:
    """Each row less its mean."""
    return x - x.mean(-1, keepdim=True)


def decayed(x: Tensor, g: Tensor) -> Tensor:
    """A running sum of gates in an exponent."""
    return (x.float() * torch.exp(-functional.softplus(g.float()).cumsum(-1))).to(x.dtype)


def delta_rule(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The delta rule token by token, its state in fp32."""
    k = functional.normalize(k.float(), dim=-1)
    state = torch.zeros(k.shape[-1], v.shape[-1], dtype=torch.float32, device=k.device)
    out = torch.empty_like(v)
    for t in range(len(q)):
        state = state + torch.outer(k[t], v[t].float() - k[t] @ state)
        out[t] = (q[t].float() @ state).to(v.dtype)
    return out


def cross_entropy(x: Tensor) -> Tensor:
    """Of each row, whose first class is the right one."""
    target = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    return functional.cross_entropy(x.float(), target, reduction="none")


def gelu(x: Tensor) -> Tensor:
    """Of every element, by tanh."""
    return functional.gelu(x, approximate="tanh")


def _of(function: Callable[..., Tensor], *, differentiate: str = "") -> Reference:
    if not differentiate:
        return Reference(function=function, outputs=("y",))
    gradients = {f"d{name}": name for name in differentiate}
    return Reference(function=function, outputs=("y",), gradients=gradients, upstream={"y": "dy"})


_ROWS = {"x": (4, 64), "w": (64,), "dy": (4, 64)}
OPERATIONS = {
    "rms_norm": Operation(reference=_of(rms_norm, differentiate="xw"), shapes=_ROWS),
    "rms_norm_stored": Operation(reference=_of(rms_norm_stored, differentiate="xw"), shapes=_ROWS),
    "layer_norm": Operation(
        reference=_of(layer_norm, differentiate="xw"),
        shapes=_ROWS,
        eager=False,  # its backward pass reads means that it rounded to the type of its input
    ),
    "softmax": Operation(
        reference=_of(softmax, differentiate="x"), shapes={"x": (4, 64), "dy": (4, 64)}
    ),
    "masked_softmax": Operation(reference=_of(masked_softmax), shapes={"x": (16, 16)}),
    "log_softmax": Operation(
        reference=_of(log_softmax, differentiate="x"),
        shapes={"x": (4, 64), "dy": (4, 64)},
        eager=False,  # it rounds the logarithm of the sum to the type of its input
    ),
    "swiglu": Operation(
        reference=_of(swiglu, differentiate="xwv"),
        shapes={"x": (8, 32), "w": (32, 16), "v": (32, 16), "dy": (8, 16)},
    ),
    "attention": Operation(
        reference=_of(attention, differentiate="qkv"),
        shapes=dict.fromkeys(("q", "k", "v", "dy"), (1, 2, 16, 16)),
    ),
    "centred": Operation(reference=_of(centred), shapes={"x": (4, 64)}),
    "decayed": Operation(reference=_of(decayed), shapes={"x": (4, 64), "g": (4, 64)}),
    "delta_rule": Operation(reference=_of(delta_rule), shapes=dict.fromkeys("qkv", (12, 8))),
    "cross_entropy": Operation(
        reference=_of(cross_entropy, differentiate="x"), shapes={"x": (4, 64), "dy": (4,)}
    ),
    "gelu": Operation(reference=_of(gelu, differentiate="x"), shapes={"x": (4, 64), "dy": (4, 64)}),
}

FAMILIES = ("ordinary", "one-sided", "graded", "offset", "sparse", "large", "small", "alike")


def make_inputs(
    operation: Operation, family: str, seed: int, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The inputs of one case, of a family of values."""
    made = {}
    for place, (name, shape) in enumerate(operation.shapes.items()):
        count = int(torch.tensor(shape).prod())
        words = generators.hash_words(seed * 16 + place, 0, count, torch.device("cpu"))
        values = generators.gaussian(words).reshape(shape)
        made[name] = _shape_values(values, family).to(dtype)
    return made


def _shape_values(values: Tensor, family: str) -> Tensor:
    columns = values.shape[-1]
    if family == "one-sided":
        return values.abs()
    if family == "graded":
        return values * torch.logspace(-3, 1, columns)
    if family == "offset":
        return values * 2.0**-4 + 8
    if family == "sparse":
        return torch.where(values > 1, values, 0.0)
    if family == "large":
        return values * 16
    if family == "small":
        return values * 2.0**-12
    if family == "alike":
        return values[..., :1].expand_as(values) + 0.0
    return values


def run_eagerly(reference: Reference, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reference as torch computes it, gradients included, in the types of the tensors."""
    taken = {
        name: tensor.clone().requires_grad_(name in reference.gradients.values())
        for name, tensor in tensors.items()
        if name not in reference.upstream.values()
    }
    with sdpa_kernel(SDPBackend.MATH):  # torch's fused one has an exponential of 20 bits
        y = reference.function(**taken)
    found = {"y": y.detach()}
    if reference.gradients:
        sources = [taken[name] for name in reference.gradients.values()]
        gradients = torch.autograd.grad(y, sources, tensors[reference.upstream["y"]].to(y.dtype))
        found |= dict(zip(reference.gradients, gradients, strict=True))
    return found


def right_kernels(
    operation: Operation, tensors: Mapping[str, Tensor], exact: Mapping[str, Tensor]
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """(what it is, its outputs) of every right kernel."""
    eager = run_eagerly(operation.reference, tensors)
    wide = run_eagerly(
        operation.reference, {name: tensor.float() for name, tensor in tensors.items()}
    )
    if operation.eager:
        yield "as declared", eager
    yield "in fp32", {name: tensor.to(eager[name].dtype) for name, tensor in wide.items()}
    yield "rounded once", {name: tensor.to(eager[name].dtype) for name, tensor in exact.items()}
