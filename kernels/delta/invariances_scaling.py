"""Relations of the gated delta rule that hold bit for bit where v or do is multiplied by -8.

A sign and a power of two move through sums and products exactly, unless something comes near the end of its
type; most of what is here says where nothing does. A sum that is zero is +0 whatever its terms' signs were.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bitproof.harness.case import Inputs
from bitproof.harness.spec import Invariance, Tensors
from bitproof.kernels.delta.packing import SUMS, lengths

_FACTOR = -(2.0**3)
# One decay of e^-20, several that come to e^-60, or one derivative of e^-40, stay far from 2^-126.
_DEEPEST, _FARTHEST, _STEEPEST, _SLOWEST = 20.0, 60.0, 40.0, 2.0**-8


def values_scaled() -> Invariance:
    """v and the initial state times -8 give o and the final state times -8.

    Applies where products stay far from the ends of their types: not to fp16, nor where a state decays far
    before something is written to it again.
    """

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {name: tensor * _FACTOR for name, tensor in found.items()}

    return Invariance(
        name="v times -8",
        transform=_make_scaling("v", "initial_state"),
        relate=relate,
        signed_zeros=False,
    )


def gradients_scaled() -> Invariance:
    """Gradients of o and of the final state times -8 give every gradient times -8.

    Applies where `values_scaled` does; where a gate is so saturated that its derivative may be
    subnormal, not to gradients of the gate.
    """

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        lost = () if _is_sloping(inputs) else ("dg", *SUMS)
        return {name: tensor * _FACTOR for name, tensor in found.items() if name not in lost}

    return Invariance(
        name="do times -8", transform=_make_scaling("do", "dht"), relate=relate, signed_zeros=False
    )


def _make_scaling(rows: str, states: str) -> Callable[[Inputs], Inputs | None]:
    def transform(inputs: Inputs) -> Inputs | None:
        used = sum(lengths(inputs))
        whole = {name: inputs.tensors[name] for name in (rows, states) if name in inputs.tensors}
        read = [tensor[:used] if name == rows else tensor for name, tensor in whole.items()]
        if not all(map(_plain, read)) or not _moderate(inputs):
            return None
        return inputs.replace(**{name: tensor * _FACTOR for name, tensor in whole.items()})

    return transform


def _plain(x: Tensor) -> bool:
    """Whether a power of two can move through sums of products of `x` exactly."""
    magnitude = x.abs().double()
    within = (magnitude >= 2.0**-20) & (magnitude <= 2.0**10)
    return x.dtype != torch.float16 and bool((within | (magnitude == 0)).all())


def _moderate(inputs: Inputs) -> bool:
    """Whether no state comes near fp32's subnormal numbers by decays alone, while nothing is written.

    What a token writes hides, in a sum, whatever is left of what was written long before it.
    """
    if inputs.params["gate"] == "bounded":
        deepest = -float(inputs.params["lower_bound"])
    else:
        x, rate = _raw(inputs)
        plain = inputs.params["gate"] == "plain"
        depth = rate * torch.logaddexp(x, x * 0) if plain else x.abs()
        deepest = float(depth.amax()) if depth.numel() else 0.0
    return bool(deepest <= _DEEPEST and deepest * (1 + _silence(inputs)) <= _FARTHEST)


def _silence(inputs: Inputs) -> int:
    """The most tokens in a row that write nothing to some row or column of a state, or of its gradient."""
    tensors, used = inputs.tensors, sum(lengths(inputs))
    gate = tensors["beta"][..., None] if "beta" in tensors else tensors["w"]
    written = [tensors["k"] != 0, (tensors["v"] != 0) & (gate != 0)]
    if "do" in tensors:
        written += [tensors["q"] != 0, tensors["do"] != 0]
    return max(_longest_gap(where[:used]) for where in written)


def _longest_gap(written: Tensor) -> int:
    """The longest run of False along the first axis of `written` [T, H, D]."""
    token = torch.arange(1, len(written) + 1, device=written.device)[:, None, None]
    last = torch.where(written, token, 0).cummax(0).values
    return int((token - last).amax()) if written.numel() else 0


def _is_sloping(inputs: Inputs) -> bool:
    """Whether no derivative of a gate, at least e^-|x| of a plain one, comes near them either.

    A gate's derivative has its rate as a factor, which may be subnormal itself.
    """
    if inputs.params["gate"] == "log":
        return True
    x, rate = _raw(inputs)
    steep = x * rate if inputs.params["gate"] == "bounded" else x
    return bool((steep.abs() <= _STEEPEST).all() and (rate >= _SLOWEST).all())


def _raw(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Gates of tokens in float64, biases included, and the rates e^A_log that they have."""
    tensors = inputs.tensors
    x = tensors["g"][: sum(lengths(inputs))].double()
    if inputs.params["gate"] == "log" or "A_log" not in tensors:
        rate = x.new_ones(1)
    else:
        rate = tensors["A_log"].double().exp()[:, None]
    biased = inputs.params["gate"] != "log" and "dt_bias" in tensors
    return (x + tensors["dt_bias"].double() if biased else x), rate
