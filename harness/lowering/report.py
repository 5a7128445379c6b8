"""Readings judged against what specs declare, and put into words."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bitproof.harness.lowering.findings import Hazard, Reading
from bitproof.harness.lowering.rules.table import RULES
from bitproof.harness.outcomes import Outcome
from bitproof.harness.report.summary import Entry
from bitproof.harness.spec import Accepted, KernelSpec

_BY_NAME = {rule.name: rule for rule in RULES}
_UNKNOWN = "not analysed"
ON_GRID = (
    "held by the check memory on the interpreter lane, on every value that drawn cases convert"
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A reading, its hazards parted by what the spec declares.

    hung              no answer came in time, so that nothing was read
    failed            an undeclared hazard, or a refusal of a target that the spec supports
    not demonstrated  something that no rule understands or that was not compiled, and nothing worse
    unsupported       the compiler refuses the kernel for this target
    """

    reading: Reading
    outcome: Outcome
    undeclared: tuple[Hazard, ...]
    accepted: tuple[tuple[Hazard, Accepted], ...]

    @property
    def word(self) -> str:
        """The verdict in a table's cell."""
        reading, count = self.reading, len({hazard.name for hazard in self.undeclared})
        if reading.hung:
            return "hung"
        if reading.refusals and not reading.compiled:
            return "refuses"
        if not reading.compiled:
            return "nothing compiled"
        names = sorted({hazard.name for hazard in self.undeclared})
        if names == [_UNKNOWN]:
            return _UNKNOWN
        if names:
            return f"{count} hazard{'s' if count > 1 else ''}"
        known = len({hazard.name for hazard, _ in self.accepted})
        word = f"{known} accepted" if known else "clean"
        return f"{word}, refuses some" if reading.refusals else word


def judge(reading: Reading, spec: KernelSpec) -> Judged:
    """Part the hazards of `reading` into those that `spec` accepts and the others."""
    declared = spec.lowering
    accepted, undeclared = [], []
    for hazard in reading.hazards:
        because = _find_accepting(hazard, reading.target, spec)
        if because is None:
            undeclared.append(hazard)
        else:
            accepted.append((hazard, because))
    refused = bool(reading.refusals) and reading.target in declared.supports
    if reading.hung:
        outcome = Outcome.HUNG
    elif refused or any(hazard.name != _UNKNOWN for hazard in undeclared):
        outcome = Outcome.FAILED
    elif reading.refusals and not reading.compiled:
        outcome = Outcome.UNSUPPORTED
    elif undeclared or reading.uncompiled or not reading.compiled:
        outcome = Outcome.NOT_DEMONSTRATED
    else:
        outcome = Outcome.PASSED
    return Judged(
        reading=reading, outcome=outcome, undeclared=tuple(undeclared), accepted=tuple(accepted)
    )


def _find_accepting(hazard: Hazard, target: str, spec: KernelSpec) -> Accepted | None:
    for accepted in spec.lowering.accepted:
        if accepted.covers(hazard.name, target, hazard.conversion, hazard.wrong):
            return accepted
    return None


def lines(judged: Judged) -> Iterator[str]:
    """The report on one kernel and target: one paragraph, the verdict first."""
    reading = judged.reading
    yield f"{reading.kernel} for {reading.target}, triton {reading.triton}: {judged.word}"
    if reading.hung:
        yield f"  {reading.hung}"
    if reading.unlaunched:
        yield f"  its launcher raised, with nothing computed: {reading.unlaunched}"
    if reading.uncompiled:
        yield f"  {reading.uncompiled} specialisations were reached and then not compiled"
    if reading.compiled:
        unseen = f", {reading.unseen} values of arguments in none of them" if reading.unseen else ""
        yield f"  {reading.compiled} of {reading.reached} specialisations compiled and read{unseen}"
    for refusal in reading.refusals:
        yield f"  refused, {refusal.variants} of {reading.reached}: {refusal.sentence}"
    for conversion in reading.conversions:
        yield f"  converts {conversion}"
    if reading.atomics:
        yield f"  sums atomically into {', '.join(reading.atomics)}"
    for hazard in judged.undeclared:
        yield from _hazard(hazard, reading)
    for hazard, accepted in judged.accepted:
        where = shorten(hazard.source)
        yield f"  accepted: {hazard.name} at {where}, because {accepted.because}"
        if hazard.conversion:
            yield f"    {hazard.detail}"
        if accepted.on_grid:
            yield f"    {ON_GRID}"


