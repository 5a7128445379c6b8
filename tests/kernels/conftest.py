"""Runs a spec's kernel on explicit values, on the present lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from bitproof.harness import lanes
from bitproof.harness.case import Inputs, Launch
from bitproof.harness.lanes.base import Variation
from bitproof.harness.spec import KernelSpec

Run = Callable[..., Mapping[str, torch.Tensor]]


@pytest.fixture(scope="session")
def outputs() -> Run:
    """`outputs(spec, x=..., params={...})`: the kernel's outputs, on the CPU."""

    def run(
        spec: KernelSpec,
        *,
        params: Mapping[str, Any] | None = None,
        launch: Launch | None = None,
        **tensors: torch.Tensor,
    ) -> Mapping[str, torch.Tensor]:
        lane = lanes.present()
        launch = launch or spec.case().launch  # type: ignore[call-arg]
        on_device = {name: tensor.to(lane.device) for name, tensor in tensors.items()}
        inputs = Inputs(tensors=on_device, params=params or {}, launch=launch)
        found = lane.run(spec, inputs, Variation()).outputs
        return {name: tensor.cpu() for name, tensor in found.items()}

    return run
