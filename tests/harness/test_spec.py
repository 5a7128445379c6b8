"""A spec that contradicts itself is refused when it is declared, with the reason and the remedy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bitproof.harness.case import Launch
from bitproof.harness.errors import SpecError
from bitproof.harness.spec import Bitwise, Fault, Limit, Storage
from tests.harness.plain import FAULTS, SPEC, scaled, variant

FAULT = FAULTS[0]


def _fault(**changes: Any) -> tuple[Fault, ...]:
    return (*FAULTS[1:], dataclasses.replace(FAULT, **changes))


def _limit(**changes: Any) -> tuple[Limit, ...]:
    limit = Limit(lane="cuda", check="memory", because="a reason", reproduction="tests/x.py")
    return (dataclasses.replace(limit, **changes),)


def _storage(**changes: Any) -> Storage:
    plain: dict[str, Any] = {"points": ("u", "y"), "outputs": ("y",), "public": frozenset({"y"})}
    return Storage(
        stored=lambda params: frozenset({"u"}),
        model=lambda tensors, params, rounded: {},
        **{**plain, **changes},
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Scaled rows"}, "a name is lower-case words joined by underscores"),
        ({"name": "2d"}, "a name is lower-case words"),
        ({"bounds": {}}, "has no bounds: declare one for each output"),
        ({"faults": ()}, "has no planted fault: add one"),
        ({"faults": (*FAULTS, FAULT)}, "two planted faults share a name"),
        ({"faults": _fault(caught_by="luck")}, "names the check 'luck'; there are agreement, comp"),
        (
            {"faults": _fault(lanes=("cuda",))},
            "'off by a factor' leaves out a lane without a reason",
        ),
        ({"faults": _fault(lanes=())}, r"is for lanes \(\); there are cuda, interpreter"),
        (
            {"faults": _fault(lanes=("cpu",), because="x")},
            r"is for lanes \('cpu',\); there are cuda",
        ),
        ({"limits": _limit(because="")}, "a limit needs its reason and a reproduction"),
        ({"limits": _limit(reproduction="")}, "a limit needs its reason and a reproduction"),
        ({"limits": _limit(lane="gpu")}, "a limit names lane 'gpu' and check 'memory'; there are"),
        ({"limits": _limit(check="speed")}, "a limit names lane 'cuda' and check 'speed'"),
        (
            {"reproducible": Bitwise(runs=1, shown_by="reads fresh memory")},
            "reproducibility needs at least 2 runs, got 1",
        ),
        ({"reproducible": Bitwise()}, "names neither a control nor one of its planted faults"),
        (
            {"reproducible": Bitwise(shown_by="no such fault")},
            "names neither a control nor one of its planted faults",
        ),
        (
            {"reproducible": Bitwise(control=scaled, shown_by="no such fault")},
            "names neither a control nor one of its planted faults",
        ),
        (
            {"reproducible": Bitwise(control=scaled, varies=frozenset({"z"}))},
            "its bitwise claim names 'z', which has no bound",
        ),
        (
            {"reproducible": Bitwise(shown_by="reads fresh memory", varies=frozenset({"y"}))},
            "its bitwise claim says what varies but has no control",
        ),
        (
            {"reproducible": Bitwise(shown_by="off by a factor")},
            "'off by a factor' shows the bitwise claim, so the check that catches it must be repro",
        ),
        ({"storage": _storage(points=())}, r"storage model needs a tuple of points, got \(\)"),
        ({"storage": _storage(points="uy")}, "storage model needs a tuple of points, got 'uy'"),
        ({"storage": _storage(outputs=())}, r"storage model needs a tuple of outputs, got \(\)"),
        ({"storage": _storage(points=("u", "y", "u"))}, "storage model names a point twice"),
        (
            {"storage": _storage(public=frozenset({"v"}))},
            "storage model calls 'v' public, which is none of its points u, y",
        ),
        (
            {"storage": _storage(outputs=("y", "z"))},
            "storage model answers 'z', which has no bound; there are y",
        ),
    ],
)
def test_a_contradiction_is_named(changes: dict[str, Any], message: str) -> None:
    """Each contradiction is one sentence that begins with the spec's name."""
    with pytest.raises(SpecError, match=message) as caught:
        variant(**changes)
    assert str(caught.value).startswith(f"spec {changes.get('name', SPEC.name)!r}")


def test_a_control_shows_the_claim_as_well_as_a_fault() -> None:
    """Either is enough; a fault may leave out a lane for a reason."""
    spec = variant(
        faults=_fault(lanes=("cuda",), because="the interpreter has no such instruction"),
        reproducible=Bitwise(control=scaled),
        limits=_limit(),
    )
    assert spec.reproducible.runs == 8


def test_a_storage_model_that_fits_is_accepted() -> None:
    """Its points need be no outputs."""
    assert variant(storage=_storage()).storage is not None


def test_launchers_find_the_launch_of_the_case() -> None:
    """A launcher called without a launch, by hand, gets the ordinary one."""
    assert SPEC.launch_of({"launch": Launch(block=64)}) == Launch(block=64)
    assert SPEC.launch_of({}) == Launch()
