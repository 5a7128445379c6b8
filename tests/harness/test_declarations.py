"""A part of a spec rejects its own mistakes where it is written, with the value and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bitproof.harness.errors import SpecError
from bitproof.harness.spec import (
    Accepted,
    Bitwise,
    Elementwise,
    Fault,
    Invariance,
    Limit,
    Lowering,
    Storage,
    Tolerated,
    Varies,
)
from tests.harness.plain import scaled

PLAIN: dict[type, dict[str, Any]] = {
    Accepted: {
        "hazard": "ties away",
        "because": "no ties occur",
        "conversions": {"fp32 to e4m3": 8},
    },
    Bitwise: {"shown_by": "a fault"},
    Varies: {"because": "sums by atomics"},
    Elementwise: {"input": "x", "output": "y", "format": "e4m3"},
    Fault: {"name": "a", "within": "run", "old": "+", "new": "-", "caught_by": "agreement"},
    Invariance: {"name": "same", "transform": lambda i: i, "relate": lambda o, i: o},
    Limit: {"lane": "cuda", "check": "memory", "because": "a reason", "reproduction": "x.py"},
    Lowering: {},
    Storage: {
        "points": ("u", "y"),
        "outputs": ("y",),
        "stored": lambda params: frozenset({"u"}),
        "model": lambda tensors, params, rounded: {},
        "public": frozenset({"y"}),
    },
    Tolerated: {"kind": "race", "tensor": "y", "because": "a reason"},
}


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
def test_a_part_that_fits_is_accepted(kind: Callable[..., object]) -> None:
    """The plain one that the mistakes below start from."""
    assert kind(**PLAIN[kind])  # type: ignore[index]


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (Accepted, {"hazard": "luck"}, "Accepted 'luck': hazard names 'luck': choose from approx"),
        (Accepted, {"because": ""}, "because must be the reason why it does no harm, as text, got"),
        (Accepted, {"targets": ("sm90",)}, "targets names 'sm90': choose from sm_80, sm_86"),
        (Accepted, {"targets": "sm_90"}, r"targets must be a tuple of str, got 'sm_90': write \("),
        (Accepted, {"conversions": {}}, "conversions is empty: name those that it is accepted of"),
        (
            Accepted,
            {"hazard": "not analysed", "conversions": {}, "on_grid": True},
            "conversions is empty",
        ),
        (Accepted, {"conversions": "fp32 to e4m3"}, r"conversions must be a dict such as \{"),
        (Accepted, {"conversions": {"fp32": 1}}, "names 'fp32': write FORMAT to FORMAT, of "),
        (Accepted, {"conversions": {"fp32 to e4m3": -1}}, "must be an integer of at least 0, got"),
        (Bitwise, {"runs": 1}, "Bitwise: reproducibility needs at least 2 runs, got 1"),
        (Bitwise, {"runs": 2.5}, r"runs must be an integer of at least 2, got 2\.5"),
        (Bitwise, {"outputs": "y"}, r"got 'y': write frozenset\(\{'y'\}\)"),
        (
            Bitwise,
            {"varies": ["y"]},
            r"varies must be a frozenset of names of outputs, got \['y'\]",
        ),
        (
            Bitwise,
            {"control": "other"},
            r"control must be a function \(tensors, params\) -> outputs",
        ),
        (
            Bitwise,
            {"shown_by": ""},
            "shown_by must be the name of a planted fault, as text, got ''",
        ),
        (Varies, {"because": ""}, "because must be the reason why bits may vary, as text, got ''"),
        (
            Bitwise,
            {"varies": frozenset({"y"})},
            "varies says that y varies, but there is no control",
        ),
        (
            Elementwise,
            {"input": None},
            "Elementwise: input must be the name of a tensor, as text, g",
        ),
        (Elementwise, {"output": ""}, "output must be the name of an output, as text, got ''"),
        (Elementwise, {"format": "e9m9"}, "format names 'e9m9': choose from e4m3, e5m2"),
        (Elementwise, {"mode": "up"}, "mode names 'up': choose from rne, rz, half_away"),
        (
            Elementwise,
            {"overflow": "wrap"},
            "overflow names 'wrap': choose from saturate, nan, inf",
        ),
        (Elementwise, {"case": 3}, r"case must be a function \(bit patterns\) -> case, got 3"),
        (Fault, {"name": " "}, "Fault ' ': name must be what a report calls the fault, as text"),
        (Fault, {"within": ""}, "Fault 'a': within must be the name of a function or constant"),
        (
            Fault,
            {"old": ""},
            "old must be the part of the source that is exchanged, as text, got ''",
        ),
        (Fault, {"new": None}, "new must be what comes in the place of old, as text, got None"),
        (Fault, {"new": "+"}, r"old and new are the same, '\+': an edit must change something"),
        (Fault, {"caught_by": ""}, "caught_by must be the name of a check, as text, got ''"),
        (Fault, {"module": ""}, "module must be the full name of a module, as text, got ''"),
        (
            Fault,
            {"lanes": ()},
            "lanes is empty, so that no check can catch it: choose from cuda, in",
        ),
        (Fault, {"lanes": "cuda"}, r"lanes must be a tuple of str, got 'cuda': write \('cuda',\)"),
        (Fault, {"lanes": ("cpu",)}, "lanes names 'cpu': choose from cuda, interpreter"),
        (
            Fault,
            {"lanes": ("cuda",)},
            "lanes leaves out interpreter without a reason: say in because",
        ),
        (
            Fault,
            {"lanes": ("cuda:sm_89",), "because": "x"},
            "lanes names 'cuda:sm_89', the lane of one target: write 'cuda', which stands for all",
        ),
        (Invariance, {"name": ""}, "Invariance '': name must be what a report calls the relation"),
        (
            Invariance,
            {"transform": None},
            "'same': transform must be a function inputs -> inputs or",
        ),
        (
            Invariance,
            {"relate": 3},
            r"relate must be a function \(outputs, inputs\) -> outputs, got 3",
        ),
        (Invariance, {"start": 3}, "start must be a function inputs -> inputs or None, got 3"),
        (
            Invariance,
            {"carry": 3},
            r"carry must be a function \(outputs, inputs\) -> inputs, got 3",
        ),
        (
            Limit,
            {"lane": "gpu"},
            "Limit on 'memory': lane names 'gpu': choose from cuda, interpreter",
        ),
        (
            Limit,
            {"lane": "cuda:sm_89"},
            "lane names 'cuda:sm_89', the lane of one target: write 'cud",
        ),
        (Limit, {"check": ""}, "check must be the name of a check, as text, got ''"),
        (Limit, {"because": ""}, "because must be the reason, as text, got ''"),
        (
            Limit,
            {"reproduction": ""},
            "reproduction must be where a reproduction lies, as text, got",
        ),
        (
            Lowering,
            {"supports": ("sm_90", "sm90")},
            "Lowering: supports names 'sm90': choose from sm_",
        ),
        (Lowering, {"alone": True}, "alone says that it is for no target at all: name in supports"),
        (
            Lowering,
            {"products": "tf32"},
            r"products must be a tuple of str, got 'tf32': write \('tf",
        ),
        (Lowering, {"accepted": ("ties away",)}, "accepted must be a tuple of Accepted, got"),
        (Lowering, {"most": 0}, "most must be an integer of at least 1, got 0"),
        (Storage, {"points": ()}, "Storage: points is empty: name at least one"),
        (Storage, {"points": "uy"}, r"points must be a tuple of str, got 'uy': write \('uy',\)"),
        (Storage, {"points": ("u", "y", "u")}, r"points names something twice: \('u', 'y', 'u'\)"),
        (Storage, {"outputs": ()}, "outputs is empty: name at least one"),
        (
            Storage,
            {"stored": frozenset()},
            "stored must be a function params -> the points that are",
        ),
        (
            Storage,
            {"model": None},
            r"model must be a function \(tensors, params, rounded\) -> outputs",
        ),
        (
            Storage,
            {"public": "y"},
            r"public must be a frozenset of points, got 'y': write frozenset",
        ),
        (
            Storage,
            {"public": frozenset({"v"})},
            "public names 'v', which is none of the points u, y",
        ),
        (
            Tolerated,
            {"kind": "luck"},
            "Tolerated 'luck': kind names 'luck': choose from assert, boun",
        ),
        (Tolerated, {"because": ""}, "because must be the reason why it is meant, as text, got ''"),
    ],
)
def test_a_mistake_is_rejected_where_it_is_written(
    kind: type, changes: dict[str, Any], message: str
) -> None:
    """One sentence: the declaration, the field, the value, and what to write instead."""
    with pytest.raises(SpecError, match=message) as caught:
        kind(**{**PLAIN[kind], **changes})
    assert str(caught.value).startswith(kind.__name__)
    assert "\n" not in str(caught.value)


def test_a_control_shows_the_claim_as_well_as_a_fault() -> None:
    """Either is enough, and a control may be asked to vary in some outputs only."""
    assert Bitwise(control=scaled, varies=frozenset({"y"})).runs == 8


def test_a_fault_may_leave_out_a_lane_for_a_reason() -> None:
    """It is then looked for on the others alone."""
    fault = Fault(**{**PLAIN[Fault], "lanes": ("cuda",), "because": "no such instruction there"})
    assert fault.lanes == ("cuda",)
