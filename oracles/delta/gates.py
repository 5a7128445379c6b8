"""Gates and normalisation of delta-rule kernels, and their adjoints, in float64.

Formulas of flash-linear-attention 0.6.0: log-decay out of a raw gate x, with a = e^A_log of the head,

    plain      g = -a * softplus(x + dt_bias)
    bounded    g = lower_bound * sigmoid(a * (x + dt_bias))

with a = 1 where there is no A_log, which `kernels.delta.arguments` refuses for a plain gate; and
y = x / sqrt(sum x^2 + 1e-6) for q and k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

Gate = Literal["log", "plain", "bounded"]
EPSILON: Final = 1e-6


@dataclass(frozen=True, kw_only=True)
class GateParameters:
    """What a gate is made of: a_log [H] or None, dt_bias [H, K] or None, the bound of "bounded"."""

    gate: Gate = "log"
    a_log: Tensor | None = None
    dt_bias: Tensor | None = None
    lower_bound: float = -5.0


def activate(x: Tensor, p: GateParameters) -> Tensor:
    """The log-decay [T, H, K] of raw gates of that shape."""
    if p.gate == "log":
        return x
    biased, a = _add_bias(x, p), _factor(x, p)
    if p.gate == "plain":
        return -a * torch.nn.functional.softplus(biased, threshold=700.0)
    return p.lower_bound * _steep(a, biased).sigmoid()


def activate_adjoint(
    x: Tensor, p: GateParameters, dg: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(gradient of the raw gates, of a_log, of dt_bias), None for the latter without raw gates.

    A parameter that is left out has the gradient that it has at zero. That of a_log is given by its terms,
    [H, T * K], to be summed along the last axis.
    """
    if p.gate == "log":
        return dg, None, None
    biased, a = _add_bias(x, p), _factor(x, p)
    if p.gate == "plain":
        dx = -a * biased.sigmoid() * dg
        da_log = dg * activate(x, p)
    else:
        z = _steep(a, biased)
        slope = dg * p.lower_bound * z.sigmoid() * (-z).sigmoid()
        # However steep, a gate that is saturated has no slope.
        dx = torch.where(slope == 0, 0.0, slope * a)
        da_log = dx * biased
    return dx, da_log.transpose(0, 1).flatten(1), dx.sum(0)


def normalise(x: Tensor) -> Tensor:
    """x / sqrt(sum x^2 + 1e-6) along the last axis."""
    return x * (x.square().sum(-1, keepdim=True) + EPSILON).rsqrt()


def normalise_adjoint(x: Tensor, dy: Tensor) -> Tensor:
    """The gradient of x: (dy - y (dy . y)) / sqrt(sum x^2 + 1e-6)."""
    rstd = (x.square().sum(-1, keepdim=True) + EPSILON).rsqrt()
    y = x * rstd
    return rstd * (dy - y * (dy * y).sum(-1, keepdim=True))


def normalise_cancelled(x: Tensor, dy: Tensor) -> Tensor:
    """The magnitudes that `normalise_adjoint` adds up; where dy is along x, they leave next to nothing."""
    rstd = (x.square().sum(-1, keepdim=True) + EPSILON).rsqrt()
    y = (x * rstd).abs()
    return rstd * (dy.abs() + y * (dy.abs() * y).sum(-1, keepdim=True))


def _add_bias(x: Tensor, p: GateParameters) -> Tensor:
    return x if p.dt_bias is None else x + p.dt_bias


def _factor(x: Tensor, p: GateParameters) -> Tensor:
    ones = x.new_ones(x.shape[1])
    return (ones if p.a_log is None else p.a_log.exp())[:, None]


def _steep(a: Tensor, biased: Tensor) -> Tensor:
    """a * x, zero where x is, however steep."""
    return torch.where(biased == 0, 0.0, a * biased)
