"""A launcher from a function of torch: called as a reference is, so that both answer by the same names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from bitproof.harness.references import calling
from bitproof.harness.references.calling import Params, Reference, Tensors

Launcher = Callable[[Tensors, Params], dict[str, Tensor]]


def run_like(reference: Reference, function: Callable[..., Any]) -> Launcher:
    """A spec's `run` that calls `function`, or a module, by the names of tensors and parameters.

    Its outputs have the names that `reference` gives, and its gradients are those that autograd computes for
    it: so an `autograd.Function` is judged forward and backward. SpecError as of the reference itself, for a
    name that no input has and for what is no tensor; what `function` raises is raised as it is.
    """
    theirs = dataclasses.replace(reference, function=function)
    differentiated = frozenset(reference.gradients.values())

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        given = {
            name: tensor.detach().requires_grad_() if name in differentiated else tensor
            for name, tensor in tensors.items()
        }
        with torch.set_grad_enabled(bool(differentiated)):
            found = _call_and_differentiate(theirs, given, params)
        return {name: tensor.detach() for name, tensor in found.items()}

    return run


def _call_and_differentiate(
    reference: Reference, given: Mapping[str, Tensor], params: Params
) -> dict[str, Tensor]:
    weights = {
        name: given.get(name, tensor) for name, tensor in calling.held_by(reference.function)
    }
    outputs = calling.name_outputs(reference, calling.call(reference, weights, {**params, **given}))
    if not reference.gradients:
        return outputs
    return outputs | calling.differentiate(reference, outputs, given)
