"""One launch: arguments to the host, the grid in the session's order, results back.

Replaces `GridExecutor.__call__` while a session is active. The parts that differ between triton
versions (host copies, conversion of arguments) are the installed interpreter's own.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from bitproof.harness.compiling.launch import KernelLaunch
from bitproof.harness.errors import BitproofError, Uncompilable, Unsupported, causes
from bitproof.harness.lanes.interpreter import offsets, order, state
from bitproof.harness.lanes.interpreter.access import set_origin
from bitproof.harness.lanes.interpreter.configuration import (
    require_keywords,
    require_launchable,
)
from bitproof.harness.lanes.interpreter.overlay import Patch
from bitproof.harness.lanes.interpreter.sanitizer.violations import locate_error
from bitproof.harness.lanes.interpreter.waiting import Patience

# What `_patch_lang` looks at to decide which modules to patch: here, all that it knows.
_EVERYTHING = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})

_CHANGES: list[tuple[Any, str, Any]] = []


def patches() -> list[Patch]:
    """Launches run in the session's order, and nested calls find the language patched already."""
    return [
        Patch(interpreter.GridExecutor, "__call__", _wrap_call),
        Patch(interpreter.InterpretedFunction, "run", _naming),
        Patch(interpreter.InterpretedFunction, "__call__", _wrap_nested_call),
    ]


def _wrap_call(original: Callable[..., None]) -> Callable[..., None]:
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        if state.current is None:
            return original(self, *args, **kwargs)
        # A launcher's torch modes are about the launcher's own tensors.
        with torch._C.DisableTorchFunction():
            return _launch(self, state.current, args, kwargs)

    return call


def _naming(original: Callable[..., Any]) -> Callable[..., Any]:
    """An executor knows a rewritten function; what `triton.jit` was told is the original's."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if state.current is not None:
            state.current.scratch["launched"] = self
        return original(self, *args, **kwargs)

    return run


def _wrap_nested_call(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if state.current is None:
            return original(self, *args, **kwargs)
        return self.rewrite()(*args, **kwargs)

    return call


def _launch(
    executor: Any, session: state.Session, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    spec = inspect.getfullargspec(executor.fn)
    accepted = {*spec.args, *spec.kwonlyargs}
    kernel = executor.fn.__name__
    require_keywords(kernel, kwargs, accepted)
    options = {name: value for name, value in kwargs.items() if name not in accepted}
    kwargs = {name: value for name, value in kwargs.items() if name in accepted}
    args_host, kwargs_host = executor._init_args_hst(args, kwargs)
    for hook in executor.pre_run_hooks:
        hook(*args_host, **kwargs_host)
    given = inspect.getcallargs(executor.fn, *args_host, **kwargs_host)
    grid = executor.grid(given) if callable(executor.grid) else executor.grid
    grid = (*(int(n) for n in grid), *(1,) * (3 - len(grid)))
    require_launchable(kernel, grid, {**options, **given})
    if 0 in grid:
        return  # as on a card: there is nothing to start
    interpreted = session.scratch["launched"]
    session.launches.append(
        KernelLaunch(
            function=interpreted.fn, declared=interpreted.kwargs, arguments=given, options=options
        )
    )
    constant = {*executor.constexprs, *_ones(interpreted, given)}
    with _language(session):
        named = {
            name: value if name in constant else interpreter._implicit_cvt(value)
            for name, value in given.items()
        }
        offsets.tell_arguments(named)
        _announce(kernel, session, grid, given, named)
        _run(executor.fn, session, grid, named)
    executor._restore_args_dev(args, args_host, kwargs, kwargs_host)


def _ones(interpreted: Any, given: Mapping[str, Any]) -> list[str]:
    """The arguments that Triton makes constants for being the integer 1."""
    kept = interpreted.kwargs.get("do_not_specialize") or ()
    return [
        name
        for number, (name, value) in enumerate(given.items())
        if type(value) is int and value == 1 and name not in kept and number not in kept
    ]


@contextmanager
def _language(session: state.Session) -> Iterator[None]:
    """Triton's language interpreted; assertions only where somebody hears them."""
    builder = interpreter.interpreter_builder
    options = builder.options
    builder.options = dataclasses.replace(
        options,
        sanitize_overflow=False,
        debug=session.watch is not None,
        # As Triton's options for these targets have it: fp8 sums of sm_90 are not promoted unasked.
        max_num_imprecise_acc_default=1 << 30 if session.target == "sm_90" else 0,
    )
    scope = _patch_language()
    try:
        yield
    finally:
        scope.restore()
        builder.options = options


