"""Cases of the delta-rule kernels run and judged, for the tests of what they promise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from bitproof.harness import checks, lanes
from bitproof.harness.bounds.norms import relative_error
from bitproof.harness.case import Inputs, build
from bitproof.harness.lanes.base import Variation, parameters
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.spec import KernelSpec
from bitproof.harness.strategies.gates import Gates
from bitproof.harness.subjects.discovery import find
from bitproof.harness.subjects.planting import plant
from bitproof.kernels.delta.cases import DeltaCase
from bitproof.kernels.delta.specs import (
    GDN2_CHUNK,
    GDN2_CHUNK_VJP,
    GDN2_RECURRENT,
    KDA_CHUNK,
    KDA_CHUNK_VJP,
    KDA_RECURRENT,
)

FORWARD = (GDN2_CHUNK, KDA_CHUNK)
BACKWARD = (GDN2_CHUNK_VJP, KDA_CHUNK_VJP)
TOKEN_BY_TOKEN = (GDN2_RECURRENT, KDA_RECURRENT)
EVERY = (*FORWARD, *BACKWARD, *TOKEN_BY_TOKEN)
REPORTED = Gates(gate="bounded", kind="gentle", seed=1)


def case_of(spec: KernelSpec, **fields: Any) -> DeltaCase:
    """A case that the spec takes."""
    named = {
        "kind": spec.name.partition("_")[0],
        "gradient": spec in BACKWARD,
        "precision": "fp32" if spec in TOKEN_BY_TOKEN else "upstream",
        "seed": 5,
    }
    return DeltaCase(**{**named, **fields})


def judged(spec: KernelSpec, check: str, case: DeltaCase) -> CheckResult:
    """What a check says of a case on the present lane."""
    lane = lanes.present()
    return checks.run(check, spec, build(case, lane.device), lane)


def holds(specs: Iterable[KernelSpec], *named: str, **fields: Any) -> None:
    """The named checks pass on such a case of each spec."""
    for spec in specs:
        for check in named:
            found = judged(spec, check, case_of(spec, **fields))
            assert found.outcome is Outcome.PASSED, f"{spec.name}: {check}: {found.text}"


def outputs_of(spec: KernelSpec, inputs: Inputs) -> dict[str, torch.Tensor]:
    """What the kernel makes of inputs on the present lane."""
    outputs = lanes.present().run(spec, inputs, Variation()).outputs
    return {name: tensor.cpu() for name, tensor in outputs.items()}


def ran(spec: KernelSpec, case: DeltaCase) -> tuple[Inputs, dict[str, torch.Tensor]]:
    """A case's inputs and outputs."""
    inputs = build(case, lanes.present().device)
    return inputs, outputs_of(spec, inputs)


def errors(spec: KernelSpec, case: DeltaCase) -> dict[str, float]:
    """The relative root mean square error of every output."""
    inputs, outputs = ran(spec, case)
    exact = spec.oracle(inputs.tensors, parameters(inputs))
    return {
        name: relative_error(tensor.double().numpy(), exact[name].value)
        for name, tensor in outputs.items()
    }


def error(spec: KernelSpec, case: DeltaCase) -> float:
    """That of o."""
    return errors(spec, case)["o"]


def applied(spec: KernelSpec, case: DeltaCase, name: str) -> None:
    """The invariance applies to the case, and every invariance that does holds."""
    found = judged(spec, "invariances", case)
    assert found.outcome is Outcome.PASSED, found.text
    assert found.counts[f"{name} applied"] == 1


def planted(kernel: str, name: str) -> KernelSpec:
    """The kernel with one of its faults."""
    (found,) = find(["bitproof.kernels.delta.specs"], [kernel])
    (fault,) = (fault for fault in found.spec.faults if fault.name == name)
    return plant(found, fault)
