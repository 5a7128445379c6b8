"""A product of e4m3 matrices that claims exact bits: its spec states instruction, order and promotion.

C [M, N] = A [M, K] @ B [N, K]^T, fp32. On sm_90 a tile of 64 rows is summed by wgmma in 14 bits, promoted
each 32 products where the launcher asks for it; one of 16 rows by mma.sync, on operands widened to fp16.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.bounds import exact_bits
from bitproof.harness.case import Launch
from bitproof.harness.spec import Bitwise, Fault, KernelSpec
from bitproof.oracles import formats
from bitproof.oracles.instructions import INSTRUCTIONS
from bitproof.oracles.tensor_cores import product

COLUMNS, BLOCK_K = 64, 64


@triton.jit
def multiply(
    a,
    b,
    c,
    depth,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    IMPRECISE: tl.constexpr,
):
    """One tile of C."""
    m, n, k = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, BLOCK_K)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, depth, BLOCK_K):
        at = start
        x = tl.load(a + m[:, None] * depth + (at + k)[None, :])
        y = tl.load(b + n[None, :] * depth + (at + k)[:, None])
        total = tl.dot(x, y, total, max_num_imprecise_acc=IMPRECISE)
    tl.store(c + m[:, None] * COLUMNS + n[None, :], total)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GemmCase:
    """`rows` x COLUMNS outputs of `depth` products."""

    rows: int = 64
    depth: int = 128
    promoted: bool = True
    seed: int = 0
    launch: Launch = Launch()

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        words = generators.hash_words(self.seed, 0, (self.rows + COLUMNS) * self.depth, device)
        values = generators.uniform(words).reshape(-1, self.depth).to(torch.float8_e4m3fn)
        return {"a": values[: self.rows].clone(), "b": values[self.rows :].clone()}

    def params(self) -> dict[str, Any]:
        return {"promoted": self.promoted}

    def features(self) -> tuple[str, ...]:
        return (f"tile of {self.rows}", "promoted" if self.promoted else "not promoted")


def gemm_cases() -> st.SearchStrategy[GemmCase]:
    """Both instructions, with and without promotion."""
    return st.builds(
        GemmCase,
        rows=st.sampled_from((64, 16)),
        depth=st.sampled_from((128, 256)),
        promoted=st.booleans(),
        seed=st.integers(0, 99),
    )


def launch(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
    """a [M, K], b [N, K] e4m3 -> c [M, N] fp32."""
    a, b = tensors["a"], tensors["b"]
    c = torch.empty(len(a), len(b), device=a.device)
    imprecise = 32 if params["promoted"] else None
    multiply[(1,)](a, b, c, a.shape[1], len(a), len(b), BLOCK_K, imprecise, num_warps=4)
    return {"c": c}


def oracle(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Any]:
    """Exact: what the instruction that the compiler takes for such a tile sums."""
    a, b = (formats.to_numpy(tensors[name]) for name in ("a", "b"))
    table = INSTRUCTIONS["sm_90"]
    if len(a) < 64:
        # A thread holds four neighbours of a row, which go to two instructions.
        kind, instruction = "fp16", replace(table["fp16", "mma"], interleaved=2)
    else:
        kind, instruction = "e4m3", table["e4m3", "wgmma"]
        instruction = replace(instruction, promoted=32 if params["promoted"] else 0)
    return {"c": product(a, b.T, kind=kind, instruction=instruction, tile=BLOCK_K)}


SPEC = KernelSpec(
    name="gemm_e4m3",
    run=launch,
    case=GemmCase,
    cases=gemm_cases,
    oracle=oracle,
    bounds={"c": exact_bits()},
    reproducible=Bitwise(shown_by="adds to fresh memory"),
    faults=(
        Fault(
            name="promotion dropped",
            within="multiply",
            old="max_num_imprecise_acc=IMPRECISE",
            new="max_num_imprecise_acc=None",
            caught_by="agreement",
        ),
        Fault(
            name="order of k swapped",
            within="multiply",
            old="at = start",
            new="at = depth - BLOCK_K - start",
            caught_by="agreement",
        ),
        Fault(
            name="tiles added outside, to nearest",
            within="multiply",
            old="total = tl.dot(x, y, total, max_num_imprecise_acc=IMPRECISE)",
            new="total += tl.dot(x, y, max_num_imprecise_acc=IMPRECISE)",
            caught_by="agreement",
        ),
        Fault(
            name="operands widened, more bits kept",
            within="multiply",
            old="tl.dot(x, y, total, max_num_imprecise_acc=IMPRECISE)",
            new="tl.dot(x.to(tl.float16), y.to(tl.float16), total)",
            caught_by="agreement",
        ),
        Fault(
            name="adds to fresh memory",
            within="multiply",
            old="n[None, :], total)",
            new="n[None, :], total + tl.load(c + m[:, None] * COLUMNS + n[None, :]))",
            caught_by="reproducibility",
        ),
    ),
)
