"""Which `@triton.jit` functions, and which constants of theirs, a spec's launcher comes to.

Followed through the global names that functions use: plain functions, partial ones, classes, modules, and
kernels under decorators. What belongs to Python, Triton, torch or this project's own harness is not entered.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from bitproof.harness.spec import KernelSpec

_OTHERS = (
    "torch",
    "triton",
    "numpy",
    "ml_dtypes",
    "hypothesis",
    "pytest",
    "safetensors",
    "msgspec",
)
_OURS = ("bitproof.harness", "bitproof.oracles")


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The kernel functions of one module that a launcher comes to, and the constants they use, by name."""

    module: ModuleType
    names: frozenset[str]


def find_reached(spec: KernelSpec) -> tuple[list[Reached], list[str]]:
    """By module, and a sentence for each kernel function without a source to edit."""
    by_module: dict[str, set[str]] = {}
    missing = []
    for function in list_kernels(spec):
        module = sys.modules.get(function.__module__)
        path = getattr(module, "__file__", None)
        if (
            module is None
            or path is None
            or not str(path).endswith(".py")
            or not Path(path).is_file()
        ):
            missing.append(f"{function.__name__} of {function.__module__} has no source file")
            continue
        if "<locals>" in function.__qualname__:
            missing.append(
                f"{function.__name__} of {function.__module__} is made inside a function"
            )
            continue
        by_module.setdefault(function.__module__, set()).add(function.__name__)
    found = []
    for name, names in sorted(by_module.items()):
        module = sys.modules[name]
        found.append(Reached(module=module, names=frozenset(names)))
    return _with_constants(found), sorted(missing)


def list_kernels(spec: KernelSpec) -> list[FunctionType]:
    """The Python functions under `triton.jit` that the launcher of `spec` comes to."""
    functions: dict[FunctionType, None] = {}
    _follow(spec.run, functions, set())
    return list(functions)


def comes_to(kernel: FunctionType, module: str, name: str) -> bool:
    """Whether a kernel function is the one of that module and name, or calls it."""
    called: dict[FunctionType, None] = {kernel: None}
    _follow_names(kernel, called, set())
    return any(one.__module__ == module and one.__name__ == name for one in called)


def _follow(value: Any, kernels: dict[Any, None], seen: set[int]) -> None:
    """Add the kernel functions that `value` leads to, in the order in which they are met."""
    while isinstance(value, functools.partial):
        for bound in (*value.args, *value.keywords.values()):
            _follow(bound, kernels, seen)
        value = value.func
    value = getattr(value, "__func__", value)
    if id(value) in seen:
        return
    seen.add(id(value))
    kernel = _kernel_function(value)
    if kernel is not None:
        if not _is_foreign(kernel):
            kernels.setdefault(kernel)
            _follow_names(kernel, kernels, seen)
    elif isinstance(value, FunctionType):
        if not _is_foreign(value):
            wrapped = inspect.unwrap(value)
            _follow_names(value, kernels, seen)
            if wrapped is not value:
                _follow(wrapped, kernels, seen)
            for cell in value.__closure__ or ():
                try:
                    _follow(cell.cell_contents, kernels, seen)
                except ValueError:  # an empty cell
                    continue
    elif isinstance(value, type):
        if not _is_foreign(value):
            for part in vars(value).values():
                _follow(getattr(part, "fget", part), kernels, seen)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _follow(part, kernels, seen)
    elif isinstance(value, dict):
        for part in value.values():
            _follow(part, kernels, seen)
    elif callable(value) and not isinstance(value, ModuleType):
        _follow(type(value), kernels, seen)
        for part in getattr(value, "__dict__", {}).values():
            if callable(part):
                _follow(part, kernels, seen)


def _follow_names(function: FunctionType, kernels: dict[Any, None], seen: set[int]) -> None:
    for code in _codes(function.__code__):
        held = [
            function.__globals__[name] for name in code.co_names if name in function.__globals__
        ]
        for value in held:
            if isinstance(value, ModuleType):
                if not _is_foreign_name(value.__name__):
                    for name in code.co_names:
                        if hasattr(value, name):
                            _follow(getattr(value, name), kernels, seen)
            else:
                _follow(value, kernels, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _kernel_function(value: Any) -> FunctionType | None:
    """The Python function under `triton.jit` and what decorates it; None for anything else."""
    jit = False
    for _ in range(8):
        kind = type(value)
        if not kind.__module__.startswith("triton."):
            break
        jit = jit or kind.__name__ in ("JITFunction", "InterpretedFunction")
        value = getattr(value, "fn", None)
    return value if jit and isinstance(value, FunctionType) else None


def _is_foreign(value: Any) -> bool:
    return _is_foreign_name(str(getattr(value, "__module__", None)))


def _is_foreign_name(name: str) -> bool:
    top = name.partition(".")[0]
    return top in _OTHERS or top in sys.stdlib_module_names or name.startswith(_OURS)


def _with_constants(found: list[Reached]) -> list[Reached]:
    """With the constants that the functions use, in the modules that assign them."""
    wanted: dict[str, set[str]] = {one.module.__name__: set() for one in found}
    for one in found:
        tree = ast.parse(Path(str(one.module.__file__)).read_text(encoding="utf-8"))
        origins = _origins(tree, one.module)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in one.names:
                for name in {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}:
                    module, original = origins.get(name, (one.module.__name__, name))
                    if original in _constants(module):
                        wanted.setdefault(module, set()).add(original)
    names = {one.module.__name__: one.names for one in found}
    return [
        Reached(module=sys.modules[module], names=names.get(module, frozenset()) | constants)
        for module, constants in sorted(wanted.items())
        if names.get(module) or constants
    ]


def _origins(tree: ast.Module, module: ModuleType) -> dict[str, tuple[str, str]]:
    """For each name that is imported, the module that it is from and its name there."""
    origins = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            if node.level and not module.__package__:
                continue
            origin = importlib.util.resolve_name(relative, module.__package__)
            for alias in node.names:
                origins[alias.asname or alias.name] = (origin, alias.name)
    return origins


@functools.cache
def _constants(module: str) -> frozenset[str]:
    """The names to which a module assigns `tl.constexpr(...)` at its top level."""
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None or not str(path).endswith(".py") or _is_foreign_name(module):
        return frozenset()
    names = set()
    for node in ast.parse(Path(path).read_text(encoding="utf-8")).body:
        value = getattr(node, "value", None)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("constexpr"):
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(names)
