"""Judges many mutants: several processes at once, each verdict kept so that a run can be taken up again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bitproof.harness import lanes
from bitproof.harness.errors import EnvironmentUnfit
from bitproof.harness.lanes.base import Lane
from bitproof.harness.mutants.generation import Mutant, Subject, family_of
from bitproof.harness.mutants.judge import Options
from bitproof.harness.mutants.verdicts import Fate, Verdict
from bitproof.harness.mutants.worker import answer, request
from bitproof.harness.outcomes import Outcome
from bitproof.harness.processes.child import STARTING, Child, Died, Lost
from bitproof.harness.report import files
from bitproof.harness.targets.versions import libraries
from bitproof.harness.vocabulary import CHECKS

FOLDER = Path(".bitproof") / "mutants"
_MODULE = "bitproof.harness.mutants.worker"
# Seconds beyond a mutant's own limit after which its process is given up, and for its proof.
_GRACE = 120.0
_PROVING = 600.0
_SWEEPING = 900.0
_SHRINKING = 180.0
# Mutants of one kernel that a process takes at a time: it keeps what they share.
_BATCH = 8

Tell = Callable[[int, str], None]
Item = tuple[Subject, Mutant]


@dataclass(kw_only=True)
class _Desk:
    """One process that judges, and one that proves where those are not the same."""

    judge: Child
    prover: Child

    def close(self) -> None:
        self.judge.close()
        self.prover.close()


@dataclass(kw_only=True)
class Campaign:
    """What judges mutants on a lane, with `workers` processes at once.

    `fresh` passes over verdicts that earlier runs have left.
    """

    lane: Lane
    workers: int
    options: Options
    fresh: bool = False
    _subjects: Sequence[Subject] = field(default=(), init=False)
    _desks: queue.SimpleQueue[_Desk] = field(default_factory=queue.SimpleQueue, init=False)

    def judge(
        self, chosen: Mapping[str, Sequence[Mutant]], subjects: Sequence[Subject], tell: Tell
    ) -> list[Verdict]:
        """The verdicts, in the order of `subjects` and of their mutants; `tell` hears of each.

        A mutant that no case of its kernel executes is judged with others of the family that reach it.
        """
        self._subjects = subjects
        items = [(one, mutant) for one in subjects for mutant in chosen[one.found.spec.name]]
        return self._run(items, self._judge_one, tell)

    def _run(
        self, items: Sequence[Item], work: Callable[[_Desk, Subject, Mutant], Any], tell: Tell
    ) -> list[Any]:
        known = [one.found for one, _ in items]
        for _ in range(self.workers):
            self._desks.put(self._open(known))
        results: dict[int, Any] = {}

        def take(batch: Sequence[tuple[int, Item]]) -> None:
            desk = self._desks.get()
            try:
                for place, (subject, mutant) in batch:
                    results[place] = work(desk, subject, mutant)
                    tell(len(results), subject.found.spec.name)
            finally:
                self._desks.put(desk)

        try:
            with concurrent.futures.ThreadPoolExecutor(self.workers) as pool:
                waiting = [pool.submit(take, batch) for batch in _batches(items)]
                try:
                    for one in concurrent.futures.as_completed(waiting):
                        one.result()
                except BaseException:
                    for one in waiting:
                        one.cancel()
                    raise
        finally:
            while not self._desks.empty():
                self._desks.get().close()
        return [results[place] for place in range(len(items))]

    def _open(self, known: Sequence[Any]) -> _Desk:
        if self.lane.device.type == "cpu":
            child = Child(answer=lambda plain: answer(plain, self.lane, known))
            return _Desk(judge=child, prover=child)
        proving = {"BITPROOF_LANE": "interpreter", "TRITON_INTERPRET": "1"}
        number = self._desks.qsize()
        folder = str((FOLDER / "triton" / str(number)).resolve())
        return _Desk(
            judge=Child(module=_MODULE, environment={"TRITON_CACHE_DIR": folder}),
            prover=Child(module=_MODULE, environment=proving),
        )

    def _judge_one(self, desk: _Desk, subject: Subject, mutant: Mutant) -> Verdict:
        verdict = self._judge_with(desk, subject, mutant)
        for other in self._others(subject, mutant):
            if verdict.fate is not Fate.UNCOVERED:
                break
            verdict = self._judge_with(desk, other, mutant)
        return verdict

    def _others(self, subject: Subject, mutant: Mutant) -> Iterator[Subject]:
        """The other kernels of its family that reach a mutant."""
        family = family_of(subject.found)
        for other in self._subjects:
            if other is subject or family_of(other.found) != family:
                continue
            if any(one.name == mutant.name for one in other.mutants):
                yield other

    def _judge_with(self, desk: _Desk, subject: Subject, mutant: Mutant) -> Verdict:
        path = self._path(subject, mutant)
        if not self.fresh:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                return msgspec.json.decode(path.read_bytes(), type=Verdict)
        verdict = self._prove_one(desk, subject, mutant) or self._search_one(desk, subject, mutant)
        files.save(path, msgspec.json.encode(verdict))
        return verdict

    def _prove_one(self, desk: _Desk, subject: Subject, mutant: Mutant) -> Verdict | None:
        asked = request("prove", subject.found, mutant, self.options)
        try:
            told = desk.prover.ask(asked, _PROVING, stages={"compiling": _PROVING})
        except Lost as lost:
            _require_started(lost)
            return None
        return None if told is None else msgspec.convert(told, type=Verdict)

    def _search_one(self, desk: _Desk, subject: Subject, mutant: Mutant) -> Verdict:
        asked = request("judge", subject.found, mutant, self.options)
        limit = self.options.limit + _GRACE + (_SHRINKING if self.options.shrink else 0.0)
        stages = dict.fromkeys((*CHECKS, "judging"), limit)
        try:
            told = desk.judge.ask(
                asked, limit, stages={**stages, "compiling": limit, "sweeping": _SWEEPING}
            )
        except Lost as lost:
            _require_started(lost)
            outcome = Outcome.CRASHED if isinstance(lost, Died) else Outcome.HUNG
            return Verdict(
                kernel=subject.found.spec.name,
                mutant=mutant.name,
                fate=Fate.KILLED,
                check=lost.stage if lost.stage in CHECKS else "agreement",
                outcome=str(outcome),
                because=f"the process {lost}",
            )
        return msgspec.convert(told, type=Verdict)

    def _path(self, subject: Subject, mutant: Mutant) -> Path:
        found = subject.found
        words = [found.reference, found.spec.name, mutant.name, lanes.family(self.lane.name)]
        words += [_state(found.module.__file__, mutant.source.text), *mutant.operators]
        words.append(json.dumps(dataclasses.asdict(self.options)))
        digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
        return FOLDER / "verdicts" / f"{found.spec.name}-{digest}.json"


def _require_started(lost: Lost) -> None:
    if lost.stage == STARTING:
        raise EnvironmentUnfit(
            f"no process can be started to judge mutants in, it {lost}: {lost.telling}"
        ) from lost


def _batches(items: Sequence[Item]) -> Iterator[list[tuple[int, Item]]]:
    """Neighbours of one kernel together, each with its place."""
    batch: list[tuple[int, Item]] = []
    for place, item in enumerate(items):
        if batch and (len(batch) == _BATCH or batch[-1][1][0] is not item[0]):
            yield batch
            batch = []
        batch.append((place, item))
    if batch:
        yield batch


_digests: dict[str, str] = {}


def _state(home: str | None, source: str) -> str:
    """A digest of all that decides a verdict beside the mutant: this project, the spec's file, libraries."""
    if "" not in _digests:
        digest = hashlib.sha256(json.dumps(libraries()).encode())
        ours = Path(__file__).resolve().parents[1]
        for folder in (ours, ours.parent / "oracles", ours.parent / "kernels"):
            for path in sorted(folder.rglob("*.py")):
                digest.update(path.read_bytes())
        _digests[""] = digest.hexdigest()
    spec = Path(home).read_bytes() if home and os.path.isfile(home) else b""
    return hashlib.sha256(_digests[""].encode() + spec + source.encode()).hexdigest()
