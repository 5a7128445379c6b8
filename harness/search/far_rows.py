"""A case whose last row lies 2^31 elements from its first, so that a 32-bit offset to it wraps.

Such a case takes little memory: only the pages that hold rows are ever written. The distance between two rows
fits 32 bits, since a kernel takes a wider one as 64 bits: only its product with a row's number does not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import torch

from bitproof.harness.case import Case, Launch, build
from bitproof.harness.spec import KernelSpec, Tensors

REACH = 1 << 31
# Bytes of address space that a case may span; systems refuse single allocations beyond their memory.
MOST = 16 << 30


def find_far_case(spec: KernelSpec, cases: Iterable[Case]) -> Case | None:
    """The smallest of `cases` with three rows or more in each strided tensor of the spec, its rows apart.

    None where there is no such case.
    """
    if not spec.strided:
        return None
    best: tuple[int, int, Case] | None = None
    for case in cases:
        tensors = build(case, torch.device("cpu")).tensors
        padding = _padding(spec, tensors)
        size = sum(tensor.numel() for tensor in tensors.values())
        if padding is not None and (best is None or size < best[0]):
            best = (size, padding, case)
    if best is None:
        return None
    _, padding, case = best
    moved: Case = with_launch(case, dataclasses.replace(case.launch, row_padding=padding))
    return moved


def _padding(spec: KernelSpec, tensors: Tensors) -> int | None:
    """Elements between rows at which each last row is out of reach of 32 bits; None if that cannot be."""
    found = [tensors[name] for name in spec.strided if name in tensors]
    rows = [math.prod(tensor.shape[:-1]) for tensor in found]
    if not found or min(rows) < 3 or any(tensor.numel() == 0 for tensor in found):
        return None
    stride = math.ceil(REACH / (min(rows) - 1))
    spans = [stride * n * t.element_size() for n, t in zip(rows, found, strict=True)]
    return stride - min(t.shape[-1] for t in found) if sum(spans) <= MOST else None


def with_launch(case: Any, launch: Launch) -> Any:
    """The same case launched so; the launch may lie in a case within the case."""
    for field in dataclasses.fields(case):
        value = getattr(case, field.name)
        if isinstance(value, Launch):
            return dataclasses.replace(case, **{field.name: launch})
        if dataclasses.is_dataclass(value) and isinstance(getattr(value, "launch", None), Launch):
            return dataclasses.replace(case, **{field.name: with_launch(value, launch)})
    return None
