"""A kernel that adds tensors of three axes, and launchers that give it wrong strides."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.case import Launch
from bitproof.harness.layouts import LAYOUTS, Layout, Sharing, dense_strides
from bitproof.harness.spec import KernelSpec, Params, Tensors
from bitproof.harness.strategies import launches
from tests.harness import plain

Strides = tuple[int, ...]


@triton.jit
def _add(k_ptr, v_ptr, y_ptr, rows, columns, count, k0, k1, k2, v0, v1, v2, BLOCK: tl.constexpr):
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    plane, row, column = element // (rows * columns), element // columns % rows, element % columns
    inside = element < count
    k = tl.load(k_ptr + plane * k0 + row * k1 + column * k2, mask=inside)
    v = tl.load(v_ptr + plane * v0 + row * v1 + column * v2, mask=inside)
    tl.store(y_ptr + element, k + v, mask=inside)


def added(
    tensors: Tensors, params: Params, *, told: Callable[[Tensor, Tensor], tuple[Strides, Strides]]
) -> dict[str, Tensor]:
    """k, v [planes, rows, columns] fp32 -> y = k + v; `told` gives the strides that the kernel is told."""
    k, v, block = tensors["k"], tensors["v"], params["launch"].block
    y = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    of_k, of_v = told(k, v)
    _, rows, columns = k.shape
    _add[(triton.cdiv(k.numel(), block),)](
        k, v, y, rows, columns, k.numel(), *of_k, *of_v, BLOCK=block
    )
    return {"y": y}


def right(k: Tensor, v: Tensor) -> tuple[Strides, Strides]:
    """What torch says."""
    return k.stride(), v.stride()


def without_last(k: Tensor, v: Tensor) -> tuple[Strides, Strides]:
    """The last axis taken for dense."""
    return (*k.stride()[:-1], 1), (*v.stride()[:-1], 1)


def dense_v(k: Tensor, v: Tensor) -> tuple[Strides, Strides]:
    """v taken for dense."""
    return k.stride(), dense_strides(tuple(v.shape))


def ks_for_both(k: Tensor, v: Tensor) -> tuple[Strides, Strides]:
    """v taken to lie as k does."""
    return k.stride(), k.stride()


def rows_times_columns(k: Tensor, v: Tensor) -> tuple[Strides, Strides]:
    """The first stride worked out from the shape and the second."""
    return (k.shape[1] * k.stride(1), *k.stride()[1:]), v.stride()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanesCase:
    """k, v [planes, rows, columns] fp32 out of a counter; v the same in each plane where `repeated`."""

    planes: int = 1
    rows: int = 1
    columns: int = 1
    repeated: bool = False
    launch: Launch = Launch(block=64)

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """Multiples of 2^-23."""
        shape = (self.planes, self.rows, self.columns)
        k, v = (
            generators.uniform(
                generators.hash_words(seed, 0, self.planes * self.rows * self.columns, device)
            )
            for seed in (0, 1)
        )
        v = v.reshape(shape)
        v = v[:1].expand(shape).contiguous() if self.repeated else v
        return {"k": k.reshape(shape), "v": v}

    def params(self) -> dict[str, Any]:
        """None."""
        return {}

    def features(self) -> tuple[str, ...]:
        """Whether planes are the same."""
        return ("repeated",) if self.repeated else ()


def _cases(drawn: bool) -> st.SearchStrategy[PlanesCase]:
    return st.builds(
        PlanesCase,
        planes=st.integers(1, 3),
        rows=st.integers(1, 4),
        columns=st.integers(1, 5),
        repeated=st.booleans(),
        launch=launches.launches((64,), layouts=drawn),
    )


def spec(
    told: Callable[[Tensor, Tensor], tuple[Strides, Strides]] = right,
    *names: Layout,
    drawn: bool = False,
    together: Sharing | None = None,
) -> KernelSpec:
    """That kernel; k and v may have the layouts of those names, all by default, or lie `together` alone."""
    every: Any = () if together else names or LAYOUTS
    return plain.variant(
        name="added_planes",
        run=partial(added, told=told),
        case=PlanesCase,
        cases=partial(_cases, drawn),
        oracle=lambda tensors, params: {"y": (tensors["k"] + tensors["v"]).cpu().numpy()},
        layouts={"k": every, "v": every},
        shared={("k", "v"): (together,)} if together else {},
    )
