"""Kernels of plain torch that go wrong as a test says, and what holds of the right one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from bitproof.harness.case import Inputs
from bitproof.harness.spec import Invariance, KernelSpec, Params, Tensors
from tests.harness.plain import scaled, variant


def kernel(run: Callable[[Tensors, Params], Any], **changes: Any) -> KernelSpec:
    """The plain spec of another kernel."""
    return variant(run=run, **changes)


def after(
    edit: Callable[[Tensor, Tensor], None],
) -> Callable[[Tensors, Params], dict[str, Tensor]]:
    """The plain kernel, then `edit(x, y)` of what it read and wrote."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        outputs = scaled(tensors, params)
        edit(tensors["x"], outputs["y"])
        return outputs

    return run


def alone() -> Invariance:
    """The last row is what it is without the others."""
    return Invariance(
        name="last row alone",
        transform=lambda i: i.replace(x=i.tensors["x"][-1:]) if len(i.tensors["x"]) > 1 else None,
        relate=lambda outputs, inputs: {"y": outputs["y"][-1:]},
    )


def negated() -> Invariance:
    """The opposite of the input gives the opposite of the output."""

    def relate(outputs: Tensors, inputs: Inputs) -> Mapping[str, Tensor]:
        return {"y": -outputs["y"]}

    return Invariance(
        name="sign symmetry",
        transform=lambda inputs: inputs.replace(x=-inputs.tensors["x"]),
        relate=relate,
    )
