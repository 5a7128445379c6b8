"""A place in a kernel function that operators look at: one node, what it stands in, how it is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bitproof.harness.mutants.edits import Source

_COMPOUND = (ast.BinOp, ast.Compare, ast.IfExp, ast.UnaryOp)


@dataclass(frozen=True, kw_only=True)
class Place:
    """One node of a function's body.

    `parents` has for every node in the function the node that it belongs to.
    """

    node: ast.AST
    source: Source
    parents: Mapping[ast.AST, ast.AST]

    def of(self, node: ast.AST) -> str:
        """A node as it is written."""
        return self.source.of(node)

    def operand(self, node: ast.expr) -> str:
        """An expression as an operand: in brackets where it has an operator itself."""
        text = self.of(node)
        return f"({text})" if isinstance(node, _COMPOUND) else text

    @property
    def parent(self) -> ast.AST | None:
        """What the node belongs to."""
        return self.parents.get(self.node)

    def within(self) -> Iterator[ast.AST]:
        """What the node belongs to, from the inside out."""
        node = self.parents.get(self.node)
        while node is not None:
            yield node
            node = self.parents.get(node)

    def call(self, *names: str) -> ast.Call | None:
        """The node, where it is a call of a function or method of one of these names."""
        if isinstance(self.node, ast.Call) and called(self.node) in names:
            return self.node
        return None

    def rewritten(
        self,
        call: ast.Call,
        *,
        drop: tuple[str, ...] = (),
        changed: Mapping[str, str] | None = None,
    ) -> str:
        """A call without some keywords, and with others changed or added."""
        changes = dict(changed or {})
        parts = [self.of(one) for one in call.args]
        for keyword in call.keywords:
            name = keyword.arg or ""
            if name in drop:
                continue
            text = changes.pop(name, None)
            value = text if text is not None else self.of(keyword.value)
            parts.append(f"{name}={value}" if name else f"**{value}")
        parts += [f"{name}={value}" for name, value in changes.items()]
        return f"{self.of(call.func)}({', '.join(parts)})"


def called(call: ast.Call) -> str:
    """The last part of what a call names: "load" for `tl.load(...)`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def is_language(call: ast.Call) -> bool:
    """Whether it is a function of a module, such as `tl.sum`, not a method of a value."""
    value = call.func.value if isinstance(call.func, ast.Attribute) else None
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name) and value.id in ("tl", "triton", "language", "libdevice")


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword, None where the call does not give it."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression uses."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
