"""Edits of a source by position, found in its syntax tree: what operators make and mutants carry."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass, field
from functools import cached_property

# What needs no brackets wherever it comes to stand.
_ATOMS = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.Tuple, ast.List)


@dataclass(frozen=True, kw_only=True, order=True)
class Edit:
    """Bytes `start` to `stop` of a source, as UTF-8, that become `new`."""

    start: int
    stop: int
    new: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """The text of a module, its tree, and where each node of it lies."""

    text: str
    tree: ast.Module = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """SyntaxError for what is no Python."""
        object.__setattr__(self, "tree", ast.parse(self.text))

    @cached_property
    def _bytes(self) -> bytes:
        return self.text.encode()

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self._bytes.split(b"\n"):  # the lines that `ast` counts
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The bytes at which a node begins and ends."""
        place = {name: getattr(node, name) for name in ("lineno", "col_offset")}
        end = {name: getattr(node, f"end_{name}") for name in place}
        return (
            self._starts[place["lineno"] - 1] + place["col_offset"],
            self._starts[end["lineno"] - 1] + end["col_offset"],
        )

    def of(self, node: ast.AST) -> str:
        """A node as it is written."""
        start, stop = self.span(node)
        return self._bytes[start:stop].decode()

    def replace(self, node: ast.AST, new: str, *, operand: bool = False) -> Edit:
        """The edit that puts `new` where `node` is; in brackets, where it is an operand, if it needs them."""
        start, stop = self.span(node)
        inside = self._bytes[start - 1 : start] == b"(" and self._bytes[stop : stop + 1] == b")"
        return Edit(start=start, stop=stop, new=_bracketed(new) if operand and not inside else new)

    def apply(self, edit: Edit) -> str:
        """The source with one edit."""
        whole = self._bytes
        return (whole[: edit.start] + edit.new.encode() + whole[edit.stop :]).decode()

    def line(self, edit: Edit) -> int:
        """The number of the line on which an edit begins, from 1."""
        return self._bytes.count(b"\n", 0, edit.start) + 1


def _bracketed(text: str) -> str:
    """`text`, in brackets unless it is an atom; what is no expression stays as it is."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return text
    return text if isinstance(tree, _ATOMS) else f"({text})"


def diff(before: str, after: str, name: str) -> str:
    """The change as a unified diff of one line of context, with the file's name."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", n=1, lineterm=""
    )
    return "\n".join(lines)
