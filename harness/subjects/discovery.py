"""Finds specs: this project's own kernels by path, anybody's by module, `module:NAME` or file.

What is wrong with a spec is gathered here, all of it at once, and keeps no other spec from being found.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from bitproof.harness.errors import BitproofError, SpecError, UsageError, one_line
from bitproof.harness.spec import KernelSpec, find_mistakes
from bitproof.harness.vocabulary import CHECKS

# What a record of a built-in kernel names: its name tells which one, wherever its file comes to lie.
BUILT_IN = "bitproof.kernels"
# What records and commands called the modules of built-in kernels before there was one import name.
_FORMERLY = {
    "kernels.casts": ("cast_bf16", "cast_e4m3", "cast_e5m2", "cast_fp16", "round_e4m3"),
    "kernels.delta": (
        *("gdn2_chunk", "gdn2_chunk_vjp", "gdn2_recurrent"),
        *("kda_chunk", "kda_chunk_vjp", "kda_recurrent"),
    ),
    "kernels.dsrelu": ("dsrelu_atomic", "dsrelu_bf16", "dsrelu_fp8"),
    "kernels.e2m1": ("e2m1_group",),
    "kernels.kv_store": ("kv_store_fp8", "kv_store_int8"),
    "kernels.per_tensor_static": ("per_tensor_static",),
    "kernels.per_token_group": ("per_token_group",),
    "kernels.ue8m0": ("ue8m0_group", "ue8m0_inplace"),
}


@dataclass(frozen=True, kw_only=True)
class FoundSpec:
    """A spec and where it is: `reference` is what `--spec` takes, and what a record names.

    `fault` names what was planted in it, None for the spec as it is declared.
    `mistakes` are sentences on what is wrong with the spec; one that has any is not judged.
    """

    spec: KernelSpec
    reference: str
    module: ModuleType
    fault: str | None = None
    mistakes: tuple[str, ...] = ()

    def with_runs(self, runs: int) -> FoundSpec:
        """The same, its reproducibility judged over `runs` runs if it is claimed; SpecError below 2."""
        if self.spec.bitwise is None:
            return self
        claim = dataclasses.replace(self.spec.bitwise, runs=runs)
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, reproducible=claim))


def find(references: Sequence[str] = (), kernels: Iterable[str] = ()) -> tuple[FoundSpec, ...]:
    """The specs that `locate` finds; SpecError with every mistake of those that are not sound."""
    found = locate(references, kernels)
    require_sound(found)
    return found


def require_sound(found: Iterable[FoundSpec]) -> None:
    """SpecError that tells every mistake of each of `found`, if there are any."""
    told = [describe_mistakes(item) for item in found if item.mistakes]
    if told:
        raise SpecError("\n".join(told))


def describe_mistakes(found: FoundSpec) -> str:
    """What is wrong with a spec: one line where it is one mistake, a paragraph otherwise."""
    where = f"spec {found.spec.name!r} ({found.reference})"
    if len(found.mistakes) == 1:
        return f"{where}: {found.mistakes[0]}"
    return "\n  ".join([f"{where} has {len(found.mistakes)} mistakes:", *found.mistakes])


def locate(references: Sequence[str] = (), kernels: Iterable[str] = ()) -> tuple[FoundSpec, ...]:
    """The specs of `references` (the built-in ones where none are given), sorted by name, sound or not.

    `kernels` narrows to those names. Raises UsageError for a reference that cannot be imported or holds
    no spec, for two specs of one name, and for a name in `kernels` that nothing declares; SpecError for
    a declaration that rejects itself while its file is imported.
    """
    wanted = set(kernels)
    found = [item for reference in references or (BUILT_IN,) for item in load(reference)]
    by_name: dict[str, FoundSpec] = {}
    for item in found:
        earlier = by_name.setdefault(str(item.spec.name), item)
        if earlier.spec is not item.spec and (not wanted or item.spec.name in wanted):
            raise UsageError(
                f"two specs are called {item.spec.name!r}: in {earlier.reference} and "
                f"{item.reference}; rename one"
            )
    for name in sorted(wanted):
        if name not in by_name:
            known = ", ".join(sorted(by_name)) or "none"
            raise UsageError(f"unknown kernel {name!r}: there are {known}")
    return tuple(by_name[name] for name in sorted(wanted or by_name))


def load(reference: str) -> list[FoundSpec]:
    """The specs of one reference: a module, `module:NAME`, or a path to a Python file (also `:NAME`)."""
    target, _, attribute = reference.partition(":")
    if target == BUILT_IN and not attribute:
        return _load_built_in()
    if was_built_in(target):
        return [found for found in _load_built_in() if found.spec.name in _FORMERLY[target]]
    module = _from_file(Path(target)) if target.endswith(".py") else _from_name(target)
    declared = _list_declared(module)
    if attribute:
        value = getattr(module, attribute, None)
        chosen = value if isinstance(value, (list, tuple)) else (value,)
        if not chosen or not all(isinstance(spec, KernelSpec) for spec in chosen):
            raise UsageError(f"--spec {reference}: {attribute!r} is not a KernelSpec in {target}")
        declared = list(chosen)
    if not declared and any(_is_twin(value) for value in vars(module).values()):
        raise UsageError(
            f"--spec {reference}: its KernelSpec is that of `harness.spec`, a second copy of this project's "
            "modules: import it from `bitproof`"
        )
    if not declared:
        raise UsageError(f"--spec {reference}: no KernelSpec in that module; declare one as SPEC")
    return [_make_found(spec, target, module) for spec in declared]


def _make_found(spec: KernelSpec, reference: str, module: ModuleType) -> FoundSpec:
    home = _home(spec, module)
    return FoundSpec(
        spec=spec, reference=reference, module=home, mistakes=find_mistakes(spec, CHECKS)
    )


@contextlib.contextmanager
def _warnings_of_theirs() -> Iterator[None]:
    """While active, warnings are ignored, also where this run makes them errors: the code is anybody's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def was_built_in(target: str) -> bool:
    """Whether `target` is the former name of a built-in module, and nobody else's `kernels` has it."""
    if target not in _FORMERLY:
        return False
    theirs = importlib.util.find_spec("kernels")
    places = (theirs.submodule_search_locations or ()) if theirs is not None else ()
    ours = Path(__file__).resolve().parents[2] / "kernels"
    return all(Path(place).resolve() == ours for place in places)


