"""The checks: plain functions `check(spec, inputs, lane) -> Findings`, the same one for every caller.

Pytest, the command line, the fault and mutation runs and a replay all come through `run`, which turns
what a launcher raises into an outcome.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from bitproof.harness import lanes
from bitproof.harness.case import Inputs
from bitproof.harness.checks import (
    agreement,
    compile_cache,
    graphs,
    invariances,
    memory,
    reproducibility,
    streams,
)
from bitproof.harness.errors import UsageError
from bitproof.harness.lanes.base import Lane, LaunchFailed
from bitproof.harness.outcomes import Findings, Outcome, classify
from bitproof.harness.spec import CHECKS, KernelSpec

Check = Callable[[KernelSpec, Inputs, Lane], Findings]

_CHECKS: dict[str, Check] = {
    "agreement": agreement.check,
    "compile_cache": compile_cache.check,
    "graphs": graphs.check,
    "invariances": invariances.check,
    "memory": memory.check,
    "reproducibility": reproducibility.check,
    "streams": streams.check,
}
assert tuple(sorted(_CHECKS)) == CHECKS


def names(spec: KernelSpec) -> tuple[str, ...]:
    """The checks that apply to `spec`, sorted."""
    undeclared = {
        "compile_cache": spec.must_not_recompile is None,
        "graphs": not spec.capturable,
        "invariances": not spec.invariances,
    }
    return tuple(name for name in CHECKS if not undeclared.get(name))


def cost(check: str, spec: KernelSpec) -> int:
    """Launches that one example of `check` spends, a control's included.

    Waiting for a late producer counts as sixteen, and so does capturing a graph.
    """
    claim = spec.reproducible
    return {
        "agreement": 1,
        "compile_cache": 2,
        "graphs": 16,
        "invariances": 1 + sum(invariance.launches for invariance in spec.invariances),
        "memory": 2,
        "reproducibility": claim.runs * (1 if claim.control is None else 2),
        "streams": 16,
    }[check]


def unable(check: str, spec: KernelSpec, lane: Lane) -> str:
    """Why `lane` cannot run `check` on any case of `spec`; empty where it can."""
    for limit in spec.limits:
        if limit.lane == lanes.family(lane.name) and limit.check == check:
            return limit.because
    lacking = {
        "compile_cache": "compiles nothing",
        "graphs": "has no graphs",
        "streams": "has no streams",
    }.get(check)
    return f"lane {lane.name} {lacking}" if lacking and lane.device.type != "cuda" else ""


def run(check: str, spec: KernelSpec, inputs: Inputs, lane: Lane) -> Findings:
    """Run `check` by name; what the launcher raises becomes an outcome, other errors stay errors.

    Raises UsageError for an unknown check, and SpecError from the spec's own contradictions.
    """
    if check not in _CHECKS:
        raise UsageError(f"unknown check {check!r}: there are {', '.join(CHECKS)}")
    reason = unable(check, spec, lane)
    if reason:
        return Findings(outcome=Outcome.UNSUPPORTED, reason=reason)
    try:
        with warnings.catch_warnings():
            # What a launcher or oracle warns of is no verdict, also where warnings are made errors.
            warnings.simplefilter("ignore")
            return _CHECKS[check](spec, inputs, lane)
    except LaunchFailed as failure:
        return classify(failure.__cause__ or failure, spec.refuses)
    except (torch.OutOfMemoryError, torch.AcceleratorError) as error:
        return classify(error, ())  # a launch's error may wait for the next synchronisation
