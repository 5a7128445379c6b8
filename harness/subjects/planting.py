"""Plants a fault: a spec whose kernel's source carries one named edit.

The edited source is written to a file of its own (Triton reads kernels from their files) and imported
under a name of its own; nothing of the original module changes.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from bitproof.harness.errors import BitproofError, SpecError, UsageError, one_line
from bitproof.harness.spec import Fault, KernelSpec, find_mistakes
from bitproof.harness.subjects.discovery import BUILT_IN, FoundSpec, import_file, require_sound
from bitproof.harness.vocabulary import CHECKS


def with_fault(found: FoundSpec, name: str | None) -> FoundSpec:
    """`found` with the fault of that name planted, as it is for None.

    Raises UsageError for a name that its spec does not declare, and what `plant` raises.
    """
    if name is None:
        return found
    faults = {known.name: known for known in found.spec.faults}
    if name not in faults:
        names = ", ".join(repr(known) for known in faults)
        raise UsageError(f"kernel {found.spec.name!r} has no fault {name!r}: there are {names}")
    return dataclasses.replace(found, spec=plant(found, faults[name]), fault=name)


def plant(found: FoundSpec, fault: Fault) -> KernelSpec:
    """`found`'s spec with `fault` planted.

    Raises SpecError when the edit does not apply exactly once within the part it names, or when what it
    leaves cannot be imported or is no sound spec.
    """
    where = f"spec {found.spec.name!r}"
    try:
        target = importlib.import_module(fault.module) if fault.module else found.module
    except BitproofError:
        raise
    except Exception as error:
        raise _unimportable(where, fault.name, error) from error
    source = edit(_source(target), fault, where=where)
    return plant_source(found, target, source, name=fault.name)


def plant_source(found: FoundSpec, target: ModuleType, source: str, *, name: str) -> KernelSpec:
    """`found`'s spec where the module `target` reads `source`; `name` is what that is called.

    Raises SpecError when this cannot be imported or is no sound spec, or does not concern the spec.
    """
    where = f"spec {found.spec.name!r}"
    try:
        tag = hashlib.sha256(f"{found.spec.name}\0{name}".encode()).hexdigest()[:12]
        called = f"bitproof_fault_{tag}"
        edited = _import(called, source, beside=target)
        with contextlib.ExitStack() as standing:
            for step, module in enumerate(_between(found.module, target, name, where)):
                standing.enter_context(_substitute(target.__name__, edited))
                edited = _import(f"{called}_{step}", _source(module), beside=module)
                target = module
    except BitproofError:
        raise
    except Exception as error:
        raise _unimportable(where, name, error) from error
    spec = _same_spec(edited, found.spec)
    require_sound([dataclasses.replace(found, spec=spec, mistakes=find_mistakes(spec, CHECKS))])
    return spec


def _unimportable(where: str, name: str, error: Exception) -> SpecError:
    text = f"{type(error).__name__}: {one_line(error)}"
    return SpecError(f"{where}: fault {name!r} cannot be imported: {text}")


def edit(source: str, fault: Fault, *, where: str) -> str:
    """`source` with the fault's one edit, which must apply exactly once within `fault.within`."""
    start, stop = _extent(source, fault, where)
    part = source[start:stop]
    count = part.count(fault.old)
    if count != 1:
        raise SpecError(
            f"{where}: fault {fault.name!r} applies {count} times in {fault.within}, "
            "it must apply exactly once: adjust its `old` text"
        )
    return source[:start] + part.replace(fault.old, fault.new) + source[stop:]


def _extent(source: str, fault: Fault, where: str) -> tuple[int, int]:
    """Character range of the top-level definition (decorators too) or assignment `fault.within`."""
    starts = [0]
    for line in source.split("\n"):  # the lines that `ast` counts: splitlines breaks at more
        starts.append(starts[-1] + len(line) + 1)
    for node in ast.parse(source).body:
        names: list[str] = []
        first = node.lineno
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = [node.name]
            first = min([first, *(decorator.lineno for decorator in node.decorator_list)])
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        if fault.within in names:
            assert node.end_lineno is not None
            return starts[first - 1], starts[node.end_lineno]
    raise SpecError(
        f"{where}: fault {fault.name!r} names {fault.within!r}, which its file does not define"
    )


def _source(module: ModuleType) -> str:
    assert module.__file__ is not None
    return Path(module.__file__).read_text(encoding="utf-8")


def _import(name: str, source: str, *, beside: ModuleType) -> ModuleType:
    """Import `source` as module `name` of the package of `beside`, so that relative imports hold."""
    path = _folder() / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    package = beside.__package__
    return import_file(f"{package}.{name}" if package else name, path)


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="bitproof-faults-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _between(top: ModuleType, target: ModuleType, name: str, where: str) -> list[ModuleType]:
    """The modules of the target's package by which `top` comes to import it, in order, `top` last.

    None where they are one. SpecError where `top` does not import it.
    """
    order: list[ModuleType] = []
    reaching = {target.__name__: True}
    within = _package(target.__name__)

    def reaches(module: ModuleType) -> bool:
        if module.__name__ not in reaching:
            reaching[module.__name__] = False  # for imports that go round
            reached = [reaches(other) for other in _list_imported(module, within)]
            if any(reached):
                reaching[module.__name__] = True
                order.append(module)
        return reaching[module.__name__]

    if not reaches(top):
        raise SpecError(
            f"{where}: fault {name!r} names {target.__name__}, which its file does not import"
        )
    return order


def _package(name: str) -> str:
    """The package within which an edit is carried on: a distribution's, or that of the built-in kernels."""
    return BUILT_IN if name.startswith(f"{BUILT_IN}.") else name.partition(".")[0]


def _list_imported(module: ModuleType, within: str) -> list[ModuleType]:
    """The modules of the package `within` that a module's source imports, packages left out."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            origin = importlib.util.resolve_name(relative, module.__package__)
            names |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
    found = [sys.modules[name] for name in sorted(names & set(sys.modules))]
    return [
        other
        for other in found
        if _package(other.__name__) == within and not hasattr(other, "__path__")
    ]


@contextlib.contextmanager
def _substitute(name: str, module: ModuleType) -> Iterator[None]:
    """While active, importing `name` gives `module`."""
    original = sys.modules[name]
    package, _, attribute = name.rpartition(".")
    sys.modules[name] = module
    if package:
        setattr(sys.modules[package], attribute, module)
    try:
        yield
    finally:
        sys.modules[name] = original
        if package:
            setattr(sys.modules[package], attribute, original)


def _same_spec(module: ModuleType, spec: KernelSpec) -> KernelSpec:
    for value in vars(module).values():
        for candidate in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(candidate, KernelSpec) and candidate.name == spec.name:
                return candidate
    raise SpecError(f"spec {spec.name!r} is not declared at the top level of {module.__name__}")
