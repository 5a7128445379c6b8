"""Launches of one compiled variant have one identity, whatever their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from bitproof.harness.compiling.description import identify_variant
from bitproof.harness.compiling.launch import KernelLaunch


@triton.jit
def double(x, n, count, BLOCK: tl.constexpr):
    """A kernel with a pointer or a descriptor, two integers and a constant."""
    place = x + tl.arange(0, BLOCK) + n * count
    tl.store(place, 2 * tl.load(place))


def _identity(declared: Mapping[str, Any] | None = None, **changed: Any) -> str:
    arguments = {"x": torch.zeros(64), "n": 48, "count": 5, "BLOCK": 16, **changed}
    launch = KernelLaunch(
        function=double.fn, declared=declared or {}, arguments=arguments, options={"num_warps": 4}
    )
    return identify_variant(launch)


@pytest.mark.parametrize(
    "same", [{"n": 64}, {"count": 7}, {"x": torch.ones(32)}, {"n": 2**20, "count": 3}]
)
def test_other_sizes_of_a_kind_are_one_variant(same: dict[str, Any]) -> None:
    """As Triton has it: multiples of 16 alike, other integers alike, but 1 and what needs 64 bits."""
    assert _identity(**same) == _identity()


@pytest.mark.parametrize(
    "other",
    [
        {"n": 1},
        {"n": 47},
        {"n": 2**40},
        {"count": 16},
        {"BLOCK": 32},
        {"x": torch.zeros(64)[1:]},
        {"x": torch.zeros(64, dtype=torch.float16)},
    ],
)
def test_what_triton_specialises_on_is_another_variant(other: dict[str, Any]) -> None:
    """Ones, alignment, width, constants and types."""
    assert _identity(**other) != _identity()


@pytest.mark.parametrize("names", [("n",), [1]])
def test_an_integer_that_is_not_specialised_counts_by_its_width(names: Any) -> None:
    """Declared by name or by place."""
    declared = {"do_not_specialize": names}
    assert _identity(declared, n=1) == _identity(declared) == _identity(declared, n=47)
    assert _identity(declared, n=2**40) != _identity(declared)


def test_alignment_may_be_left_out_alone() -> None:
    """One stays a constant."""
    declared = {"do_not_specialize_on_alignment": ("n", "x")}
    shifted = torch.zeros(64)[1:]
    assert _identity(declared, n=47, x=shifted) == _identity(declared)
    assert _identity(declared, n=1) != _identity(declared)


def test_descriptors_differ_by_their_blocks_alone() -> None:
    """Their shapes and strides are numbers like others."""

    def described(rows: int, block: int) -> str:
        matrix = torch.zeros(rows, 16)
        return _identity(x=TensorDescriptor.from_tensor(matrix, [block, 16]))

    assert described(32, 16) == described(48, 16)
    assert described(32, 16) != described(32, 32)
