"""A spec is made without an error, and everything that is wrong with it is gathered at once."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from bitproof.harness import declarations, spec
from bitproof.harness.bounds import exact_bits
from bitproof.harness.case import Launch
from bitproof.harness.spec import (
    CHECKS,
    Bitwise,
    Elementwise,
    Fault,
    Invariance,
    Limit,
    Refusal,
    Storage,
    find_mistakes,
)
from bitproof.kernels.dsrelu.cases import DsreluCase
from tests.harness.plain import CASE, FAULTS, SPEC, scaled, variant

FAULT = FAULTS[0]
_REFUSAL = Refusal(name="x in fp64", case=CASE, spoil=lambda inputs: inputs)


SAME = Invariance(name="same", transform=lambda inputs: inputs, relate=lambda outputs, inputs: {})


def _fault(**changes: Any) -> tuple[Fault, ...]:
    return (*FAULTS[1:], dataclasses.replace(FAULT, **changes))


def _storage(*outputs: str) -> Storage:
    return Storage(
        points=("u", "y"),
        outputs=outputs,
        stored=lambda params: frozenset({"u"}),
        model=lambda tensors, params, rounded: {},
    )


def test_a_sound_spec_has_no_mistakes() -> None:
    """The plain one, and one that makes use of what it may leave out."""
    full = variant(
        faults=_fault(lanes=("cuda",), because="the interpreter has no such instruction"),
        reproducible=Bitwise(control=scaled, varies=frozenset({"y"})),
        invariances=(SAME,),
        limits=(Limit(lane="cuda", check="memory", because="a reason", reproduction="tests/x.py"),),
        storage=_storage("y"),
        elementwise=Elementwise(input="x", output="y", format="bf16"),
        strided=frozenset({"x"}),
        corners=(CASE,),
        layouts={"x": ("transposed",)},
        refuses=(ValueError,),
        refusals=(_REFUSAL,),
        must_not_recompile=lambda inputs: (),
    )
    assert find_mistakes(SPEC, CHECKS) == ()
    assert find_mistakes(full, CHECKS) == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"name": "Scaled rows"},
            "name must be lower-case words joined by underscores, got 'Scaled",
        ),
        ({"name": "2d"}, "name must be lower-case words"),
        ({"name": None}, "name must be lower-case words joined by underscores, got None"),
        ({"run": None}, r"run must be a function \(tensors, params\) -> outputs, got None"),
        ({"case": 3}, "case must be the dataclass of the cases, got 3"),
        ({"case": int}, r"case must be the dataclass of the cases, got <class 'int'> \(type\)"),
        ({"cases": 3}, r"cases must be a function \(\) or \(scale\) -> strategy of cases, got 3"),
        ({"oracle": {}}, r"oracle must be a function .* got \{\} \(dict\)"),
        ({"layouts": ("transposed",)}, "layouts must be a dict of layouts by tensor, got"),
        (
            {"layouts": {"x": "transposed"}},
            r"layouts\['x'\] must be a tuple of str, got 'transposed': write \('transposed',\)",
        ),
        (
            {"layouts": {"x": ("transposd",)}},
            r"layouts\['x'\] names 'transposd': choose from padded rows, padded outer axes, every",
        ),
        (
            {"layouts": {"x": ("expanded",)}, "inplace": frozenset({"x"})},
            "layouts lets 'x' be expanded, and inplace says that it is written: elements that share",
        ),
        ({"bounds": {}}, r"bounds must be a dict with a bound for each output, got \{\} \(dict\)"),
        (
            {"bounds": exact_bits()},
            r"bounds must be a dict with .* got ExactBits\(.* \(ExactBits\)",
        ),
        (
            {"bounds": {"y": 0.1}},
            r"bounds\['y'\] must be a bound, such as exact_bits\(\), got 0\.1",
        ),
        ({"faults": None}, "faults must be a tuple of Fault, got None"),
        ({"contract": "norm"}, r"contract must be Contract\(\.\.\.\), got 'norm'"),
        ({"case": None}, "there is no contract with inputs, and no case"),
        ({"blocks": ()}, "blocks is empty: name at least the tile size that is the default"),
        ({"blocks": (0,)}, "blocks must be an integer of at least 1, got 0"),
        (
            {"faults": FAULT},
            r"faults must be a tuple of Fault, got Fault\(name=.*: write \(Fault\(",
        ),
        ({"faults": ("x",)}, r"faults must be a tuple of Fault, got \('x',\)"),
        (
            {"faults": (*FAULTS, FAULT)},
            "2 planted faults are called 'off by a factor': give each a n",
        ),
        (
            {"faults": _fault(caught_by="luck")},
            "fault 'off by a factor': caught_by names 'luck': choose from agreement, compile_cache",
        ),
        (
            {"reproducible": None},
            r"reproducible must be Bitwise\(\.\.\.\) or Varies\(\.\.\.\), got",
        ),
        (
            {"reproducible": Bitwise(shown_by="no such fault")},
            "shown_by names 'no such fault', which is no planted fault: choose from 'off by a factor'",
        ),
        (
            {"reproducible": Bitwise(control=scaled, shown_by="no such fault")},
            "shown_by names 'no such fault', which is no planted fault",
        ),
        (
            {"reproducible": Bitwise(shown_by="off by a factor")},
            "shown_by names 'off by a factor', which agreement catches: name a fault that reproducib",
        ),
        (
            {"reproducible": Bitwise(control=scaled, varies=frozenset({"z"}))},
            "reproducible: varies names 'z', which has no bound: there are y",
        ),
        (
            {"reproducible": Bitwise(control=scaled, outputs=frozenset({"z"}))},
            "reproducible: outputs names 'z', which has no bound: there are y",
        ),
        (
            {"dtypes": {}},
            r"dtypes must be a function \(tensors, params\) -> the type of each output",
        ),
        (
            {"invariances": SAME},
            r"invariances must be a tuple of Invariance, .*: write \(Invariance",
        ),
        (
            {"invariances": (SAME, SAME)},
            "2 invariances are called 'same': give each a name of its o",
        ),
        (
            {"strided": "x"},
            r"strided must be a frozenset of names of tensors, got 'x': write frozen",
        ),
        ({"inplace": ("x",)}, r"inplace must be a frozenset of names of tensors, got \('x',\)"),
        (
            {"refuses": ValueError},
            "refuses must be a tuple of exception types, got ValueError: write a tup",
        ),
        (
            {"refuses": (int,)},
            r"refuses must be a tuple of exception types, got \(<class 'int'>,\)",
        ),
        ({"corners": (SPEC,)}, r"corners must be a tuple of Case, got \(KernelSpec"),
        (
            {"corners": (DsreluCase(),)},
            r"corners\[0\] must be a RowsCase as `case` says, got DsreluCase",
        ),
        ({"refusals": "x in fp64"}, "refusals must be a tuple of Refusal, got 'x in fp64'"),
        (
            {"refusals": (_REFUSAL,)},
            "refusals says what the launcher refuses, but refuses names no exception",
        ),
        ({"limits": ("memory",)}, r"limits must be a tuple of Limit, got \('memory',\)"),
        (
            {"limits": (Limit(lane="cuda", check="speed", because="x", reproduction="x"),)},
            "limit on lane cuda: check names 'speed': choose from agreement",
        ),
        ({"tolerates": ("race",)}, r"tolerates must be a tuple of Tolerated, got \('race',\)"),
        (
            {"unwritten": frozenset("y")},
            "unwritten must be a function params -> names of outputs, g",
        ),
        (
            {"must_not_recompile": ()},
            r"must_not_recompile must be a function inputs -> other inputs",
        ),
        ({"capturable": "yes"}, "capturable must be True or False, got 'yes'"),
        ({"launches": 400}, "launches must be a dict of numbers by family of lanes, got 400"),
        ({"launches": {"gpu": 400}}, "launches names 'gpu': choose from cuda, interpreter"),
        ({"launches": {"cuda": 0}}, r"launches\['cuda'\] must be an integer of at least 1, got 0"),
        ({"program": "tile"}, r"program must be a function \(output, index, inputs\) -> a program"),
        ({"elementwise": "e4m3"}, r"elementwise must be Elementwise\(\.\.\.\), got 'e4m3'"),
        (
            {"elementwise": Elementwise(input="x", output="z", format="e4m3")},
            "elementwise: output names 'z', which has no bound: there are y",
        ),
        ({"storage": "bf16"}, r"storage must be Storage\(\.\.\.\), got 'bf16'"),
        (
            {"storage": _storage("y", "z")},
            "storage: outputs names 'z', which has no bound: there ar",
        ),
        ({"lowering": None}, r"lowering must be Lowering\(\.\.\.\), got None"),
    ],
)
def test_a_mistake_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    """The field, the value and the remedy, and nothing is said twice."""
    (mistake,) = find_mistakes(variant(**changes), CHECKS)
    assert re.search(message, mistake)
    assert "\n" not in mistake


def test_all_mistakes_are_gathered() -> None:
    """Those of single fields, and what sound fields say of each other beside them."""
    mistakes = find_mistakes(
        variant(
            name="Rows",
            bounds={},
            strided="x",
            faults=_fault(caught_by="luck"),
            reproducible=Bitwise(shown_by="nothing"),
        ),
        CHECKS,
    )
    assert [mistake.split()[0] for mistake in mistakes] == [
        "name",
        "bounds",
        "strided",
        "reproducible:",
        "fault",
    ]


def test_every_field_is_inspected() -> None:
    """One that holds nothing of what it must has a mistake of its own."""
    fields = [field.name for field in dataclasses.fields(spec.KernelSpec)]
    wrong: dict[str, Any] = dict.fromkeys(fields, 0.5)
    mistakes = find_mistakes(spec.KernelSpec(**wrong), CHECKS)
    assert [mistake.split()[0] for mistake in mistakes] == fields


def test_checks_are_those_that_are_given() -> None:
    """A spec knows no check by itself."""
    assert len(find_mistakes(SPEC, ("agreement",))) == 1
    assert find_mistakes(SPEC, ("agreement", "reproducibility")) == ()


def test_every_part_is_importable_beside_the_spec() -> None:
    """Authors import from one module, whatever file declares a part."""
    parts = {
        name
        for name, value in vars(declarations).items()
        if isinstance(value, type) and value.__module__ == declarations.__name__
    }
    assert parts | {"KernelSpec", "Params", "Tensors"} <= set(spec.__all__)


def test_launchers_find_the_launch_of_the_case() -> None:
    """A launcher called without a launch, by hand, gets the ordinary one."""
    assert SPEC.launch_of({"launch": Launch(block=64)}) == Launch(block=64)
    assert SPEC.launch_of({}) == Launch()
