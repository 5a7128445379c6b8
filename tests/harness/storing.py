"""A kernel of two stages whose stored intermediates lose known amounts, made of torch's own operations.

The first stage stores u, w and v in bf16, 4, 2 and 1 times (1 + 2^-9) with signs of their own, the second
adds them in fp32. Over all eight combinations of signs the three errors are orthogonal, of 4, 2 and 1 times
2^-9 everywhere, beside an answer of RMS (1 + 2^-9) * sqrt(21); the additions are exact in fp32.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness.bounds import all_of
from bitproof.harness.bounds.norms import relative_rms, storage_model
from bitproof.harness.case import Launch
from bitproof.harness.spec import Bitwise, Fault, KernelSpec, Params, Storage, Tensors
from bitproof.oracles import formats
from bitproof.oracles.modelled import Modelled
from bitproof.oracles.rounding import round_value

POINTS = ("u", "w", "v")


def summed(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """u, w, v [n] fp32 -> y [n] fp32, their sum as stored: the kernel."""
    stored = [
        tensors[point] if point in params["fp32"] else tensors[point].to(torch.bfloat16)
        for point in POINTS
    ]
    y = torch.zeros_like(tensors["u"])
    for part in stored:
        y += part
    return {"y": y}


def modelled(tensors: Tensors, params: Params, rounded: frozenset[str]) -> dict[str, Any]:
    """y [n] float64, with the points in `rounded` rounded to bf16."""
    y = np.zeros(len(tensors["u"]))
    for point in POINTS:
        part = formats.to_numpy(tensors[point]).astype(np.float64)
        y += round_value(part, formats.BF16) if point in rounded else part
    return {"y": y}


def stored(params: Params) -> frozenset[str]:
    """What this configuration does not keep in fp32."""
    return frozenset(POINTS) - set(params["fp32"])


def oracle(tensors: Tensors, params: Params) -> dict[str, Any]:
    """The exact sum, and what storage makes of it, element by element."""
    value = modelled(tensors, params, frozenset())["y"]
    model = modelled(tensors, params, stored(params))["y"]
    return {"y": Modelled(value=value, model=model, floor=np.zeros(()), rows=1)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartsCase:
    """All eight combinations of signs, `times` times over; all zero at `scale` 0."""

    times: int = 1
    scale: int = 1
    fp32: tuple[str, ...] = ()
    launch: Launch = Launch()

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """u, w, v [8 * times] fp32."""
        row = torch.arange(8 * self.times, device=device)
        return {
            point: self.scale * size * (1 + 2.0**-9) * (1.0 - 2.0 * ((row // size) % 2))
            for point, size in zip(POINTS, (4, 2, 1), strict=True)
        }

    def params(self) -> dict[str, Any]:
        """What is kept in fp32."""
        return {"fp32": list(self.fp32)}

    def features(self) -> tuple[str, ...]:
        """Nothing to tell."""
        return ()


def parts_cases() -> st.SearchStrategy[PartsCase]:
    """The largest cases are zero everywhere, and say nothing of any error."""
    kept = st.sampled_from([(), ("u",), ("w", "v")])
    few = st.builds(PartsCase, times=st.integers(1, 3), fp32=kept)
    return few | st.builds(PartsCase, times=st.just(4), scale=st.just(0))


SPEC = KernelSpec(
    name="summed_parts",
    run=summed,
    case=PartsCase,
    cases=parts_cases,
    oracle=oracle,
    bounds={
        "y": all_of(
            storage_model(1, because="the sums are exact in fp32"),
            relative_rms(0.01, because="eight bits are kept of every part"),
        )
    },
    faults=(
        Fault(
            name="rounds what is to stay fp32",
            within="summed",
            old='if point in params["fp32"]',
            new="if point in ()",
            caught_by="agreement",
        ),
        Fault(
            name="adds to fresh memory",
            within="summed",
            old='torch.zeros_like(tensors["u"])',
            new='torch.empty_like(tensors["u"])',
            caught_by="reproducibility",
        ),
    ),
    reproducible=Bitwise(shown_by="adds to fresh memory"),
    storage=Storage(points=POINTS, outputs=("y",), stored=stored, model=modelled),
)
