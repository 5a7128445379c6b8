"""A verdict on a candidate: its evidence on one page, its exit status, and a receipt of what was judged."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitproof.harness.acceptance.loading import digest_of
from bitproof.harness.acceptance.problem import Problem
from bitproof.harness.acceptance.trials import TRIALS, Bench, Evidence
from bitproof.harness.case import encode
from bitproof.harness.errors import EnvironmentUnfit
from bitproof.harness.outcomes import Outcome
from bitproof.harness.report.failure import abridge

ACCEPTED, REJECTED, OPEN = "accepted", "rejected", "not demonstrated"
FORMAT = 1
FOLDER = Path(".bitproof") / "accepted"
_DEFECTS = (Outcome.FAILED, Outcome.CRASHED, Outcome.HUNG)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of all trials; `receipt` says what was judged, by which versions."""

    evidence: tuple[Evidence, ...]
    receipt: Mapping[str, Any]

    @property
    def word(self) -> str:
        """*accepted*, *rejected* or *not demonstrated*."""
        if any(one.outcome in _DEFECTS for one in self.evidence):
            return REJECTED
        held = {one.trial for one in self.evidence if one.outcome in _HOLDING}
        return ACCEPTED if set(TRIALS) <= held else OPEN

    @property
    def status(self) -> int:
        """0 where accepted, else 1."""
        return 0 if self.word == ACCEPTED else 1

    def plain(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "format": FORMAT,
            "verdict": self.word,
            "receipt": dict(self.receipt),
            "evidence": [
                {
                    "trial": one.trial,
                    "outcome": str(one.outcome),
                    "sentence": one.sentence,
                    "lines": list(one.lines),
                    "facts": dict(one.facts),
                    "case": encode(one.case) if one.case is not None else None,
                }
                for one in self.evidence
            ],
        }


# A launcher may refuse every layout but dense in words: that is no fault and no lack of evidence.
_HOLDING = (Outcome.PASSED, Outcome.REFUSED)


def judge(
    bench: Bench, seconds: float, trials: Sequence[str], receipt: Mapping[str, Any]
) -> Verdict:
    """Run the trials in turn, until one rejects the candidate or all have run."""
    until = time.monotonic() + seconds
    evidence: list[Evidence] = []
    for name in trials:
        trial, share = TRIALS[name]
        left = until - time.monotonic()
        if left <= 0:
            evidence.append(
                Evidence(
                    trial=name,
                    outcome=Outcome.NOT_DEMONSTRATED,
                    sentence="there was no time left: give more --minutes",
                )
            )
            continue
        evidence.append(trial(bench, max(2.0, min(left, seconds * share))))
        if evidence[-1].outcome in _DEFECTS:
            break
    return Verdict(evidence=tuple(evidence), receipt=receipt)


def make_receipt(
    candidate: str, reference: str, versions: Mapping[str, str], problem: Problem
) -> dict[str, Any]:
    """What a verdict is about: files by their SHA-256, sizes, seeds, versions."""
    around = problem.around
    return {
        "candidate": candidate,
        "candidate_sha256": digest_of(candidate),
        "reference": reference,
        "reference_sha256": digest_of(reference),
        "versions": {name: value for name, value in versions.items() if value},
        "bound": problem.bound.formula,
        "operands": problem.bound.operands,
        "seed": 0,
        "sizes": dict(around.sizes),
        "fixed": dict(around.fixed),
        "larger": dict(around.larger),
        "empty": list(around.empty),
        "scalable": list(around.scalable),
        "listed_sizes_run": around.listed in problem.corners,
    }


def describe(verdict: Verdict, record: Path | None) -> str:
    """One page for a terminal."""
    receipt = verdict.receipt
    lines = [f"{receipt['candidate']} against {receipt['reference']}: {verdict.word}", ""]
    for one in verdict.evidence:
        lines.append(f"{one.trial:<16} {one.outcome:<16} {one.sentence}")
        if one.outcome in _DEFECTS:
            lines += [f"  {line}" for line in one.lines]
            lines += [f"  case      {abridge(one.case)}"] if one.case is not None else []
    if verdict.word == REJECTED and record is not None:
        lines += [f"  replay    bitproof accept --replay {record}"]
    skipped = [name for name in TRIALS if name not in {one.trial for one in verdict.evidence}]
    if skipped and verdict.word == REJECTED:
        lines.append(f"{'not tried':<16} {', '.join(skipped)}")
    if verdict.word == OPEN:
        missing = [one.trial for one in verdict.evidence if one.outcome not in _HOLDING] + skipped
        lines.append(f"{'missing':<16} {', '.join(missing)}")
    told = "  ".join(f"{name} {value}" for name, value in receipt["versions"].items())
    fixed = ", ".join(f"{receipt['sizes'][n]} ({why})" for n, why in receipt["fixed"].items())
    lines += [
        "",
        f"{'bound':<16} {receipt['bound']}",
        f"{'sizes':<16} up to {', '.join(map(str, receipt['sizes'].values()))}"
        + (f"; fixed: {fixed}" if fixed else ""),
        f"{'candidate':<16} sha256 {receipt['candidate_sha256']}",
        f"{'reference':<16} sha256 {receipt['reference_sha256']}",
        f"{'versions':<16} {told}",
    ]
    return "\n".join(lines)


def save(verdict: Verdict) -> Path:
    """Write the verdict as JSON under `.bitproof/accepted`; EnvironmentUnfit where that cannot be."""
    name = f"{verdict.receipt['candidate_sha256'][:12]}-{verdict.receipt['reference_sha256'][:12]}.json"
    path = FOLDER / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(verdict.plain(), indent=1, default=str) + "\n", encoding="utf-8")
    except OSError as error:
        raise EnvironmentUnfit(f"{path} cannot be written: {error.strerror}") from error
    return path
