"""A launcher of torch's own operations that starts a kernel as well, so that a search counts one."""

from __future__ import annotations

import triton
from torch import Tensor

from bitproof.harness.spec import Params, Tensors
from tests.harness.plain import scaled


@triton.jit
def nothing():
    """Does nothing."""


def scaled_beside_a_kernel(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """y = factor * x."""
    nothing[(1,)]()
    return scaled(tensors, params)
