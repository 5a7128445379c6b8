"""One launch: arguments to the host, the grid in the session's order, results back.

Replaces `GridExecutor.__call__` while a session is active. The parts that differ between triton
versions (host copies, conversion of arguments) are the installed interpreter's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError

from harness.errors import BitproofError, Unsupported
from harness.lanes.interpreter import order, state
from harness.lanes.interpreter.overlay import Patch

# What `_patch_lang` looks at to decide which modules to patch: here, all that it knows.
_EVERYTHING = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})


def patches() -> list[Patch]:
    """Launches run in the session's order, and nested calls find the language patched already."""
    return [
        Patch(interpreter.GridExecutor, "__call__", _launching),
        Patch(interpreter.InterpretedFunction, "__call__", _nesting),
    ]


def _launching(original: Callable[..., None]) -> Callable[..., None]:
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        if state.current is None:
            return original(self, *args, **kwargs)
        return _launch(self, state.current, args, kwargs)

    return call


def _launch(
    executor: Any, session: state.Session, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    spec = inspect.getfullargspec(executor.fn)
    accepted = {*spec.args, *spec.kwonlyargs}
    kwargs = {name: value for name, value in kwargs.items() if name in accepted}
    args_host, kwargs_host = executor._init_args_hst(args, kwargs)
    for hook in executor.pre_run_hooks:
        hook(*args_host, **kwargs_host)
    scope = interpreter._patch_lang(_EVERYTHING)
    try:
        named = {
            name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
            for name, value in inspect.getcallargs(executor.fn, *args_host, **kwargs_host).items()
        }
        _run_grid(executor, session, named)
    finally:
        scope.restore()
    executor._restore_args_dev(args, args_host, kwargs, kwargs_host)


def _run_grid(executor: Any, session: state.Session, named: Mapping[str, Any]) -> None:
    grid = executor.grid(named) if callable(executor.grid) else executor.grid
    grid = (*grid, *(1,) * (3 - len(grid)))
    builder = interpreter.interpreter_builder
    builder.set_grid_dim(*grid)
    # Kernels overflow on purpose, as hardware does, silently.
    with np.errstate(all="ignore"):
        for _, coordinates in order.coordinates(session.order, grid):
            builder.set_grid_idx(*coordinates)
            try:
                executor.fn(**named)
            except Exception as error:
                raise _explained(error, executor.fn.__name__) from error


def _explained(error: BaseException, kernel: str) -> Exception:
    """What a launch raises for an `error` inside a kernel; nested calls wrap theirs once each."""
    root: BaseException = error
    while isinstance(root, InterpreterError) and root.__cause__ is not None:
        root = root.__cause__
    if isinstance(root, BitproofError):
        return root
    if isinstance(root, NotImplementedError):
        return Unsupported(f"The interpreter cannot run {kernel}: {root}.")
    return InterpreterError(repr(root))


def _nesting(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if state.current is None:
            return original(self, *args, **kwargs)
        return self.rewrite()(*args, **kwargs)

    return call
