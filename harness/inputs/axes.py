"""Axes of declared tensors: named dimensions, numbers, and sums and products of those, such as "n // 32"."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from bitproof.harness.fields import inspect_count, reject

Axis = str | int

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """The range of a named dimension: `least` to `most`, in multiples of `multiple`.

    Without a `least`, a dimension that only ever comes first in a tensor may be 0, any other is at least one
    multiple. Without a `most`, it is what a CPU computes in a moment.
    """

    least: int | None = None
    most: int | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        """SpecError for a range that holds no size."""
        reject("Size", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        for field, value in (("least", self.least), ("most", self.most)):
            if value is not None:
                yield from inspect_count(field, value, 0)
        yield from inspect_count("multiple", self.multiple, 1)
        if self.most is not None:
            first = -(-(self.least or 0) // self.multiple) * self.multiple
            if first > self.most:
                yield f"no multiple of {self.multiple} lies from {self.least or 0} to {self.most}"


def names_in(axis: Axis) -> tuple[str, ...]:
    """The dimensions that an axis is made of, each once; ValueError for what is no axis."""
    if isinstance(axis, int):
        return ()
    return tuple(
        dict.fromkeys(node.id for node in ast.walk(_parse(axis)) if isinstance(node, ast.Name))
    )


def extent(axis: Axis, sizes: Mapping[str, int]) -> int:
    """The number of elements along `axis` where the dimensions have those `sizes`.

    ValueError for a dimension that has none, and for an extent that is negative.
    """
    if isinstance(axis, int):
        return axis
    value = _evaluate(_parse(axis), sizes)
    if value < 0:
        raise ValueError(f"the axis {axis!r} would have {value} elements")
    return value


@cache
def _parse(axis: str) -> ast.expr:
    try:
        tree = ast.parse(axis.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise ValueError(f"{axis!r} is no axis: {_SUCH}") from None
    for node in ast.walk(tree):
        known = isinstance(
            node, (ast.Name, ast.BinOp, ast.Constant, ast.operator, ast.expr_context)
        )
        odd = isinstance(node, ast.BinOp) and type(node.op) not in _OPERATORS
        if not known or odd or (isinstance(node, ast.Constant) and type(node.value) is not int):
            raise ValueError(f"{axis!r} is no axis: {_SUCH}")
    return tree


_SUCH = (
    'write a name, a number, or a sum, difference, product or quotient of those, such as "n // 32"'
)


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant):
        return int(str(node.value))
    if isinstance(node, ast.Name):
        if node.id not in sizes:
            raise ValueError(f"the dimension {node.id!r} has no size")
        return sizes[node.id]
    assert isinstance(node, ast.BinOp)
    left, right = _evaluate(node.left, sizes), _evaluate(node.right, sizes)
    if isinstance(node.op, ast.FloorDiv) and right == 0:
        raise ValueError("an axis divides by a dimension of 0 elements")
    return _OPERATORS[type(node.op)](left, right)