def _hazard(hazard: Hazard, reading: Reading) -> Iterator[str]:
    rule = _BY_NAME[hazard.name]
    title = hazard.name.upper() if hazard.name == _UNKNOWN else f"HAZARD {hazard.name}"
    yield f"  {title} at {shorten(hazard.source)} in {hazard.function}"
    yield f"    {hazard.detail}"
    yield f"    by {hazard.instruction}"
    outputs = ", ".join(hazard.outputs)
    yield f"    reaches {outputs}; in {hazard.variants} of {reading.compiled}, such as {hazard.first}"
    yield f"    {rule.explanation}{f' See {rule.link}' if rule.link else ''}"


def shorten(source: str) -> str:
    """A "file:line" relative to the working folder where it is inside."""
    if not source:
        return "an unknown line"
    here = os.getcwd() + os.sep
    return source.removeprefix(here)


def entry(judged: Judged) -> Entry:
    """The verdict as a run's summary holds it: specialisations count as examples."""
    reading = judged.reading
    reasons = {refusal.sentence for refusal in reading.refusals} | {
        reading.hung,
        reading.unlaunched,
    }
    return dataclasses.replace(
        _entry(reading.kernel, reading.target, judged.outcome, "\n".join(lines(judged))),
        examples=reading.compiled,
        reasons=sorted((reasons | {h.name for h in judged.undeclared}) - {""}),
        seconds=reading.seconds,
    )


def find_excluded(spec: KernelSpec, target: str, *, patient: bool = True) -> Entry | None:
    """The verdict, unsupported, on a target that the spec is not for; None where it has to be read.

    Code that takes minutes to read is left out too where nobody is `patient`.
    """
    declared = spec.lowering
    if declared.alone and target not in declared.supports:
        because = f"{spec.name} is for {', '.join(declared.supports)} alone"
    elif declared.slow and not patient:
        because = (
            f"the code of {spec.name} takes minutes to read: name it with --kernel, or run the nightly "
            "profile"
        )
    else:
        return None
    return _entry(spec.name, target, Outcome.UNSUPPORTED, because)


def _entry(kernel: str, target: str, outcome: Outcome, text: str) -> Entry:
    return Entry(
        kernel=kernel,
        check=f"lowering for {target}",
        outcome=str(outcome),
        examples=0,
        outcomes={},
        covered={},
        measures={},
        counts={},
        reasons=[text],
        seconds=0.0,
        report=text,
        record=None,
    )


def table(all_judged: Sequence[Judged]) -> tuple[list[str], list[list[str]]]:
    """(header, rows): a row a kernel, a column a target."""
    targets = list(dict.fromkeys(judged.reading.target for judged in all_judged))
    cells: dict[str, dict[str, str]] = {}
    for judged in all_judged:
        cells.setdefault(judged.reading.kernel, {})[judged.reading.target] = judged.word
    rows = [
        [kernel, *(row.get(target, "not for it") for target in targets)]
        for kernel, row in cells.items()
    ]
    return ["kernel", *targets], rows


def plain(judged: Judged) -> dict[str, Any]:
    """The same as plain JSON values."""
    return {
        **msgspec.to_builtins(judged.reading),
        "outcome": str(judged.outcome),
        "verdict": judged.word,
        "hazards": [
            *({**dataclasses.asdict(h), "accepted": None} for h in judged.undeclared),
            *({**dataclasses.asdict(h), "accepted": a.because} for h, a in judged.accepted),
        ],
    }
