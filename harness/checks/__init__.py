"""The checks: plain functions `judge(spec, inputs, lane) -> CheckResult`, the same ones for every caller.

Pytest, the command line, the fault and mutation runs and a replay all come through `run`, which turns
what a launcher raises into an outcome. Each check is one declaration in a file of its own, named in
`harness.vocabulary.CHECKS`.
"""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bitproof.harness import exercised, lanes, layouts
from bitproof.harness.case import Inputs
from bitproof.harness.checks.declaration import Check
from bitproof.harness.errors import UsageError
from bitproof.harness.lanes.base import Lane, LaunchFailed
from bitproof.harness.outcomes import CheckResult, Outcome, classify
from bitproof.harness.randomness import from_the_start
from bitproof.harness.report.measured import measuring
from bitproof.harness.spec import KernelSpec
from bitproof.harness.vocabulary import CHECKS


def find(name: str) -> Check:
    """The check of that name; UsageError where there is none."""
    if name not in CHECKS:
        raise UsageError(f"unknown check {name!r}: there are {', '.join(CHECKS)}")
    declared: Check = importlib.import_module(f"{__name__}.{name}").CHECK
    return declared


def names(spec: KernelSpec) -> tuple[str, ...]:
    """The checks that apply to `spec`, sorted."""
    return tuple(name for name in CHECKS if find(name).applies(spec))


def unable(check: str, spec: KernelSpec, lane: Lane) -> str:
    """Why `lane` cannot run `check` on any case of `spec`; empty where it can."""
    for limit in spec.limits:
        if limit.lane == lanes.family(lane.name) and limit.check == check:
            return limit.because
    lacking = find(check).lacking
    return f"lane {lane.name} {lacking}" if lacking and lane.device.type != "cuda" else ""


def unproven(check: str, spec: KernelSpec) -> str:
    """What `spec` lacks for a passing `check` to be demonstrated, whatever the case; "" for nothing.

    A spec without planted faults lacks everything. The bitwise claim is shown able to fail by a control, or
    by a planted fault that reproducibility catches.
    """
    claim = spec.bitwise
    if check == "reproducibility" and claim is not None:
        caught = any(fault.caught_by == check for fault in spec.faults)
        shown = claim.control is not None or claim.shown_by is not None or caught
        return "" if shown else f"{_UNSHOWN}: give a launcher that varies as control"
    return "" if spec.faults else f"{_UNSHOWN}: plant a fault that {check} catches"


_UNSHOWN = "nothing shows that it can fail"


def run(check: str, spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    """Run `check` by name; what the launcher raises becomes an outcome, other errors stay errors.

    The inputs' values are made such that they can lie as their launch says. The findings say which lines of
    the kernel its launches executed, and in which configurations it ran.
    Raises UsageError for an unknown check, and SpecError from the spec's own contradictions.
    """
    declared = find(check)
    reason = unable(check, spec, lane)
    if reason:
        return CheckResult(outcome=Outcome.UNSUPPORTED, reason=reason)
    imposed = layouts.impose(
        spec.allowed_layouts(), spec.shared, inputs.launch.layout, inputs.tensors
    )
    inputs = dataclasses.replace(inputs, tensors=imposed)
    with exercised.collecting() as met, measuring() as found:
        findings = _judge(declared, spec, inputs, lane)
    return dataclasses.replace(
        findings,
        lines=dict(met.lines),
        configurations=dict(met.configurations),
        distances=found.distances,
        ulps={name: dict(counts) for name, counts in found.ulps.items()},
    )


@contextmanager
def without_warnings() -> Iterator[None]:
    """While active, what a launcher or oracle warns of is no verdict, also where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _judge(declared: Check, spec: KernelSpec, inputs: Inputs, lane: Lane) -> CheckResult:
    try:
        with without_warnings(), from_the_start():
            return declared.judge(spec, inputs, lane)
    except LaunchFailed as failure:
        return classify(failure.__cause__ or failure, spec.refuses)
    except (MemoryError, torch.OutOfMemoryError, torch.AcceleratorError) as error:
        return classify(error, ())  # a launch's error may wait for the next synchronisation
