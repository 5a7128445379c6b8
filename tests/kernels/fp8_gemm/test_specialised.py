"""The linear whose warps specialise: what it refuses, and what a compiler makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bitproof.kernels.fp8_gemm.arguments import CODES
from bitproof.kernels.fp8_gemm.specialised import multiply_specialised

Operands = dict[str, Tensor]
REFUSED: dict[str, tuple[Callable[[Operands], Operands], str]] = {
    "rows that TMA cannot read": (lambda given: {"a": _codes(3, 264)[:, :256]}, "TMA cannot take"),
    "columns that TMA cannot write": (lambda given: {"b": _codes(12, 256)}, "N = 12"),
    "scales as codes": (lambda given: {"a_scale": torch.ones(3, 2).byte()}, "a_scale must be"),
    "weights of another K": (lambda given: {"b": _codes(16, 128)}, "b must be"),
    "a card of another kind": (lambda given: {}, "sm_90"),
}


def _codes(rows: int, columns: int) -> Tensor:
    return torch.zeros(rows, columns, dtype=torch.uint8).view(CODES)


@pytest.mark.parametrize("name", REFUSED)
def test_what_specialised_warps_cannot_take_is_refused_in_a_sentence(name: str) -> None:
    """Each says what is wrong, and most name the launcher that takes it."""
    edit, said = REFUSED[name]
    given = {
        "a": _codes(3, 256),
        "a_scale": torch.ones(3, 2),
        "b": _codes(16, 256),
        "b_scale": torch.ones(1, 2),
    }
    with pytest.raises(ValueError, match=said):
        multiply_specialised(**{**given, **edit(given)})


def test_outputs_of_32_bits_are_refused_in_a_sentence() -> None:
    """Two halves of a tile in fp32 would not leave room for the stages."""
    with pytest.raises(ValueError, match="bf16 or fp16"):
        multiply_specialised(
            _codes(3, 256), torch.ones(3, 2), _codes(16, 256), torch.ones(1, 2), out="fp32"
        )


def test_each_k_block_is_four_products_from_zero_and_nothing_spills() -> None:
    """Both warp groups begin a block without an accumulator, and wait once for all of it."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    child = subprocess.run(
        [sys.executable, "-m", "tests.kernels.fp8_gemm.compiled_specialised"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    found = json.loads(child.stdout.splitlines()[-1])
    assert found == {"products": 8, "from zero": 2, "waits": 2, "stack": 0}
