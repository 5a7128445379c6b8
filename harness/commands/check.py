"""`bitproof check`: the checks of kernels on drawn cases, or of one on captured tensors."""

from __future__ import annotations

import collections
import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from hypothesis import settings

from bitproof.harness import checks, exercised, lanes
from bitproof.harness.case import Inputs
from bitproof.harness.commands import captured
from bitproof.harness.commands.report import describe_verdict
from bitproof.harness.commands.screen import progress
from bitproof.harness.commands.subject import exit_status
from bitproof.harness.errors import EnvironmentUnfit, UsageError
from bitproof.harness.lanes.base import Lane
from bitproof.harness.outcomes import CheckResult, Outcome, conclude
from bitproof.harness.report import compare, failure, files, records, summary
from bitproof.harness.report.markdown import render as render_markdown
from bitproof.harness.report.markdown import tabulate
from bitproof.harness.report.records import Captured
from bitproof.harness.report.summary import Entry, Summary
from bitproof.harness.search import falsify, journal, profiles
from bitproof.harness.search.falsify import SearchResult
from bitproof.harness.search.isolation import Careful
from bitproof.harness.search.journal import Journal
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import with_fault
from bitproof.harness.subjects.ranks import parse_ranks, with_ranks


def run(
    kernels: Sequence[str],
    *,
    chosen: Sequence[str],
    max_examples: int | None,
    seconds: int | None,
    hang_limit: int | None,
    runs: int | None,
    ranks: str | None = None,
    tensors: Path | None,
    outputs: Path | None,
    renames: Sequence[str] = (),
    params: str | None,
    fault: str | None,
    lane: str | None,
    specs: Sequence[str],
    markdown: Path | None = None,
) -> int:
    """Print a line for each check of each kernel, and for each that fails its report and its record.

    Without `kernels` all of `specs` are checked. `markdown` is a file to which a table of the same is added.
    The status says whether every kernel holds; with a planted fault, whether the fault was caught.
    """
    renamed = captured.parse_renames(renames)
    if renamed and tensors is None:
        raise UsageError("--rename is for captured tensors: give --tensors FILE as well")
    if params is not None and tensors is None:
        raise UsageError("--params is for captured tensors: give --tensors FILE as well")
    for name, limit in (("--max-examples", max_examples), ("--seconds", seconds)):
        if limit is not None and tensors is not None:
            raise UsageError(f"{name} is for drawn cases: captured tensors are one case")
    if ranks is not None and tensors is not None:
        raise UsageError("--ranks is for drawn cases: of captured tensors --params says it")
    if outputs is not None and (tensors is None or chosen or fault is not None):
        raise UsageError(
            "--outputs is for what a call gave whose inputs --tensors names: nothing is launched, so that "
            "no check is chosen and no fault planted"
        )
    if outputs is not None and markdown is not None:
        raise UsageError(
            "--markdown tells of checks, and --outputs runs none: leave one of the two out"
        )
    if not kernels and not specs:
        raise UsageError("name the kernels to check, or with --spec where to take all of them from")
    lanes.choose(lane)
    every = find(specs, kernels)
    for option, given in (("--tensors", tensors), ("--fault", fault)):
        if given is not None and len(every) != 1:
            raise UsageError(f"{option} is for one kernel, and there are {len(every)}: name one")
    statuses = []
    entries: list[Entry] = []
    for found in (with_fault(one, fault) for one in every):
        subject = found if runs is None else found.with_runs(runs)
        subject = subject if ranks is None else with_ranks(subject, parse_ranks(ranks))
        names = _names(subject, chosen)
        inputs, source = None, None
        if tensors is not None:
            plain = captured.object_of(params)
            device = lanes.present().device
            own = renamed if outputs is None else captured.present_in(tensors, renamed)
            inputs, source = captured.load(tensors, subject.spec, device, plain, own)
        if outputs is not None and inputs is not None:
            statuses.append(_judge_outputs(subject, outputs, inputs, renamed))
            continue
        statuses.append(
            _run_one(subject, names, inputs, source, (max_examples, seconds, hang_limit), entries)
        )
    if markdown is not None:
        _add_markdown(markdown, entries)
    return _worst(statuses)


