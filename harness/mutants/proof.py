"""Equal code: a mutant that compiles to the same as the kernel is no fault, and needs no search."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bitproof.harness.compiling.compiler import read_code
from bitproof.harness.compiling.launch import KernelLaunch
from bitproof.harness.mutants.reached import list_kernels
from bitproof.harness.spec import KernelSpec


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What a compiler makes of a mutant: `refused` says why it takes none of it, `equal` of how many
    specialisations the code is the same where it is of all; both are empty where it differs.

    `met` counts the specialisations of kernels that hold the mutant, none where no case reaches it.
    """

    refused: str = ""
    equal: int = 0
    met: int = 0


def compare(
    spec: KernelSpec,
    mutated: KernelSpec,
    launches: Iterable[Iterable[KernelLaunch]],
    concerns: Callable[[Any], bool] = lambda function: True,
) -> Comparison:
    """Compile what `spec` launched with its kernels and with those of `mutated`, until something differs.

    `launches` are those of each of its cases, drawn from as far as is needed; `concerns` says which kernel
    functions the fault can change: others may lie in the same file.
    """
    concerns = functools.cache(concerns)
    counterparts = _pair(spec, mutated)
    seen: set[str] = set()
    equal = 0
    for launch in _distinct(launches):
        if not concerns(launch.function):
            continue
        changed = counterparts.get(launch.function)
        if changed is None:
            return Comparison(met=equal)
        other = read_code(dataclasses.replace(launch, function=changed))
        if other is None:
            return Comparison(met=equal)
        if other.launch in seen:
            continue
        seen.add(other.launch)
        if other.refused:
            code = read_code(launch)
            if code is not None and not code.refused:
                return Comparison(refused=other.refused, met=equal + 1)
            continue
        code = read_code(launch)
        if code is None:
            return Comparison(met=equal)
        if code.launch == other.launch:
            continue  # a kernel without the mutant in it
        if code.digest != other.digest:
            return Comparison(met=equal + 1)
        equal += 1
    return Comparison(equal=equal, met=equal)


def _distinct(launches: Iterable[Iterable[KernelLaunch]]) -> Iterator[KernelLaunch]:
    for of_case in launches:
        yield from of_case


def _pair(spec: KernelSpec, mutated: KernelSpec) -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each kernel function of a spec the one of the mutated spec, where its name tells it for sure."""
    by_name: dict[str, list[Any]] = {}
    for function in list_kernels(mutated):
        by_name.setdefault(function.__qualname__, []).append(function)
    return {
        function: by_name[function.__qualname__][0]
        for function in list_kernels(spec)
        if len(by_name.get(function.__qualname__, ())) == 1
    }
