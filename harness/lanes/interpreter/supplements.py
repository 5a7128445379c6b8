"""What stops public kernels on the stock interpreter: autotuning, float arguments, loops, libdevice.

Loops and libdevice calls are found in a kernel's source, which the interpreter rewrites anyway: `range`
becomes a loop whose variable is a scalar of the type the compiler gives it, and a function of CUDA's
device library becomes the host's.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner

from bitproof.harness.lanes import autotune
from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.numerics.libdevice import on_host
from bitproof.harness.lanes.interpreter.offsets import follow_loop
from bitproof.harness.lanes.interpreter.overlay import Patch

_LOOP = "_bitproof_loop"
_LIBDEVICE = "_bitproof_libdevice"
_ABSENT = object()


def patches() -> list[Patch]:
    """Launches, arguments and sources that the stock interpreter does not accept."""
    return [
        Patch(Autotuner, "run", _wrap_autotuner),
        Patch(interpreter, "_implicit_cvt", _wrap_convert),
        Patch(interpreter.FunctionRewriter, "_transform_ast", _wrap_transform),
    ]


def _wrap_autotuner(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if state.current is None:
            return original(self, *args, **kwargs)
        asked = state.current.scratch
        number, tuning = asked.get("config") or 0, asked.get("tuning", False)
        config = autotune.prepare(self, number, args, kwargs, tuning=tuning)
        named = dict(zip(self.arg_names, args, strict=False))
        if config.pre_hook is not None:
            config.pre_hook({**named, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    return run


def _wrap_convert(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if state.current is None or not isinstance(value, float):
            return original(value)
        # A launch passes Python floats as fp32.
        data = np.array([value], dtype=np.float64).astype(np.float32)
        return tl.tensor(interpreter.TensorHandle(data, tl.float32), tl.float32)

    return convert


def _wrap_transform(original: Callable[..., Any]) -> Callable[..., Any]:
    # What was rewritten before is stock.
    interpreter.InterpretedFunction.rewritten_fn.clear()

    def transform(self: Any, source: str) -> Any:
        names = self.fn.__globals__
        names[_LOOP], names[_LIBDEVICE] = _loop, on_host
        tree = _Reaching(names).visit(original(self, source))
        return ast.fix_missing_locations(tree)

    return transform


class _Reaching(ast.NodeTransformer):
    """Redirects loops over `range` and calls of libdevice."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call) and self._counts(node.iter.func):
            node.iter.func = ast.copy_location(ast.Name(_LOOP, ast.Load()), node.iter.func)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        module = getattr(self._meaning(node.func), "__module__", None)
        if isinstance(module, str) and module.split(".")[-1] == "libdevice":
            name = ast.copy_location(ast.Name(_LIBDEVICE, ast.Load()), node.func)
            node.func = ast.copy_location(ast.Call(name, [node.func], []), node.func)
        return node

    def _counts(self, function: ast.expr) -> bool:
        """Whether it is Python's `range` or `tl.range`; a launch makes `tl.static_range` look alike."""
        if isinstance(function, ast.Attribute):
            return function.attr == "range" and self._meaning(function.value) in (tl, tl.core)
        return self._meaning(function) is range

    def _meaning(self, node: ast.expr) -> Any:
        """The global object that a name or a chain of attributes stands for."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, range if node.id == "range" else _ABSENT)
        if isinstance(node, ast.Attribute):
            return getattr(self._meaning(node.value), node.attr, _ABSENT)
        return _ABSENT


def _loop(*bounds: Any, **hints: Any) -> Iterator[Any]:
    """A `range` whose variable has the type that the compiler gives it: int64 if a bound has, or int32.

    `hints` are those of `tl.range`, which only a compiler heeds.
    """
    step = hints.pop("step", None)
    bounds = bounds if step is None else (*bounds, step)
    numbers = range(*(operator.index(bound) for bound in bounds))
    if state.current is None:
        yield from numbers
        return
    wide = any(isinstance(b, tl.tensor) and b.dtype.primitive_bitwidth > 32 for b in bounds)
    wide = wide or any(not -(2**31) <= n < 2**31 for n in (numbers.start, numbers.stop))
    dtype = tl.int64 if wide else tl.int32
    for number in numbers:
        data = np.array([number], dtype=np.int64 if wide else np.int32)
        variable = interpreter.TensorHandle(data, dtype)
        follow_loop(variable, numbers, bounds)
        yield tl.tensor(variable, dtype)
