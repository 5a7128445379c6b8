"""Every planted fault of every built-in kernel is caught, by the check it names, within a default run.

This is what shows that the checks can fail. It runs on the present lane: the interpreter here, CUDA where
BITPROOF_LANE says so.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

from bitproof.harness import lanes
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify, profiles
from bitproof.harness.spec import Fault
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import plant

LANE = lanes.family(lanes.choose())
PLANTED = [(found, fault) for found in find() for fault in found.spec.faults]
# Of each kernel and check, how many are planted in every run of the tests; the nightly run plants all.
EACH_TIME = 1
# Kernels that run several ranks for each case, whose faults are all left to the night.
RANKED = frozenset({"gdn2_cp", "gdn2_cp_vjp", "kda_cp", "kda_cp_vjp"})
# A fault that shows after many runs of a long kernel: kda_chunk_vjp guards that check of the same functions.
LONG = frozenset({("gdn2_chunk_vjp", "reproducibility")})
VISIBLE = [(found, fault) for found, fault in PLANTED if LANE in fault.lanes]


def _name(found: FoundSpec, fault: Fault) -> str:
    return f"{found.spec.name}: {fault.name}"


def _choose() -> Iterator[ParameterSet]:
    """All of them, those beyond the first few of each kernel and check as slow tests."""
    met: collections.Counter[tuple[str, str]] = collections.Counter()
    for found, fault in sorted(VISIBLE, key=lambda pair: _name(*pair)):
        pair = found.spec.name, fault.caught_by
        met[pair] += 1
        late = met[pair] > EACH_TIME or found.spec.name in RANKED or pair in LONG
        marks = [pytest.mark.slow] if late else []
        yield pytest.param(found, fault, id=_name(found, fault), marks=marks)


@pytest.mark.parametrize(("found", "fault"), tuple(_choose()))
def test_a_planted_fault_is_caught_by_its_check(found: FoundSpec, fault: Fault) -> None:
    """Within the examples that the default profile spends; the search is derandomised to be steady."""
    lane = lanes.present()
    examples = profiles.examples(found.spec, fault.caught_by, lane.name, profiles.DEFAULT)
    result = falsify.search(
        plant(found, fault),
        fault.caught_by,
        lane,
        max_examples=examples,
        shrink=False,
        base=settings(derandomize=True, database=None),
    )
    assert result.outcome is Outcome.FAILED, (
        f"{dict(result.outcomes)}, covered {dict(result.covered)}"
    )


@pytest.mark.parametrize(
    ("found", "fault"),
    sorted(PLANTED, key=lambda pair: _name(*pair)),
    ids=sorted(_name(*pair) for pair in PLANTED),
)
def test_a_planted_fault_is_one_edit(found: FoundSpec, fault: Fault) -> None:
    """It applies exactly once, changes the source, and leaves the kernel it was planted in as it was."""
    planted = plant(found, fault)
    assert planted.name == found.spec.name
    assert planted.run is not found.spec.run
    assert fault.new != fault.old
    assert find([found.reference], [found.spec.name])[0].spec is found.spec


def test_each_check_is_shown_able_to_fail() -> None:
    """Over all kernels, the checks that every spec gets have a fault to catch on this lane."""
    caught = {fault.caught_by for _, fault in VISIBLE}
    assert caught >= {"agreement", "memory", "reproducibility"}
