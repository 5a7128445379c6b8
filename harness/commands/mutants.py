"""`bitproof mutants`: single faults generated in a kernel's source, and which of them its checks notice."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bitproof.harness import lanes
from bitproof.harness.commands.screen import progress
from bitproof.harness.errors import UsageError
from bitproof.harness.mutants import account, generation
from bitproof.harness.mutants.account import Judged
from bitproof.harness.mutants.campaign import Campaign
from bitproof.harness.mutants.generation import Mutant, Subject
from bitproof.harness.mutants.judge import Options
from bitproof.harness.mutants.operators import OPERATORS
from bitproof.harness.mutants.verdicts import Fate
from bitproof.harness.report import files
from bitproof.harness.subjects.discovery import find


def run(
    kernels: Sequence[str],
    *,
    size: int,
    seed: int,
    operators: Sequence[str],
    only: Sequence[str],
    limit: float,
    max_examples: int | None,
    workers: int | None,
    shrink: bool,
    every_check: bool,
    sweep: bool,
    fresh: bool,
    listing: bool,
    out: Path | None,
    lane: str | None,
    specs: Sequence[str],
    as_json: bool,
) -> int:
    """Print what became of the mutants, and each that lived with its diff; 1 where one did."""
    _require_operators(operators)
    lanes.choose(lane)
    subjects = [generation.generate(found) for found in find(specs, kernels)]
    for one in subjects:
        for sentence in one.missing:
            click.echo(f"{one.found.spec.name}: {sentence}: it has no mutants", err=True)
    chosen = _choose(subjects, size, seed, operators, only)
    if not any(chosen.values()):
        raise UsageError("there is nothing to mutate: the launchers reach no @triton.jit source")
    if listing:
        return _list(subjects, chosen)
    here = lanes.present()
    on_card = here.device.type == "cuda"
    options = Options(
        limit=limit,
        shrink=shrink,
        every_check=every_check,
        sweep=sweep or on_card,
        max_examples=max_examples,
    )
    campaign = Campaign(
        lane=here, workers=workers or _default_workers(on_card), options=options, fresh=fresh
    )
    total = sum(map(len, chosen.values()))
    with progress("mutants", total) as tell:
        verdicts = campaign.judge(chosen, subjects, tell)
    known = {one.name: one for group in chosen.values() for one in group}
    judged = [Judged(mutant=known[verdict.mutant], verdict=verdict) for verdict in verdicts]
    if out is not None:
        files.save(out, json.dumps(account.report(judged), indent=1).encode())
    if as_json:
        click.echo(json.dumps(account.report(judged), indent=1))
    else:
        _show(judged, out)
    counts = account.count(judged)
    if not any(counts[fate] for fate in Fate if fate.counts):
        return 0
    return int(bool(counts[Fate.SURVIVED] or counts[Fate.UNCOVERED]))


def _require_operators(operators: Sequence[str]) -> None:
    known = {one.name for one in OPERATORS}
    for name in operators:
        if name not in known:
            raise UsageError(f"unknown operator {name!r}: there are {', '.join(sorted(known))}")


def _choose(
    subjects: Sequence[Subject],
    size: int,
    seed: int,
    operators: Sequence[str],
    only: Sequence[str],
) -> dict[str, tuple[Mutant, ...]]:
    if not only:
        return dict(generation.sample(subjects, size, seed, frozenset(operators)))
    chosen = {
        one.found.spec.name: tuple(m for m in one.mutants if m.name in only) for one in subjects
    }
    missing = set(only) - {m.name for group in chosen.values() for m in group}
    if missing:
        raise UsageError(f"no mutant is called {sorted(missing)[0]!r}: --list names them")
    return chosen


def _list(subjects: Sequence[Subject], chosen: dict[str, tuple[Mutant, ...]]) -> int:
    for one in subjects:
        kernel = one.found.spec.name
        click.echo(f"{kernel}: {len(chosen[kernel])} of {len(one.mutants)} mutants")
        for mutant in chosen[kernel]:
            click.echo(f"{mutant.name}  {mutant.place}  {', '.join(mutant.operators)}")
            for line in mutant.diff.splitlines()[3:]:
                click.echo(f"    {line}")
    return 0


def _default_workers(on_card: bool) -> int:
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, 8 * lanes.gpus()) if on_card else cores)


def _show(judged: Sequence[Judged], out: Path | None) -> None:
    lived = [one for one in judged if one.verdict.fate in (Fate.SURVIVED, Fate.UNCOVERED)]
    for line in account.matrix(judged):
        click.echo(line)
    click.echo()
    for one in lived:
        click.echo(f"{account.describe(one)}\n")
    for line in account.lines_by_kernel(judged):
        click.echo(line)
    sizes = sorted(_size(one) for one in judged if one.verdict.size is not None)
    if sizes:
        click.echo(
            f"inputs that killed: {sizes[len(sizes) // 2]} elements in the median, {sizes[-1]} at most"
        )
    click.echo(account.summary(judged))
    if out is not None:
        click.echo(f"report: {out}")


def _size(one: Judged) -> int:
    verdict: Any = one.verdict
    return int(verdict.shrunk if verdict.shrunk is not None else verdict.size)
