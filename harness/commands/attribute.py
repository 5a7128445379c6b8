"""`bitproof attribute`: what each stored intermediate costs in accuracy, and what to keep in fp32."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bitproof.harness import case as cases
from bitproof.harness import lanes
from bitproof.harness.attribution import chart
from bitproof.harness.attribution import costs as attribution
from bitproof.harness.attribution.costs import Attribution, Model, Promotions
from bitproof.harness.case import Case, Inputs, Scale, build
from bitproof.harness.commands import captured
from bitproof.harness.commands.screen import progress
from bitproof.harness.commands.subject import exit_status, find_subject
from bitproof.harness.errors import UsageError
from bitproof.harness.lanes.base import Lane, LaunchFailed, Variation, parameters
from bitproof.harness.outcomes import CheckResult, Outcome, classify
from bitproof.harness.report import failure, files
from bitproof.harness.report.records import Captured
from bitproof.harness.search import falsify, profiles
from bitproof.harness.spec import KernelSpec
from bitproof.harness.subjects.discovery import FoundSpec

FORMAT = 1

_DRAWN = 64
_BAR = 40
_SHOWN = 20
# Wide enough for a table outside of a terminal, where nothing says how wide a line may be.
_WIDTH = 140


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One set of inputs, where they came from, and what the kernel made of them."""

    inputs: Inputs
    source: Captured | None
    output: Tensor


def run(
    kernel: str,
    *,
    output: str | None,
    target: float | None,
    tensors: Path | None,
    params: str | None,
    case: Path | None,
    plot: Path | None,
    fault: str | None,
    lane: str | None,
    specs: Sequence[str],
    as_json: bool,
) -> int:
    """Print the errors by point, then the smallest sets to promote; 1 where the kernel misses the target."""
    if target is not None and not 0 < target < math.inf:
        raise UsageError(f"--target {target:g} is no relative error to meet: give one above 0")
    if params is not None and tensors is None:
        raise UsageError("--params is for captured tensors: give --tensors FILE as well")
    if tensors is not None and case is not None:
        raise UsageError("--tensors and --case both say what the inputs are: give one of them")
    if plot is not None:
        chart.require(plot)
    lanes.choose(lane)
    found = find_subject(kernel, specs, fault)
    name = _output(found.spec, output)
    here = lanes.present()
    began = time.perf_counter()
    model, ran = _run(found, here, name, tensors=tensors, params=params, case=case)
    if isinstance(ran, CheckResult):
        click.echo(f"{kernel} {ran.outcome}: {ran.text}", err=True)
        return exit_status([ran.outcome])
    assert model is not None
    told = attribution.attribute(model, ran.output)
    found_sets = None
    if target is not None:
        found_sets = attribution.search(model, target, functools.partial(_watch, kernel))
    seconds = time.perf_counter() - began
    if plot is not None:
        chart.save(plot, f"{kernel}: {name}", _panels(told, found_sets), target)
    if as_json:
        plain = _plain(model, ran, told, target, found_sets)
        plain |= {"fault": fault, "versions": here.versions(), "seconds": round(seconds, 4)}
        click.echo(json.dumps(plain, indent=2, allow_nan=False))
    else:
        _show(model, ran, told, target, found_sets, here, fault)
        if plot is not None:
            click.echo(f"plot      {plot}")
    return 0 if target is None or told.kernel <= target else 1


def _watch(kernel: str, title: str, total: int) -> Any:
    return progress(f"{kernel}: {title}", total)


def _output(spec: KernelSpec, asked: str | None) -> str:
    """The output asked for, the model's first where none is."""
    answered = attribution.require_storage(spec).outputs
    if asked is not None and asked not in answered:
        raise UsageError(
            f"the storage model of kernel {spec.name!r} answers no output {asked!r}: "
            f"there are {', '.join(answered)}"
        )
    return asked or answered[0]


# --- inputs


def _run(
    found: FoundSpec,
    lane: Lane,
    output: str,
    *,
    tensors: Path | None,
    params: str | None,
    case: Path | None,
) -> tuple[Model | None, Run | CheckResult]:
    """The model and the kernel on the inputs asked for, or on the largest drawn ones that mean something."""
    if tensors is not None:
        inputs, source = captured.load(tensors, found.spec, lane.device, captured.object_of(params))
        return _both(found, lane, output, inputs, source)
    if case is not None:
        return _both(found, lane, output, build(_read(case, found.spec), lane.device), None)
    last: UsageError | None = None
    for drawn in _draw_large(found.spec, profiles.scale(lane.name)):
        try:
            model, ran = _both(found, lane, output, build(drawn, lane.device), None)
        except UsageError as error:
            last = error
            continue
        if isinstance(ran, Run) or ran.outcome.is_defect:
            return model, ran
    raise last or UsageError(
        f"no case drawn for kernel {found.spec.name!r} can be run here: give one with --case or --tensors"
    )


def _both(
    found: FoundSpec, lane: Lane, output: str, inputs: Inputs, source: Captured | None
) -> tuple[Model | None, Run | CheckResult]:
    """The kernel, then the model; what the launcher raises becomes findings."""
    try:
        outputs = lane.run(found.spec, inputs, Variation()).outputs
    except LaunchFailed as error:
        return None, classify(error.__cause__ or error, found.spec.refuses)
    except (torch.OutOfMemoryError, torch.AcceleratorError) as error:
        return None, classify(error, ())
    if output not in outputs:
        return None, CheckResult(
            outcome=Outcome.FAILED, reason=f"the kernel gives no output {output!r} on these inputs"
        )
    ran = Run(inputs=inputs, source=source, output=outputs[output])
    return Model(spec=found.spec, inputs=inputs, output=output), ran


