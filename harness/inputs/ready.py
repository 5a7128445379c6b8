"""Inputs that many kernels share, ready made: a vector, a matrix, packed sequences, tokens of experts.

Each is a dict that a contract takes as it is, or joined: `{**matrix("x"), "w": Tensor("columns")}`.
"""

from __future__ import annotations

from typing import Any

from bitproof.harness.inputs.declared import Input, Offsets, Tensor


def vector(*names: str, **options: Any) -> dict[str, Input]:
    """Tensors [n] of those names, "x" for none; `options` are those of `Tensor`."""
    return {name: Tensor("n", **options) for name in names or ("x",)}


def matrix(*names: str, **options: Any) -> dict[str, Input]:
    """Tensors [rows, columns] of those names, "x" for none; `options` are those of `Tensor`."""
    return {name: Tensor("rows", "columns", **options) for name in names or ("x",)}


def packed_sequences(*names: str, slack: bool = False, **options: Any) -> dict[str, Input]:
    """Tensors [tokens, columns] of those names, "x" for none, and cu_seqlens [sequences + 1] int32.

    With `slack` there may be tokens past the last sequence.
    """
    tensors = {name: Tensor("tokens", "columns", **options) for name in names or ("x",)}
    return {**tensors, "cu_seqlens": Offsets(of="tokens", slack=slack)}


def ragged_experts(*, block: int = 64, **options: Any) -> dict[str, Input]:
    """x [tokens, k], w [experts, k, n] of one type, and offsets [experts + 1] int32 of each expert's rows.

    Numbers of rows lie next to multiples of `block`, a kernel's tile.
    """
    cut = Offsets(of="tokens", count="experts", parts="experts", block=block, most=2 * block)
    x = Tensor("tokens", "k", **options)
    return {"x": x, "w": Tensor("experts", "k", "n", like="x"), "offsets": cut}
