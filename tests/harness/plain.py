"""A lane and a kernel without Triton: plain torch functions, so that the harness can be tested alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import case as cases
from bitproof.harness import checks, generators
from bitproof.harness.bounds import exact_bits
from bitproof.harness.case import Inputs, Launch
from bitproof.harness.lanes.arena import Arena
from bitproof.harness.lanes.base import Launched, Variation, call
from bitproof.harness.outcomes import CheckResult
from bitproof.harness.spec import Bitwise, Fault, KernelSpec
from bitproof.oracles import formats


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainLane:
    """Calls launchers as they are, in guarded memory on the CPU."""

    name: str = "interpreter"
    device: torch.device = torch.device("cpu")

    def run(self, spec: KernelSpec, inputs: Inputs, variation: Variation) -> Launched:
        arena = Arena(device=self.device, poison=variation.poison)
        outputs, tensors = call(spec, inputs, arena)
        return Launched(outputs=outputs, inputs=tensors, arena=arena)

    def usable(self) -> bool:
        return True

    def versions(self) -> dict[str, str]:
        return {"lane": self.name, "torch": torch.__version__}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsCase:
    """`rows` x `columns` fp32 values out of a counter."""

    rows: int = 1
    columns: int = 1
    seed: int = 0
    launch: Launch = Launch()

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        words = generators.hash_words(self.seed, 0, self.rows * self.columns, device)
        return {"x": generators.uniform(words).reshape(self.rows, self.columns)}

    def params(self) -> dict[str, Any]:
        return {"factor": 2.0}

    def features(self) -> tuple[str, ...]:
        return ("one row",) if self.rows == 1 else ("several rows",)


def rows_cases() -> st.SearchStrategy[RowsCase]:
    """Up to 8 x 8 values."""
    small = st.integers(1, 8)
    return st.builds(RowsCase, rows=small, columns=small, seed=st.integers(0, 99))


def scaled(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
    """y = factor * x: the kernel."""
    x = tensors["x"]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    torch.mul(x, params["factor"], out=y)
    return {"y": y}


def scaled_oracle(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Any]:
    """y = factor * x: the answer."""
    x = formats.to_numpy(tensors["x"])
    return {"y": x * np.float32(params["factor"])}


FAULTS = (
    Fault(
        name="off by a factor",
        within="scaled",
        old='params["factor"]',
        new="2.5",
        caught_by="agreement",
    ),
    Fault(
        name="reads fresh memory",
        within="scaled",
        old='torch.mul(x, params["factor"], out=y)',
        new='torch.mul(x, params["factor"], out=y); y += torch.empty_like(y)',
        caught_by="reproducibility",
    ),
)

SPEC = KernelSpec(
    name="scaled_rows",
    run=scaled,
    case=RowsCase,
    cases=rows_cases,
    oracle=scaled_oracle,
    bounds={"y": exact_bits()},
    faults=FAULTS,
    reproducible=Bitwise(shown_by="reads fresh memory"),
)


def variant(**changes: Any) -> KernelSpec:
    """SPEC with some fields exchanged."""
    return dataclasses.replace(SPEC, **changes)


CASE = RowsCase(rows=2, columns=3, seed=1)


def checked(check: str, spec: KernelSpec, case: RowsCase = CASE) -> CheckResult:
    """What `check` finds in `spec` on `case`, on the plain lane."""
    lane = PlainLane()
    return checks.run(check, spec, cases.build(case, lane.device), lane)