def _home(spec: KernelSpec, module: ModuleType) -> ModuleType:
    """The module that declares `spec`, where `module` may only list it: its launcher's or its case's."""
    for part in (spec.run, spec.case):
        declaring = sys.modules.get(getattr(part, "__module__", ""))
        if declaring is not None and any(spec is other for other in _list_declared(declaring)):
            return declaring
    return module


def _list_declared(module: ModuleType) -> list[KernelSpec]:
    specs: list[KernelSpec] = []
    for name in sorted(vars(module)):
        value = getattr(module, name)
        for spec in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(spec, KernelSpec) and not any(spec is seen for seen in specs):
                specs.append(spec)
    return specs


def _is_twin(value: Any) -> bool:
    """Whether a value is a spec, or several, of the class that a bare `import harness` makes."""
    values = value if isinstance(value, (list, tuple)) else (value,)
    return any(
        type(one).__name__ == KernelSpec.__name__
        and type(one).__module__ == KernelSpec.__module__.removeprefix("bitproof.")
        for one in values
    )


def _from_name(name: str) -> ModuleType:
    try:
        with _warnings_of_theirs():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(missing + "."):
            raise UsageError(
                f"--spec {name}: no module of that name; install its package or give a .py file"
            ) from error
        raise UsageError(f"--spec {name}: importing it needs {missing!r}; install that") from error
    except SpecError as error:
        raise _place_error(error) from error
    except BitproofError:
        raise
    except (Exception, SystemExit) as error:
        raise _unimportable(name, error) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"--spec {path}: no such file")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = f"bitproof_spec_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    # Behind everything that is installed, so that no neighbour takes the place of a module; processes that
    # are started later get the same path.
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return import_file(name, path)
    except SpecError as error:
        raise _place_error(error) from error
    except BitproofError:
        raise
    except (Exception, SystemExit) as error:
        raise _unimportable(str(path), error) from error


_DATACLASSES = Path(dataclasses.__file__).resolve()


def _place_error(error: SpecError) -> SpecError:
    """The same with the line on which the declaration is written that rejected itself."""
    harness = Path(__file__).resolve().parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename).resolve()
        if file.is_file() and not file.is_relative_to(harness) and file != _DATACLASSES:
            return SpecError(f"{frame.filename}:{frame.lineno}: {error}")
    return error


def _unimportable(reference: str, error: BaseException) -> UsageError:
    text = f"{type(error).__name__}: {one_line(error)}"
    return UsageError(f"--spec {reference}: importing it raised {text}")


def import_file(name: str, path: Path, *, package: bool = False) -> ModuleType:
    """Import the file at `path` under `name`."""
    locations = [str(path.parent)] if package else None
    plan = importlib.util.spec_from_file_location(name, path, submodule_search_locations=locations)
    if plan is None or plan.loader is None:
        raise UsageError(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(plan)
    sys.modules[name] = module
    try:
        with _warnings_of_theirs():
            plan.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _load_built_in() -> list[FoundSpec]:
    """Every spec in `bitproof.kernels`, whatever folder of it declares it."""
    package = importlib.import_module(BUILT_IN)
    found = []
    for place in sorted(pkgutil.walk_packages(package.__path__, f"{BUILT_IN}."), key=_by_name):
        module = importlib.import_module(place.name)
        found += [_make_found(spec, BUILT_IN, module) for spec in _list_declared(module)]
    return found


def _by_name(place: pkgutil.ModuleInfo) -> str:
    return place.name
