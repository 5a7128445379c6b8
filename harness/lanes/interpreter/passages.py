"""Which lines of kernels launches execute: passages of statements, each marked where it begins.

The interpreter rewrites a kernel's source before it runs it. A mark is one more statement, a call of a set's
`add` with a number: some 50 ns, where one interpreted operation takes many thousands. Line numbers stay those
of the file. Branches on constexprs are branches like all others here.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime import interpreter

from bitproof.harness.exercised import Passage, note_lines
from bitproof.harness.lanes.interpreter.overlay import Patch

_MARK = "_bitproof_mark"

_seen: set[int] = set()
_names: list[str] = []  # of each passage, by the number of its mark
_functions: list[range] = []  # for each passage the numbers of all those of its function


def patches() -> list[Patch]:
    """The rewriting of a kernel's source."""
    return [Patch(interpreter.FunctionRewriter, "_transform_ast", _wrap_transform)]


@contextmanager
def noting() -> Iterator[None]:
    """Note, at the end, what was executed of the functions that were called; it may end by an exception."""
    _seen.clear()
    try:
        yield
    finally:
        called = dict.fromkeys(_functions[number] for number in sorted(_seen))
        note_lines({_names[n]: int(n in _seen) for numbers in called for n in numbers})


def _wrap_transform(original: Callable[..., Any]) -> Callable[..., Any]:
    def transform(self: Any, source: str) -> Any:
        tree = original(self, source)
        if str(self.fn.__module__).split(".")[0] == "triton":
            return tree
        self.fn.__globals__[_MARK] = _seen.add
        asis = ast.increment_lineno(ast.parse(source), self.def_file_lineno - 1)
        marker = _Marker(_shown(self.filename), asis)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                marker.mark_function(node)
        return ast.fix_missing_locations(tree)

    return transform


def _shown(path: str) -> str:
    """A file as a summary names it: from the working directory on, where it lies there."""
    below = os.path.relpath(path)
    return path if below.startswith(os.pardir) else below


class _Marker:
    """Marks the passages of a function: its suites, and what follows a statement that may leave one."""

    def __init__(self, file: str, asis: ast.Module) -> None:
        """`asis` is the source as it was, which has the places and words that rewriting loses."""
        self._file = file
        self._asis = {
            (node.lineno, node.col_offset): node
            for node in ast.walk(asis)
            if isinstance(node, ast.stmt)
        }

    def mark_function(self, function: ast.FunctionDef) -> None:
        self._function = function.name
        first = len(_names)
        function.body = self._marked(function.body, "")
        numbers = range(first, len(_names))
        _functions.extend(numbers for _ in numbers)

    def _marked(self, suite: list[ast.stmt], condition: str) -> list[ast.stmt]:
        last = max((self._original(statement).end_lineno or 0 for statement in suite), default=0)
        plain = not (_is_elif(suite) or all(_forbids(statement) for statement in suite))
        marked: list[ast.stmt] = []
        begins = plain
        for statement in suite:
            if begins and not _documents(statement):
                marked.append(self._mark(statement, last, condition))
                begins = False
            self._descend(statement)
            marked.append(statement)
            begins = begins or (plain and _may_leave(statement))
        return marked

    def _descend(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.If):
            test = ast.unparse(self._original(statement).test)
            statement.body = self._marked(statement.body, f"if {test}")
            statement.orelse = self._marked(statement.orelse, f"else of if {test}")
        elif isinstance(statement, (ast.For, ast.While)):
            original = self._original(statement)
            loop = (
                f"for {ast.unparse(original.target)} in {ast.unparse(original.iter)}"
                if isinstance(original, ast.For)
                else f"while {ast.unparse(original.test)}"
            )
            statement.body = self._marked(statement.body, loop)
        elif isinstance(statement, ast.With):
            statement.body = self._marked(statement.body, "")

    def _mark(self, statement: ast.stmt, last: int, condition: str) -> ast.stmt:
        passage = Passage(
            file=self._file,
            first=statement.lineno,
            last=last,
            function=self._function,
            condition=condition,
        )
        number = ast.Constant(len(_names))
        _names.append(str(passage))
        call = ast.Call(ast.Name(_MARK, ast.Load()), [number], [])
        return ast.copy_location(ast.Expr(call), statement)

    def _original(self, statement: ast.stmt) -> Any:
        return self._asis[statement.lineno, statement.col_offset]


def _is_elif(suite: list[ast.stmt]) -> bool:
    """Whether it is but another condition, whose branches tell for themselves."""
    return len(suite) == 1 and isinstance(suite[0], ast.If)


def _documents(statement: ast.stmt) -> bool:
    """Whether it is a docstring, or another bare constant."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _forbids(statement: ast.stmt) -> bool:
    """Whether it does nothing, or says that control never gets there."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func).split(".")[-1] == "static_assert"
    return isinstance(statement, (ast.Pass, ast.Assert, ast.Raise))


def _may_leave(statement: ast.stmt) -> bool:
    """Whether what follows it need not run although it did."""
    compound = isinstance(statement, (ast.If, ast.For, ast.While, ast.With))
    leaving = (ast.Return, ast.Break, ast.Continue)
    return compound and any(isinstance(node, leaving) for node in ast.walk(statement))
