"""The variance of each row of a matrix, for tests of what values show: in two passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness.bounds import forward_error
from bitproof.harness.case import Launch
from bitproof.harness.spec import Bitwise, Fault, KernelSpec
from bitproof.harness.strategies.values import Values, values
from bitproof.oracles import formats
from bitproof.oracles.estimates import UNIT, Estimate, around

WIDTH = 256


@triton.jit
def _variances(x_ptr, y_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * WIDTH + tl.arange(0, WIDTH))
    mean = tl.sum(x, 0) / WIDTH
    centred = x - mean
    variance = tl.sum(centred * centred, 0) / WIDTH
    tl.store(y_ptr + row, variance)


def variances(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
    """x [rows, 256] fp32 -> y [rows] fp32."""
    x = tensors["x"]
    y = torch.empty(len(x), device=x.device)
    _variances[(len(x),)](x, y, WIDTH=WIDTH)
    return {"y": y}


def exact_variances(
    tensors: Mapping[str, Tensor], params: Mapping[str, Any]
) -> dict[str, Estimate]:
    """Within two passes' bound, n u + (n u kappa)^2 (T. F. Chan, G. H. Golub, R. J. LeVeque, 1983)."""
    x = formats.to_numpy(tensors["x"]).astype(np.float64)
    variance = x.var(axis=1)
    square = (x * x).mean(axis=1)
    terms = WIDTH + 4
    return {"y": around(variance, terms * UNIT * variance + (terms * UNIT) ** 2 * square)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsOfValues:
    """`rows` rows of 256 values."""

    rows: int = 1
    values: Values = Values(kind="gaussian")
    launch: Launch = Launch()

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """x."""
        return {"x": self.values.build((self.rows, WIDTH), device)}

    def params(self) -> dict[str, Any]:
        """None."""
        return {}

    def features(self) -> tuple[str, ...]:
        """The kind."""
        return (self.values.kind,)


def cases() -> st.SearchStrategy[RowsOfValues]:
    """Numbers of a moderate size, and no others."""
    moderate = values(only=(-20, 20))
    return st.builds(RowsOfValues, rows=st.integers(1, 4), values=moderate)


SPEC = KernelSpec(
    name="row_variances",
    run=variances,
    case=RowsOfValues,
    cases=cases,
    oracle=exact_variances,
    bounds={"y": forward_error(because="two passes over 256 terms")},
    faults=(
        Fault(
            name="in one pass",
            within="_variances",
            old="tl.sum(centred * centred, 0) / WIDTH",
            new="tl.sum(x * x, 0) / WIDTH - mean * mean",
            caught_by="agreement",
        ),
        Fault(
            name="adds to fresh memory",
            within="_variances",
            old="tl.store(y_ptr + row, variance)",
            new="tl.store(y_ptr + row, variance + tl.load(y_ptr + row))",
            caught_by="reproducibility",
        ),
    ),
    reproducible=Bitwise(shown_by="adds to fresh memory"),
)
