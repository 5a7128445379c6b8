"""`bitproof sweep`: an elementwise cast on every fp32 bit pattern."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch

from bitproof.harness import checks, lanes
from bitproof.harness.case import build
from bitproof.harness.commands import INTERRUPTED
from bitproof.harness.commands.screen import progress
from bitproof.harness.commands.subject import exit_status, find_subject
from bitproof.harness.errors import UsageError
from bitproof.harness.lanes.base import Lane, LaunchFailed
from bitproof.harness.outcomes import classify
from bitproof.harness.report import files, records
from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.harness.sweep import census
from bitproof.harness.sweep.census import Census
from bitproof.harness.sweep.sweep import require_elementwise, sweep
from bitproof.oracles import formats

FOLDER = files.FOLDER / "sweeps"


def run(
    kernel: str,
    *,
    bits: str,
    fault: str | None,
    lane: str | None,
    specs: Sequence[str],
    as_json: bool,
) -> int:
    """Print the census of the patterns in `bits`, and a record of the first wrong ones."""
    low, high = parse_bounds(bits)
    lanes.choose(lane)
    found = find_subject(kernel, specs, fault)
    cast = require_elementwise(found.spec)
    here = lanes.present()
    began = time.perf_counter()
    so_far = Census()

    def look(position: int, census: Census) -> None:
        nonlocal so_far
        so_far = census
        tell(position - low, f"{census.wrong:,} wrong")

    try:
        with progress(kernel, high - low) as tell:
            counted = sweep(found, here, low=low, high=high, tell=look)
    except KeyboardInterrupt:
        click.echo(
            f"bitproof: interrupted after {so_far.tried:,} of {high - low:,} patterns, "
            f"{so_far.wrong:,} wrong",
            err=True,
        )
        return INTERRUPTED
    except (LaunchFailed, torch.OutOfMemoryError, torch.AcceleratorError) as error:
        findings = classify(error.__cause__ or error, found.spec.refuses)
        click.echo(f"{kernel} {findings.outcome}: {findings.text}")
        return exit_status([findings.outcome])
    seconds = time.perf_counter() - began
    record = _record(found, here, counted)
    plain: dict[str, Any] = {
        "kernel": kernel,
        "fault": fault,
        "versions": here.versions(),
        "low": low,
        "high": high,
        "format": cast.format,
        "mode": cast.mode,
        "overflow": cast.overflow,
        **dataclasses.asdict(counted),
        "first": census.examples(counted, formats.by_name(cast.format)),
        "seconds": round(seconds, 4),
        "record": record,
    }
    text = json.dumps(plain, indent=2)
    identity = json.dumps([fault, here.name, low, high])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    files.save(FOLDER / f"{kernel}-{digest}.census.json", text.encode() + b"\n")
    if as_json:
        click.echo(text)
        return 1 if counted.wrong else 0
    planted = f" with planted fault {fault!r}" if fault else ""
    click.echo(
        f"{kernel}{planted} on {here.name}, fp32 patterns 0x{low:08x} to 0x{high - 1:08x} to "
        f"{cast.format} ({cast.mode}, {cast.overflow} on overflow), {seconds:.3g} s"
    )
    for line in census.lines(counted, formats.by_name(cast.format)):
        click.echo(line)
    if record:
        click.echo(
            f"record    {record}\nreplay    {records.replay_command(Path(record), found.reference)}"
        )
    return 1 if counted.wrong else 0


def _locate_census(plain: dict[str, Any]) -> Path:
    """Where the census stays: a file for each kernel, fault, lane, versions and range."""
    what = [plain[name] for name in ("fault", "versions", "low", "high")]
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
    return FOLDER / f"{plain['kernel']}-{digest}.census.json"


def parse_bounds(bits: str) -> tuple[int, int]:
    """(low, high) of "LO:HI", numbers as Python writes them; UsageError for anything else."""
    try:
        low, high = (int(part, 0) for part in bits.split(":"))
    except ValueError as error:
        raise UsageError(
            f"--bits {bits} is no range of bit patterns: write LO:HI, such as 0x3f800000:0x40000000"
        ) from error
    return low, high


def _record(found: FoundSpec, lane: Lane, counted: Census) -> str | None:
    """The path of a record of the first wrong inputs, where the spec can make a case of them."""
    assert found.spec.elementwise is not None
    make = found.spec.elementwise.case
    if make is None or not counted.first:
        return None
    inputs = build(make(tuple(wrong.pattern for wrong in counted.first)), lane.device)
    findings = checks.run("agreement", found.spec, inputs, lane)
    if not findings.outcome.is_defect:
        return None
    return str(records.save(found, "agreement", inputs, findings, lane.versions()))