def _patch_language() -> Any:
    """The scope of Triton's language, interpreted; what to set is found out once and then remembered."""
    if _CHANGES:
        scope = interpreter._LangPatchScope()
        for owner, name, value in _CHANGES:
            scope.set_attr(owner, name, value)
        return scope
    scope = interpreter._patch_lang(_EVERYTHING)
    # triton 3.6 converts an array of one element, which numpy 2.4 no longer does.
    scope.set_attr(tl.tensor, "__index__", lambda scalar: int(scalar.handle.data.item()))
    _CHANGES.extend((owner, name, vars(owner)[name]) for owner, name, _ in scope._changes)
    return scope


def _announce(
    kernel: str,
    session: state.Session,
    grid: tuple[int, int, int],
    given: Mapping[str, Any],
    named: Mapping[str, Any],
) -> None:
    """Tell sanitizer or fence the tensors of a launch, and their pointers where they come from."""
    found = [one for name, value in given.items() for one in _pointers(name, value, named[name])]
    if session.fence is not None:
        session.fence.begin(tensor for _, tensor, _ in found)
    if session.watch is None:
        return
    regions = session.watch.begin(kernel, grid, [(name, tensor) for name, tensor, _ in found])
    for (_, _, pointer), region in zip(found, regions, strict=True):
        set_origin(pointer, region)


def _pointers(name: str, given: Any, converted: Any) -> Iterator[tuple[str, torch.Tensor, Any]]:
    """(name, tensor, handle of its pointer) for each tensor in an argument."""
    if isinstance(given, tuple) and not isinstance(converted, tl.tensor):
        for i, (inner, other) in enumerate(zip(given, converted, strict=True)):
            yield from _pointers(f"{name}[{i}]", inner, other)
    elif isinstance(given, TensorDescriptor):
        base = given.base.base if isinstance(given.base, TensorWrapper) else given.base
        yield name, base, converted.handle.base
    elif isinstance(given, TensorWrapper):
        yield name, given.base, converted.handle
    elif isinstance(given, torch.Tensor) and isinstance(converted, tl.tensor):
        yield name, given, converted.handle


def _run(
    fn: Any, session: state.Session, grid: tuple[int, int, int], named: Mapping[str, Any]
) -> None:
    builder = interpreter.interpreter_builder
    builder.set_grid_dim(*grid)
    patience = session.scratch["patience"] = Patience()
    for number, program in order.coordinates(session.order, grid):
        builder.set_grid_idx(*program)
        patience.reset()
        if session.watch is not None:
            session.watch.enter(number, program)
        try:
            fn(**named)
        except Exception as error:
            raise _explain(error, fn.__name__) from error


class KernelRaised(InterpreterError):  # type: ignore[misc]
    """An `error` inside a kernel; `in_kernel` is its file, line and kernel, which a crash's report names."""

    def __init__(self, error: BaseException, in_kernel: str) -> None:
        """`in_kernel` reads "at FILE:LINE in kernel NAME"."""
        super().__init__(f"{error!r} {in_kernel}")
        self.in_kernel = in_kernel


def _explain(error: Exception, kernel: str) -> Exception:
    """What a launch raises for an `error` inside a kernel; nested calls wrap theirs once each."""
    links = list(causes(error))
    root = next((link for link in links if not isinstance(link, InterpreterError)), links[-1])
    file, line = locate_error(error)
    if isinstance(root, (Unsupported, Uncompilable)):
        # A new exception: raised from what it caused, the old one would be its own cause.
        return type(root)(f"{root} (in {kernel}, at {file}:{line})")
    if isinstance(root, BitproofError):
        return type(root)(str(root))
    if _meets_constant(root):
        assert isinstance(root, AttributeError)
        return Uncompilable(
            f"no target compiles this: a constant has no .{root.name}, and an integer argument that is 1 "
            f"is one unless the kernel has it in do_not_specialize (in {kernel}, at {file}:{line})"
        )
    if isinstance(root, NotImplementedError) and "have been removed" in str(root):
        # Said by the language itself, so that no other lane takes it either.
        return Uncompilable(
            f"no target compiles {kernel} at {file}:{line} under this triton: {root}"
        )
    if _beyond(root):
        return Unsupported(
            f"the interpreter cannot run {kernel} at {file}:{line} ({root}): test it on lane cuda"
        )
    return KernelRaised(root, f"at {file}:{line} in kernel {kernel}")


def _meets_constant(error: BaseException) -> bool:
    """Whether a kernel treats as a tensor what is a constant when compiled."""
    if not isinstance(error, AttributeError) or not hasattr(tl.tensor, error.name or ""):
        return False
    return error.obj is None or isinstance(error.obj, (bool, int, float))


def _beyond(error: BaseException) -> bool:
    """Whether an error says that the interpreter lacks an operation, not that the kernel is wrong."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, interpreter.InterpreterBuilder)
    # A builtin that no launch replaces by its interpretation finds no semantic to work with.
    unreplaced = isinstance(error, ValueError) and "_semantic" in str(error)
    return unreplaced or isinstance(error, NotImplementedError)