def _add_markdown(path: Path, entries: Sequence[Entry]) -> None:
    """Add the verdict, the failures and the table of what was checked to a file, as for a job's summary."""
    here = lanes.present()
    told = Summary(
        format=summary.FORMAT,
        lane=here.name,
        profile=profiles.default(),
        seconds=round(sum(entry.seconds for entry in entries), 1),
        versions=here.versions(),
        entries=list(entries),
    )
    text = render_markdown(told, verdict=describe_verdict(entries), changes=None)
    files.append(path, f"{text}\n{tabulate(entries)}".encode())


def _judge_outputs(found: FoundSpec, path: Path, inputs: Inputs, renamed: Mapping[str, str]) -> int:
    """Compare outputs that were captured beside their inputs with the oracle; the status says if they hold.

    So it is told which side of a disagreement is wrong, without running either. Outputs that the file lacks
    are not judged, and named.
    """
    given = captured.load_outputs(path, found.spec, lanes.present().device, renamed)
    told = {name: bound for name, bound in found.spec.bounds.items() if name in given}
    partial = dataclasses.replace(found.spec, bounds=told)
    findings, worst = compare.against_oracle(partial, given, inputs)
    click.echo(f"{found.spec.name}: captured outputs {', '.join(sorted(given))} against the oracle")
    left = sorted(set(found.spec.bounds) - set(given) - found.spec.list_left_out(inputs.params))
    if left:
        click.echo(f"not judged: {', '.join(left)}, which the file has not")
    result = conclude(findings)
    for line in result.text.splitlines():
        click.echo(line)
    if not findings:
        click.echo(f"they hold, worst {worst:.3g} of the bound")
    return exit_status([result.outcome])


def _worst(statuses: Sequence[int]) -> int:
    """1 where any kernel falls short, else 0 where any holds: 2 says that none could be judged."""
    return 1 if 1 in statuses else min(statuses)


def _run_one(
    found: FoundSpec,
    names: Sequence[str],
    inputs: Inputs | None,
    source: Captured | None,
    limits: tuple[int | None, int | None, int | None],
    entries: list[Entry],
) -> int:
    """The checks of one kernel; `limits` are cases, seconds, and seconds until a case hung.

    What each came to is added to `entries`.
    """
    max_examples, seconds, hang_limit = limits
    here = lanes.present()
    for path in journal.bury_dead():
        command = records.load(path).replay
        click.echo(f"a process died over one case, told by nobody: {command}")
    at = journal.FOLDER / f"check-{os.getpid()}.json"
    kept = Journal(path=at, lane=here.name)
    try:
        kept.write(None)
        writable = True
    except EnvironmentUnfit:  # told with the first record, which cannot be written either
        writable = False
    careful = Careful.on(
        here, known=[found], journal=kept if writable else None, timeout=hang_limit
    )
    results = []
    try:
        versions = here.versions() if inputs is not None else careful.versions()
        told = "  ".join(f"{name} {value}" for name, value in versions.items() if value)
        planted = f" with planted fault {found.fault!r}" if found.fault else ""
        click.echo(f"{found.spec.name}{planted}: {told}")
        for name in names:
            if inputs is not None:
                result = _judge(found, name, inputs, here)
            else:
                result = _search(found, name, careful, max_examples, seconds)
            click.echo(_line(result))
            report, record = "", None
            if result.findings is not None and result.inputs is not None:
                report, record = _record(found, result, versions, source)
            entries.append(result.entry(report=report, record=record))
            results.append(result)
    finally:
        careful.close()
    for line in describe_exercise(results):
        click.echo(line)
    outcomes = [result.outcome for result in results]
    if found.fault is None:
        return exit_status(Outcome.PASSED if one.holds else one.outcome for one in results)
    sentence, status = judge_catch(found, dict(zip(names, outcomes, strict=True)), here)
    click.echo(sentence)
    return status


def describe_exercise(results: Sequence[SearchResult]) -> list[str]:
    """Which autotune configurations ran, and which lines of the kernel no launch of any check executed."""
    told = exercised.describe_configurations(result.configurations for result in results)
    return told + summary.never_executed(result.lines for result in results)


