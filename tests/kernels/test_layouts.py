"""Built-in kernels under the layouts that their specs allow, and their refusal of all others."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from bitproof.harness import checks, lanes
from bitproof.harness.case import build
from bitproof.harness.layouts import LAYOUTS, choose, strides_of
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify
from bitproof.harness.search.far_rows import with_launch
from bitproof.harness.subjects.discovery import find

BUILT_IN = [found.spec for found in find()]
LAID = [spec for spec in BUILT_IN if spec.layouts]
CPU = torch.device("cpu")


def _drawn(spec):
    """Twenty cases, or four where one takes seconds."""
    return falsify.draw_cases(spec, 20 if spec.launches["interpreter"] >= 400 else 4)


@pytest.mark.parametrize("spec", LAID, ids=lambda spec: spec.name)
def test_a_kernel_holds_under_what_its_spec_allows(spec) -> None:
    """Each drawn case under a number of its own."""
    lane = lanes.present()
    for number, case in enumerate(_drawn(spec), start=1):
        laid = with_launch(case, dataclasses.replace(case.launch, layout=number))
        found = checks.run("agreement", spec, build(laid, lane.device), lane)
        assert found.outcome in (Outcome.PASSED, Outcome.NOT_DEMONSTRATED), (laid, found)


@pytest.mark.parametrize("spec", LAID, ids=lambda spec: spec.name)
def test_a_kernel_holds_where_rows_are_one_row_in_memory(spec) -> None:
    """No drawn case has equal rows throughout: the first row of each tensor is expanded."""
    lane = lanes.present()
    for case in falsify.draw_cases(spec, 4):
        inputs = build(case, lane.device)
        first = {name: inputs.tensors[name][:1] for name in spec.layouts}
        inputs = inputs.replace(
            **{name: row.expand(inputs.tensors[name].shape) for name, row in first.items()}
        )
        found = checks.run("agreement", spec, inputs, lane)
        assert found.outcome in (Outcome.PASSED, Outcome.NOT_DEMONSTRATED), (case, found)


@pytest.mark.parametrize("spec", BUILT_IN, ids=lambda spec: spec.name)
def test_any_other_layout_is_refused_or_right(spec) -> None:
    """No kernel answers wrongly for a tensor that lies as its contract does not say."""
    lane = lanes.present()
    allowed = spec.allowed_layouts()
    drawn = [(case, case.tensors(CPU)) for case in _drawn(spec)]
    names = sorted({name for _, tensors in drawn for name in tensors})
    for name, layout in itertools.product(names, LAYOUTS):
        fit = [case for case, tensors in drawn if _lies_apart(layout, tensors.get(name))]
        if layout in allowed.get(name, ()) or not fit:
            continue
        free = dataclasses.replace(spec, strided=frozenset(), layouts={name: (layout,)})
        number = next(n for n in range(1, 65) if choose(free.layouts, n, name) == layout)
        laid = with_launch(fit[0], dataclasses.replace(fit[0].launch, layout=number))
        found = checks.run("agreement", free, build(laid, lane.device), lane)
        fits = found.outcome in (Outcome.PASSED, Outcome.REFUSED, Outcome.NOT_DEMONSTRATED)
        assert fits, (name, layout, found)


def _lies_apart(layout: str, tensor: torch.Tensor | None) -> bool:
    return tensor is not None and strides_of(layout, tensor) is not None
