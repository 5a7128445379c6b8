"""What is told of a run over mutants: a text, the matrix of kills, and JSON for mutation-report viewers."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitproof.harness.mutants.generation import Mutant
from bitproof.harness.mutants.verdicts import Fate, Verdict

# The schema of Stryker's mutation-testing-elements, which its viewer and dashboard read.
SCHEMA = "2"
_STATUS = {
    Fate.KILLED: "Killed",
    Fate.SURVIVED: "Survived",
    Fate.UNCOVERED: "NoCoverage",
    Fate.EQUIVALENT: "Ignored",
    Fate.INVALID: "CompileError",
}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A mutant with its verdict."""

    mutant: Mutant
    verdict: Verdict


def count(judged: Sequence[Judged]) -> Mapping[Fate, int]:
    """How many mutants met each fate."""
    counts = collections.Counter(one.verdict.fate for one in judged)
    return {fate: counts[fate] for fate in Fate}


def summary(judged: Sequence[Judged]) -> str:
    """ "57 mutants: 41 killed, 6 equivalent, ...; 41 of 41 faults killed (100.0 %)"."""
    counts = count(judged)
    told = ", ".join(f"{counts[fate]} {fate}" for fate in Fate if counts[fate])
    faults = sum(counts[fate] for fate in Fate if fate.counts)
    killed = counts[Fate.KILLED]
    share = f", {killed / faults:.1%} of {faults} faults" if faults else ""
    plural = "" if len(judged) == 1 else "s"
    return f"{len(judged)} mutant{plural}: {told or 'none'}{share}"


def lines_by_kernel(judged: Sequence[Judged]) -> list[str]:
    """A line for each kernel, with the kinds of proof and the examples that kills took."""
    by_kernel: dict[str, list[Judged]] = {}
    for one in judged:
        by_kernel.setdefault(one.verdict.kernel, []).append(one)
    told = []
    for kernel, group in by_kernel.items():
        line = f"{kernel:<20} {summary(group)}"
        proofs = collections.Counter(one.verdict.proof for one in group if one.verdict.proof)
        if proofs:
            line += f"; {', '.join(f'{n} {kind}' for kind, n in sorted(proofs.items()))}"
        taken = sorted(one.verdict.examples for one in group if one.verdict.fate is Fate.KILLED)
        if taken:
            line += f"; half killed by example {taken[(len(taken) - 1) // 2]}, all by {taken[-1]}"
        told.append(line)
    return told


def matrix(judged: Sequence[Judged]) -> list[str]:
    """The kills by operator and by the check that made them."""
    killed = [one for one in judged if one.verdict.fate is Fate.KILLED]
    names = sorted({check for one in killed for check in _killers(one.verdict)})
    if not names:
        return []
    width = max(len(one.mutant.operator) for one in judged)
    head = f"{'':<{width}}  {'  '.join(names)}  lived"
    told = [head]
    for operator in dict.fromkeys(one.mutant.operator for one in judged):
        group = [one for one in judged if one.mutant.operator == operator]
        cells = []
        for name in names:
            n = sum(name in _killers(one.verdict) for one in group)
            cells.append(f"{n or '':>{len(name)}}")
        lived = sum(one.verdict.fate in (Fate.SURVIVED, Fate.UNCOVERED) for one in group)
        told.append(f"{operator:<{width}}  {'  '.join(cells)}  {lived or '':>5}")
    return told


def _killers(verdict: Verdict) -> list[str]:
    also = [name for name, noticed in verdict.checks.items() if noticed]
    return list(dict.fromkeys([*([verdict.check] if verdict.check else []), *also]))


def describe(one: Judged) -> str:
    """A mutant that lived, as its diff under a line with what became of it."""
    verdict, mutant = one.verdict, one.mutant
    cut = ", its time was up" if verdict.cut else ""
    head = f"{verdict.fate}  {verdict.kernel}  {mutant.place}  {mutant.operator}  [{mutant.name}]"
    told = f"{head}\n  {verdict.because} in {verdict.examples} examples{cut}"
    return f"{told}\n{_indented(mutant.diff)}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def report(judged: Sequence[Judged]) -> dict[str, Any]:
    """The run in the schema of mutation-testing-elements."""
    files: dict[str, Any] = {}
    for one in judged:
        file = files.setdefault(
            one.mutant.file,
            {"language": "python", "source": one.mutant.source.text, "mutants": []},
        )
        file["mutants"].append(_plain(one))
    checks = sorted({name for one in judged for name in _killers(one.verdict)})
    tests = [{"id": name, "name": name} for name in checks]
    return {
        "schemaVersion": SCHEMA,
        "thresholds": {"high": 100, "low": 90},
        "framework": {"name": "bitproof"},
        "files": files,
        "testFiles": {"bitproof": {"tests": tests}},
    }


def _plain(one: Judged) -> dict[str, Any]:
    verdict, mutant = one.verdict, one.mutant
    reason = "; ".join(part for part in (verdict.proof, verdict.because) if part)
    plain: dict[str, Any] = {
        "id": f"{verdict.kernel}/{mutant.name}",
        "mutatorName": mutant.operator,
        "description": f"{verdict.kernel}: {mutant.operator}",
        "replacement": mutant.edit.new,
        "location": _location(mutant),
        "status": "Timeout" if verdict.outcome == "hung" else _STATUS[verdict.fate],
        "statusReason": reason,
        "duration": round(verdict.seconds * 1000),
        "testsCompleted": verdict.examples,
    }
    if verdict.fate is Fate.KILLED:
        plain["killedBy"] = _killers(verdict)
        plain["coveredBy"] = _killers(verdict)
    return plain


def _location(mutant: Mutant) -> dict[str, Any]:
    whole = mutant.source.text.encode()
    return {
        "start": _place(whole, mutant.edit.start),
        "end": _place(whole, mutant.edit.stop),
    }


def _place(whole: bytes, at: int) -> dict[str, int]:
    before = whole[:at]
    column = len(before[before.rfind(b"\n") + 1 :].decode())
    return {"line": before.count(b"\n") + 1, "column": column + 1}
