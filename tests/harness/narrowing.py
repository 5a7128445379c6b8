"""An elementwise cast made of torch's own operations: something to sweep without Triton."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from bitproof.harness.case import Launch
from bitproof.harness.spec import Bitwise, Elementwise, Fault, Params, Tensors
from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.oracles import formats, rounding
from tests.harness import plain


def narrowed(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """x [n] fp32 -> y [n] e4m3, saturating: the kernel."""
    x = tensors["x"]
    return {"y": torch.clamp(x, -448.0, 448.0).to(torch.float8_e4m3fn)}


def narrowed_oracle(tensors: Tensors, params: Params) -> dict[str, Any]:
    """x [n] fp32 -> y [n] e4m3, saturating: the answer."""
    codes = rounding.round_to(formats.to_numpy(tensors["x"]), formats.E4M3)
    return {"y": formats.from_bits(codes, formats.E4M3)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatternsCase:
    """fp32 values by their bit patterns."""

    patterns: tuple[int, ...]
    launch: Launch = Launch()

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """x [n] fp32."""
        patterns = torch.tensor(self.patterns, dtype=torch.int64, device=device)
        return {"x": patterns.to(torch.int32).view(torch.float32)}

    def params(self) -> dict[str, Any]:
        """None."""
        return {}

    def features(self) -> tuple[str, ...]:
        """Nothing to tell."""
        return ()


SPEC = dataclasses.replace(
    plain.SPEC,
    name="narrowed",
    run=narrowed,
    oracle=narrowed_oracle,
    case=PatternsCase,
    faults=(
        Fault(
            name="rounds through fp16",
            within="narrowed",
            old='x = tensors["x"]',
            new='x = (tensors["x"].view(torch.int32) & ~0x1FFF).view(torch.float32)',
            caught_by="agreement",
        ),
        Fault(
            name="varies",
            within="narrowed",
            old='x = tensors["x"]',
            new='x = tensors["x"] + torch.empty_like(tensors["x"])',
            caught_by="reproducibility",
        ),
    ),
    reproducible=Bitwise(shown_by="varies"),
    elementwise=Elementwise(
        input="x", output="y", format="e4m3", case=lambda bits: PatternsCase(patterns=bits)
    ),
)


def found(**changes: Any) -> FoundSpec:
    """SPEC with some fields exchanged, where the command line would find it."""
    import sys

    spec = dataclasses.replace(SPEC, **changes)
    return FoundSpec(spec=spec, reference=__file__, module=sys.modules[__name__])