def judge_catch(found: FoundSpec, outcomes: Mapping[str, Outcome], lane: Lane) -> tuple[str, int]:
    """Whether the check that the planted fault names has caught it: a sentence, and the exit status.

    0 where it was caught as declared, 1 where it was missed, 2 where the named check could not judge it.
    """
    fault = next(one for one in found.spec.faults if one.name == found.fault)
    named, outcome = fault.caught_by, outcomes.get(fault.caught_by)
    if outcome is not None and outcome.is_defect:
        return f"the planted fault was caught by {named}, as declared", 0
    if lanes.family(lane.name) not in fault.lanes:
        return f"the planted fault shows on {', '.join(fault.lanes)} only: {fault.because}", 2
    if outcome is None:
        return f"the planted fault is for {named} to catch, which was not among the checks", 2
    if exit_status([outcome]) == 2:
        return f"the planted fault is for {named} to catch, which ended as {outcome}", 2
    return f"the planted fault was NOT caught by {named}, which is to catch it", 1


def _names(found: FoundSpec, chosen: Sequence[str]) -> Sequence[str]:
    known = checks.names(found.spec)
    for name in chosen:
        if name not in known:
            raise UsageError(
                f"kernel {found.spec.name!r} has no check {name!r}: there are {', '.join(known)}"
            )
    return chosen or known


def _search(
    found: FoundSpec, check: str, judge: Careful, max_examples: int | None, seconds: int | None
) -> SearchResult:
    """Draw cases under the default profile; a bar shows how many were judged."""
    profiles.register()
    profile = profiles.default()
    lane = judge.lane
    examples = max_examples or profiles.examples(found.spec, check, lane.name, profile)
    done, shrinking = 0, False
    with progress(check, examples) as tell:

        def execute(case: Any) -> tuple[Inputs, CheckResult]:
            nonlocal done, shrinking
            inputs, findings = judge(found, check, case)
            done, shrinking = done + 1, shrinking or findings.outcome.is_defect
            tell(min(done, examples), "shrinking" if shrinking else "")
            return inputs, findings

        return falsify.search(
            found.spec,
            check,
            lane,
            max_examples=examples,
            base=settings.get_profile(profile),
            execute=execute,
            seconds=seconds,
        )


def _judge(found: FoundSpec, check: str, inputs: Inputs, lane: Lane) -> SearchResult:
    """One check on captured tensors, as a search that had a single case."""
    began = time.perf_counter()
    findings = checks.run(check, found.spec, inputs, lane)
    return SearchResult(
        check=check,
        kernel=found.spec.name,
        outcomes=collections.Counter([findings.outcome]),
        measures=findings.measures,
        counts=collections.Counter(findings.counts),
        lines=collections.Counter(findings.lines),
        configurations=collections.Counter(findings.configurations),
        reasons={findings.reason} if findings.reason else set(),
        unproven=checks.unproven(check, found.spec),
        seconds=time.perf_counter() - began,
        inputs=inputs,
        findings=findings if findings.outcome.is_defect else None,
    )


def _line(result: SearchResult) -> str:
    examples = f"{result.examples} example{'' if result.examples == 1 else 's'}"
    line = f"{result.check:<16} {result.outcome:<16} {examples} in {result.seconds:.1f} s"
    lost = result.outcomes[Outcome.OUT_OF_RESOURCES]
    if lost:
        line += f", {lost} of them out of resources"
    worst = result.measures.get("worst", 0.0)
    if worst and result.findings is None:
        line += f", worst {worst:.3g} of its bound"
    told = [] if result.holds or result.outcome is Outcome.FAILED else sorted(result.reasons)
    told += [result.undemonstrated] if result.undemonstrated else []
    return "; ".join([line, *told])


def _record(
    found: FoundSpec, result: SearchResult, versions: dict[str, str], source: Captured | None
) -> tuple[str, Path]:
    assert result.inputs is not None
    assert result.findings is not None
    failing = (found, result.check, result.inputs, result.findings, versions)
    path = records.save(*failing, captured=source)
    report = failure.describe(*failing, path)
    click.echo(f"\n{report}\nrecord    {path}\n")
    return report, path