def _draw_large(spec: KernelSpec, scale: Scale) -> list[Case]:
    """Cases that the spec's strategy draws, the same every time, the best to attribute first.

    Those that round a point which could be promoted, then those with the most elements.
    """
    storage = attribution.require_storage(spec)

    def worth(case: Case) -> tuple[bool, int]:
        made = build(case, torch.device("cpu"))
        promotable = storage.stored(parameters(made)) - storage.public
        return bool(promotable), sum(tensor.numel() for tensor in made.tensors.values())

    return sorted(falsify.draw_cases(spec, _DRAWN, scale), key=worth, reverse=True)


def _read(path: Path, spec: KernelSpec) -> Any:
    """The case in a JSON file: the case alone, a record's, or the one that `--json` printed."""
    plain: Any = files.read(path, object, what="case")
    if isinstance(plain, dict) and {"kernel", "case"} <= set(plain):
        if plain["kernel"] != spec.name:
            raise UsageError(f"{path} is about kernel {plain['kernel']!r}, not {spec.name!r}")
        if plain["case"] is None:
            raise UsageError(f"{path} is about captured tensors: give their file with --tensors")
        plain = plain["case"]
    try:
        return cases.decode(spec.case, plain)
    except UsageError as error:
        raise UsageError(f"{path} holds no case of kernel {spec.name!r}: {error}") from error


# --- what is told


def _plain(
    model: Model, ran: Run, told: Attribution, target: float | None, sets: Promotions | None
) -> dict[str, Any]:
    """All of it as JSON values; docs/attribution.md says what each means."""
    storage = attribution.require_storage(model.spec)
    case = ran.inputs.case
    return {
        "format": FORMAT,
        "kernel": model.spec.name,
        "output": model.output,
        "shape": list(model.exact.shape),
        "case": None if case is None else cases.encode(case),
        "captured": None if ran.source is None else dataclasses.asdict(ran.source),
        "points": [
            {"name": point, "alone": _number(told.alone[point]), "public": point in storage.public}
            for point in model.stored
        ],
        "unrounded": [point for point in storage.points if point not in model.stored],
        "quadrature": _number(told.quadrature),
        "together": _number(told.together),
        "kernel_error": _number(told.kernel),
        "target": target,
        "meets": None if target is None else told.kernel <= target,
        "promotions": None
        if sets is None
        else {
            "tried": sets.tried,
            "floor": _number(sets.floor),
            "found": [{"points": list(one.points), "error": one.error} for one in sets.found],
        },
    }


def _number(error: float) -> float | None:
    """JSON has no infinity: null says that NaN or infinities were not the exact answer's."""
    return error if math.isfinite(error) else None


def _panels(told: Attribution, sets: Promotions | None) -> dict[str, dict[str, float]]:
    """The bars of the table and of the plot, by heading."""
    panels = {
        "rounded alone": dict(told.alone),
        "together": {"in quadrature": told.quadrature, "all rounded": told.together},
        "measured": {"the kernel": told.kernel},
    }
    if sets is not None:
        best = sets.found[:_SHOWN]
        panels["kept in fp32"] = {", ".join(one.points) or "nothing": one.error for one in best}
    return panels


def _show(
    model: Model,
    ran: Run,
    told: Attribution,
    target: float | None,
    sets: Promotions | None,
    lane: Lane,
    fault: str | None,
) -> None:
    """The same as tables with bars, for a person."""
    storage = attribution.require_storage(model.spec)
    versions = "  ".join(f"{name} {value}" for name, value in lane.versions().items() if value)
    planted = f" with planted fault {fault!r}" if fault else ""
    click.echo(f"{model.spec.name}{planted}: {versions}")
    click.echo(f"output    {model.output} {list(model.exact.shape)}")
    click.echo(f"case      {failure.describe_inputs(ran.inputs)}")
    panels = _panels(told, sets)
    best = panels.pop("kept in fp32", {})
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    every = [error for bars in panels.values() for error in bars.values()]
    largest = max(error for error in every if math.isfinite(error))
    console.print(_table("rounded", panels, largest, storage.public))
    unrounded = [point for point in storage.points if point not in model.stored]
    if unrounded:
        click.echo(f"in fp32   {', '.join(unrounded)}")
    if target is None or sets is None:
        return
    verdict = "meets it" if told.kernel <= target else "falls short"
    click.echo(f"target    {_percent(target)}: the kernel {verdict} at {_percent(told.kernel)}")
    if not sets.found:
        click.echo(
            f"no set of points meets it: with all of {', '.join(model.free) or 'nothing'} in fp32 "
            f"the model is still at {_percent(sets.floor)} ({sets.tried} sets tried)"
        )
        return
    size = len(sets.found[0].points)
    click.echo(
        f"smallest  {size} of {len(model.free)} points; {len(sets.found)} such "
        f"set{'' if len(sets.found) == 1 else 's'} by the model, {sets.tried} tried"
    )
    console.print(_table("kept in fp32", {"sets": best}, target))
    if len(sets.found) > len(best):
        click.echo(f"and {len(sets.found) - len(best)} more, which --json lists")


def _table(
    title: str,
    panels: dict[str, dict[str, float]],
    full: float,
    public: frozenset[str] = frozenset(),
) -> Table:
    """A section for each panel; a bar is as long as its column at an error of `full`."""
    table = Table(title)
    table.add_column("relative RMS", justify="right")
    table.add_column("", width=_BAR)
    for bars in panels.values():
        for name, error in bars.items():
            table.add_row(
                f"{name} (public)" if name in public else name,
                _percent(error),
                Bar(full, 0.0, min(error, full), width=_BAR) if full else "",
            )
        table.add_section()
    return table


def _percent(error: float) -> str:
    return f"{100 * error:.4g} %"
