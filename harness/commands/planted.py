"""`bitproof check --faults`: whether each planted fault of a spec is caught by the check that it names."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import click
from hypothesis import settings

from bitproof.harness import checks, lanes
from bitproof.harness.commands.check import judge_catch
from bitproof.harness.lanes.base import Lane
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify, profiles
from bitproof.harness.search.isolation import Careful
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import with_fault


def run(
    kernels: Sequence[str],
    *,
    max_examples: int | None,
    seconds: int | None,
    hang_limit: int | None,
    lane: str | None,
    specs: Sequence[str],
) -> int:
    """Print a line for each planted fault; 1 where one is missed, 2 where one could not be judged here.

    Without `kernels` those of all of `specs` are judged.
    """
    lanes.choose(lane)
    subjects = find(specs, kernels)
    here = lanes.present()
    profiles.register()
    status = 0
    for found, fault in ((one, fault) for one in subjects for fault in one.spec.faults):
        planted = with_fault(found, fault.name)
        outcome, examples = _judge(
            planted, fault.caught_by, here, max_examples, seconds, hang_limit
        )
        sentence, one = judge_catch(planted, {fault.caught_by: outcome}, here)
        click.echo(
            f"{fault.name}: {sentence.removeprefix('the planted fault ')} ({examples} examples)"
        )
        # Missed is worse than unjudged, and a fault that shows on other lanes alone is no miss here.
        if one and lanes.family(here.name) in fault.lanes:
            status = 1 if 1 in (status, one) else one
    return status


def _judge(
    planted: FoundSpec,
    check: str,
    lane: Lane,
    max_examples: int | None,
    seconds: int | None,
    hang_limit: int | None,
) -> tuple[Outcome, int]:
    """What the check that is to catch a fault ends with, and after how many cases; nothing is shrunk."""
    if check not in checks.names(planted.spec):
        return Outcome.UNSUPPORTED, 0
    careful = Careful.on(lane, known=[planted], timeout=hang_limit)
    profile = profiles.default()
    try:
        result = falsify.search(
            planted.spec,
            check,
            lane,
            max_examples=max_examples or profiles.examples(planted.spec, check, lane.name, profile),
            shrink=False,
            base=settings.get_profile(profile),
            execute=functools.partial(careful, planted, check),
            seconds=seconds,
        )
    finally:
        careful.close()
    return result.outcome, result.examples
