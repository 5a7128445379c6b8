"""The bits of a block-scaled linear on a given tensor core, order and instruction being stated.

Each K block of 128 is a product of its own by `oracles.tensor_cores`, from zero; then one fused multiply-add
with the rounded product of its scales. Nothing else is rounded but the result, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bitproof.oracles import tensor_cores
from bitproof.oracles.formats import BF16, E4M3, FP16, Array, bits, from_bits, to_numpy
from bitproof.oracles.fp8_gemm.products import SCALED, scale_values
from bitproof.oracles.instructions import Instruction
from bitproof.oracles.rounding import round_to
from bitproof.oracles.tensor_cores import Floats


def linear(
    tensors: Mapping[str, torch.Tensor], params: Mapping[str, Any], instruction: Instruction
) -> Array:
    """y [M, N] in params["out"], as `oracles.fp8_gemm.products.linear` describes it, to the bit.

    `instruction` multiplies e4m3 operands, or with params["decoded"] bf16 ones.
    """
    a, b = (to_numpy(tensors[name]) for name in ("a", "b"))
    fmt = E4M3
    if params["decoded"]:
        # Every e4m3 value is one of bf16.
        a, b = (x.astype(np.float32).astype(BF16.numpy_dtype) for x in (a, b))
        fmt = BF16
    left, right = bits(a), bits(b)
    a_scale = scale_values(tensors["a_scale"]).astype(np.float32)
    b_scale = scale_values(tensors["b_scale"]).astype(np.float32)
    b_scale = np.repeat(b_scale, SCALED, axis=0)[: b.shape[0]]
    total = np.zeros((a.shape[0], b.shape[0]), dtype=np.float32)
    for block in range(a_scale.shape[1]):
        part = slice(block * SCALED, (block + 1) * SCALED)
        product = tensor_cores.multiply(
            left[:, part], right[:, part].T, np.zeros_like(total), fmt, instruction
        )
        scale = a_scale[:, block, None] * b_scale[None, :, block]
        total = multiply_add(product, scale, total)
    if params["out"] == "fp32":
        return total
    out = BF16 if params["out"] == "bf16" else FP16
    return from_bits(round_to(total, out, overflow="inf"), out)


def multiply_add(x: Floats, y: Floats, z: Floats) -> Floats:
    """x * y + z rounded once, fp32.

    The product is exact in float64. Its sum with z is rounded to odd there, which loses nothing that the
    rounding to fp32 could miss (S. Boldo, G. Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    with np.errstate(all="ignore"):
        product = x.astype(np.float64) * y.astype(np.float64)
        other = z.astype(np.float64)
        total = product + other
        # The error of the sum, exactly (D. Knuth).
        back = total - product
        error = (product - (total - back)) + (other - back)
        return _to_odd(total, error).astype(np.float32)


def _to_odd(total: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """`total` where it is exact or odd, else its neighbour on the side of `error`."""
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    moved = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(np.isfinite(total) & even & (error != 0), moved, total)
