"""Far ends of the quantisers' contracts, and calls outside them: what small drawn cases hardly reach."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from bitproof.harness.case import Case, Inputs, Launch
from bitproof.harness.spec import Refusal
from bitproof.harness.strategies import floats
from bitproof.harness.strategies.values import Values
from bitproof.kernels.quantise.arguments import MOST, WIDTH
from bitproof.kernels.quantise.cases import CastCase, MatrixCase, StaticCase
from bitproof.kernels.quantise.cases_kv_store import StoreCase

Edit = Callable[[Tensor], Tensor]
_FEW = Launch(block=128)
_LARGEST = Values(kind="explicit", bits=("0x7f7fffff", "0xff7fffff", "0x3f800000"))


def casts(target: str) -> tuple[CastCase, ...]:
    """More programs than are drawn."""
    lattice = Values(kind="lattice", target=target)
    return (CastCase(count=100 * 128 + 3, values=lattice, launch=_FEW),)


def matrices(target: str, *, packed: int = 1) -> tuple[MatrixCase, ...]:
    """More programs than are drawn, in each group a largest magnitude at the ends of fp32's range.

    Then the smallest groups and the largest, and the largest numbers of fp32, which have the largest scales.
    """
    edges = Values(kind="edges", seed=1, target=target)
    usual = MatrixCase(
        rows=67, columns=64 + 6 * packed, group=32, packed=packed, values=edges, launch=_FEW
    )
    ranges = (dataclasses.replace(edges, exponent=exponent) for exponent in (0, -126, 110))
    return (
        *(dataclasses.replace(usual, values=values) for values in ranges),
        dataclasses.replace(usual, rows=3, columns=10 * packed, group=packed),
        dataclasses.replace(usual, rows=2, columns=MOST + 6 * packed, group=MOST),
        dataclasses.replace(usual, rows=2, values=_LARGEST),
    )


def scaled_matrices() -> tuple[StaticCase, ...]:
    """More programs than are drawn; the smallest and the largest scale."""
    usual = MatrixCase(rows=23, columns=WIDTH + 6, launch=_FEW)
    ends = (floats.pattern(2.0**-126), floats.pattern(2.0**126))
    aimed = (
        dataclasses.replace(usual, values=Values(kind="lattice", unit=scale)) for scale in ends
    )
    return tuple(StaticCase(matrix=m, scale=s) for m, s in zip(aimed, ends, strict=True))


def stores(kind: Literal["int8", "fp8"]) -> tuple[StoreCase, ...]:
    """Heads of 256 elements, and 64 of them, in slots out of order."""
    target = "int8" if kind == "int8" else "e4m3"
    values = Values(kind="anchored", seed=1, target=target)
    wide = StoreCase(
        kind=kind,
        tokens=37,
        heads=3,
        dim=256,
        slots=64,
        shuffled=True,
        skipping=True,
        values=values,
    )
    return wide, dataclasses.replace(wide, tokens=2, heads=64, dim=33)


def cast_refusals(target: str) -> tuple[Refusal, ...]:
    """What `require_floats` refuses."""
    values = Values(kind="lattice", target=target)
    return _of_tensors(CastCase(count=6, values=values), {**_TYPES, **_of_axes(1)})


def matrix_refusals(case: MatrixCase | StaticCase) -> tuple[Refusal, ...]:
    """The same for a matrix, and groups that are no power of two."""
    refused = _of_tensors(case, {**_TYPES, **_of_axes(2)})
    if isinstance(case, StaticCase):
        return refused
    groups = {f"groups of {n}": n for n in (96, 0, -32, 2 * MOST)}
    return refused + tuple(
        Refusal(name=name, case=case, spoil=partial(_regrouped, group))
        for name, group in groups.items()
    )


def store_refusals(kind: Literal["int8", "fp8"]) -> tuple[Refusal, ...]:
    """Keys, slots and caches that do not fit one another."""
    case = StoreCase(kind=kind, tokens=2, heads=2, dim=33, slots=3)
    edits: dict[str, dict[str, Edit]] = {
        "k in fp64": {"k": lambda k: k.double()},
        "v of every second element": {"v": lambda v: v.repeat_interleave(2, 2)[..., ::2]},
        "v of one head less": {"v": lambda v: v[:, 1:]},
        "slots in int32": {"indices": lambda indices: indices.int()},
        "a slot too few": {"indices": lambda indices: indices[1:]},
        "a cache of one element less": {"k_cache": lambda cache: cache[..., 1:].contiguous()},
        "a cache of one head more": {"v_cache": lambda cache: cache[:, [0, 1, 1]]},
        "scales of one block less": {"k_scale": lambda scale: scale[..., 1:].contiguous()},
    }
    return _of_tensors(case, edits)


_TYPES: Mapping[str, dict[str, Edit]] = {
    "x in fp64": {"x": lambda x: x.double()},
    "x in integers": {"x": lambda x: torch.zeros_like(x, dtype=torch.int32)},
    "x in e4m3": {"x": lambda x: torch.zeros_like(x, dtype=torch.uint8).view(torch.float8_e4m3fn)},
}


def _of_axes(axes: int) -> Mapping[str, dict[str, Edit]]:
    return {
        f"x with {axes + 1} axes": {"x": lambda x: x[None]},
        "x of every second element": {"x": lambda x: x.repeat_interleave(2, -1)[..., ::2]},
    }


def _of_tensors(case: Case, edits: Mapping[str, dict[str, Edit]]) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(name=name, case=case, spoil=partial(_changed, each)) for name, each in edits.items()
    )


def pair_refusals(case: MatrixCase) -> tuple[Refusal, ...]:
    """Two codes share a byte, and so a scale."""
    last: dict[str, Edit] = {"x": lambda x: x[:, 1:].contiguous()}
    return (
        Refusal(name="an odd number of columns", case=case, spoil=partial(_changed, last)),
        Refusal(name="groups of 1", case=case, spoil=partial(_regrouped, 1)),
    )


def _changed(edits: dict[str, Edit], inputs: Inputs) -> Inputs:
    return inputs.replace(**{name: edit(inputs.tensors[name]) for name, edit in edits.items()})


def _regrouped(group: int, inputs: Inputs) -> Inputs:
    return dataclasses.replace(inputs, params={**inputs.params, "group": group}, case=None)
