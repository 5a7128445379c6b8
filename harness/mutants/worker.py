"""The process that proves and judges mutants: a copy of the asking one, or `python -m` of this module.

A request names a mutant by its kernel, module and edit. The process keeps what a kernel's mutants share
from one request to the next.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bitproof.harness import lanes
from bitproof.harness.errors import BitproofError, SpecError, describe
from bitproof.harness.lanes.base import Lane
from bitproof.harness.mutants.bench import Bench
from bitproof.harness.mutants.edits import Edit, Source
from bitproof.harness.mutants.generation import Mutant
from bitproof.harness.mutants.judge import Options, judge, prove
from bitproof.harness.processes.serve import serve
from bitproof.harness.search import profiles
from bitproof.harness.subjects.discovery import FoundSpec, find


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One mutant, and what is to be done with it: "prove" or "judge"."""

    task: str
    spec: str
    kernel: str
    mutant: str
    operators: tuple[str, ...]
    module: str
    path: str
    line: int
    within: str
    edit: Edit
    options: Options


def request(task: str, found: FoundSpec, mutant: Mutant, options: Options) -> dict[str, Any]:
    """The request as plain JSON values."""
    path = str(sys.modules[mutant.module].__file__)
    asked = Request(
        task=task,
        spec=found.reference,
        kernel=found.spec.name,
        mutant=mutant.name,
        operators=mutant.operators,
        module=mutant.module,
        path=path,
        line=mutant.line,
        within=mutant.within,
        edit=mutant.edit,
        options=options,
    )
    plain: dict[str, Any] = msgspec.to_builtins(asked)
    return plain


def answer(plain: dict[str, Any], lane: Lane, known: Sequence[FoundSpec] = ()) -> Any:
    """What `prove` or `judge` answers, as plain JSON values."""
    asked = msgspec.convert(plain, type=Request)
    try:
        bench = _bench(asked.spec, asked.kernel, lane, tuple(known))
        mutant = Mutant(
            name=asked.mutant,
            operators=asked.operators,
            module=asked.module,
            file=asked.path,
            line=asked.line,
            within=asked.within,
            edit=asked.edit,
            source=_source(asked.path),
        )
        proving = asked.task == "prove"
        told = prove(bench, mutant) if proving else judge(bench, mutant, asked.options)
    except BitproofError:
        raise
    except Exception as error:
        raise SpecError(f"mutant {asked.mutant} of {asked.kernel}: {describe(error)}") from error
    return msgspec.to_builtins(told, enc_hook=str)


_benches: dict[tuple[str, str], Bench] = {}


def _bench(spec: str, kernel: str, lane: Lane, known: Sequence[FoundSpec]) -> Bench:
    if (spec, kernel) not in _benches:
        profiles.register()
        mine = [one for one in known if (one.reference, one.spec.name) == (spec, kernel)]
        found = mine[0] if mine else find([spec], [kernel])[0]
        _benches.clear()  # the mutants of a kernel come one after another
        _benches[spec, kernel] = Bench(found=found, lane=lane)
    return _benches[spec, kernel]


@functools.lru_cache(maxsize=64)
def _source(path: str) -> Source:
    return Source(text=Path(path).read_text(encoding="utf-8"))


def main() -> None:
    """Answer requests until there are no more."""
    lanes.choose()
    lane = lanes.present()
    serve(lambda plain: answer(plain, lane))


if __name__ == "__main__":
    main()
