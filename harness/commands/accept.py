"""`bitproof accept`: whether somebody's kernel computes what a reference says, decided in minutes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from bitproof.harness import lanes
from bitproof.harness.acceptance import page
from bitproof.harness.acceptance import verdict as verdicts
from bitproof.harness.acceptance.loading import digest_of
from bitproof.harness.acceptance.narrowing import narrow
from bitproof.harness.acceptance.problem import make_problem
from bitproof.harness.acceptance.remote import Remote
from bitproof.harness.acceptance.trials import TRIALS, Bench
from bitproof.harness.case import decode
from bitproof.harness.errors import UsageError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.references import Operands
from bitproof.harness.report import files


def run(
    candidate: str | None,
    *,
    reference: str | None,
    minutes: float,
    operands: Operands,
    replay: Path | None,
    lane: str | None,
    as_json: bool,
    html: Path | None = None,
) -> int:
    """Print the page of evidence, or all of it as JSON; 0 where the candidate is accepted, else 1.

    `html` is where the page is written as well.
    """
    if replay is not None:
        if candidate is not None or reference is not None or html is not None:
            raise UsageError("--replay names candidate and reference itself: give nothing else")
        return _replay(replay, lane)
    if candidate is None or reference is None:
        raise UsageError("accept takes a CANDIDATE and --reference REF, or --replay FILE")
    began = time.monotonic()
    lanes.choose(lane)
    here = lanes.present()
    problem = make_problem(reference, here.device, operands=operands)
    remote = Remote(candidate, problem)
    try:
        bench = narrow(Bench(problem=problem, remote=remote, lane=here))
        receipt = verdicts.make_receipt(candidate, reference, here.versions(), bench.problem)
        left = minutes * 60 - (time.monotonic() - began)
        verdict = verdicts.judge(bench, left, tuple(TRIALS), receipt)
    finally:
        remote.close()
    path = verdicts.save(verdict)
    if html is not None:
        files.save(html, page.render(verdict, path).encode())
    if as_json:
        click.echo(json.dumps(verdict.plain(), indent=1, default=str))
    else:
        click.echo(verdicts.describe(verdict, path))
    return verdict.status


def _replay(path: Path, lane: str | None) -> int:
    """Judge the case of a saved verdict again; 1 where it is wrong as it was then."""
    told = _read(path)
    defects = {str(outcome) for outcome in Outcome if outcome.is_defect}
    failing = [
        one for one in told["evidence"] if one["case"] is not None and one["outcome"] in defects
    ]
    if not failing:
        raise UsageError(f"{path}: no case was found wrong there: run accept again")
    receipt = told["receipt"]
    lanes.choose(lane or receipt["versions"].get("lane"))
    here = lanes.present()
    problem = make_problem(receipt["reference"], here.device, operands=receipt["operands"])
    case = decode(problem.around.case, failing[-1]["case"])
    for name in ("candidate", "reference"):
        if digest_of(receipt[name]) != receipt[f"{name}_sha256"]:
            click.echo(f"{receipt[name]} has changed since", err=True)
    remote = Remote(receipt["candidate"], problem)
    bench = Bench(problem=problem, remote=remote, lane=here)
    try:
        trial = failing[-1]["trial"]
        if trial in ("memory", "reproducibility"):
            result = remote.check(trial, bench.inputs(case))
        elif trial in ("launches", "stale answers"):
            evidence = TRIALS[trial][0](bench, 60.0)
            click.echo(f"{trial}: {evidence.outcome}: {evidence.sentence}")
            return int(evidence.outcome.is_defect)
        else:
            _, result = bench.judge(case)
    finally:
        remote.close()
    click.echo(f"{trial}: {result.outcome}\n{result.text}".rstrip())
    return int(result.outcome.is_defect)


def _read(path: Path) -> dict[str, Any]:
    try:
        told: Any = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: no verdict can be read from it: {error}") from error
    if not isinstance(told, dict) or told.get("format") != verdicts.FORMAT:
        raise UsageError(f"{path}: it is no verdict of this version")
    return told
