"""The check of memory finds stray writes and unwritten elements, and names them with their places."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bitproof.harness import case as cases
from bitproof.harness import checks
from bitproof.harness.case import Inputs, Launch
from bitproof.harness.lanes.base import Launched, Variation
from bitproof.harness.outcomes import Outcome
from bitproof.harness.spec import KernelSpec, Params, Tensors
from tests.harness.erring import after, kernel
from tests.harness.plain import CASE, SPEC, PlainLane, checked, scaled


def _past(tensor: Tensor, offset: int, value: float) -> None:
    """Write outside of a tensor, as a kernel with a wrong offset does."""
    torch.as_strided(tensor, (1,), (1,), tensor.storage_offset() + offset).fill_(value)


@pytest.mark.parametrize(
    ("edit", "summary"),
    [
        (lambda x, y: _past(y, 6, 1.0), "a write outside y: the byte +24 from its first element"),
        (lambda x, y: _past(y, -1, 1.0), "a write outside y: the byte -4 from its first element"),
        (lambda x, y: _past(y, 4000, 1.0), "a write outside y: the byte +16000 from its first"),
        (lambda x, y: _past(x, 6, 1.0), "a write outside x: the byte +24 from its first element"),
        (lambda x, y: _past(x, -1, 1.0), "a write outside x: the byte -4 from its first element"),
        (lambda x, y: _past(torch.zeros(5), 5, 1.0), "a write outside allocation 1: the byte +20"),
        (lambda x, y: x[1, 0].fill_(5.0), "input x was written at [1, 0]"),
        (lambda x, y: x[0, 1].neg_(), "input x was written at [0, 1]"),
    ],
)
def test_memory_finds_a_stray_write(edit: Callable[[Tensor, Tensor], Any], summary: str) -> None:
    """Before or after an output, an input or a workspace, or on an input: named, with its offset."""
    findings = checked("memory", kernel(after(edit)))
    assert findings.outcome is Outcome.FAILED
    assert [finding.summary[: len(summary)] for finding in findings.findings] == [summary]


def test_memory_guards_the_gaps_between_padded_rows() -> None:
    """A kernel that takes a strided tensor for a dense one writes between its rows."""

    def flat(x: Tensor, y: Tensor) -> None:
        _past(x, 3, 1.0)

    case = dataclasses.replace(CASE, launch=Launch(row_padding=2, misalign=1))
    assert (
        checked("memory", kernel(scaled, strided=frozenset({"x"})), case).outcome is Outcome.PASSED
    )
    findings = checked("memory", kernel(after(flat), strided=frozenset({"x"})), case)
    assert [f.summary for f in findings.findings] == [
        "a write outside x: the byte +12 from its first element changed"
    ]


@pytest.mark.parametrize("value", [0xFF, 0xA5])
def test_memory_sees_a_trespass_that_equals_one_poison(value: int) -> None:
    """The guard that hides it in one run shows it in the other."""

    def trespass(x: Tensor, y: Tensor) -> None:
        lying = y.view(torch.uint8)
        torch.as_strided(lying, (1,), (1,), lying.storage_offset() - 1).fill_(value)

    findings = checked("memory", kernel(after(trespass)))
    assert [f.summary for f in findings.findings] == [
        "a write outside y: the byte -1 from its first element changed"
    ]


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda x: torch.empty(2, 3), [1, 2]),
        (lambda x: torch.empty(2, 3, dtype=torch.bool), [1, 2]),
        (lambda x: torch.empty(2, 3, dtype=torch.int64), [1, 2]),
        (lambda x: torch.empty(3, 2, dtype=torch.bool).t(), [1, 2]),
        (lambda x: torch.empty(2, 3, dtype=torch.float8_e4m3fn), [1, 2]),
        (lambda x: torch.empty_like(x), [1, 2]),
        (lambda x: x.new_empty(2, 5)[:, 1:4], [1, 2]),
    ],
)
def test_memory_finds_an_element_nobody_wrote(
    make: Callable[[Tensor], Tensor], where: list[int]
) -> None:
    """Of any dtype, in a view or a transposed tensor; the elements written before it do not count."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = make(tensors["x"])
        y[0] = 1.0
        y[1, :2] = 1.0
        return {"y": y}

    findings = checked("memory", kernel(run))
    assert [f.summary for f in findings.findings] == [
        f"y{where} was never written (1 of 6 elements)"
    ]


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: torch.empty(()), []),
        (lambda: torch.empty((), dtype=torch.float16), []),
        (lambda: torch.empty(1, 2, 2)[..., 0], [0, 1]),
        (lambda: torch.empty_strided((2, 1), (1, 2)), [1, 0]),
    ],
)
@pytest.mark.parametrize("written", [True, False])
def test_memory_judges_scalars_and_odd_strides(
    make: Callable[[], Tensor], where: list[int], written: bool
) -> None:
    """Outputs that torch does not view as bytes: no dimension, or one element at some other stride."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = make()
        y.view(-1)[: y.numel() - (not written)] = 1.0
        return {"y": y}

    total = make().numel()
    expected = [] if written else [f"y{where} was never written (1 of {total} elements)"]
    assert [f.summary for f in checked("memory", kernel(run)).findings] == expected


@pytest.mark.parametrize("pattern", [-1, 0xFF, 0xA5, 0xA5A5, -0x5A5A5A5B, 0x7B7B7B7B, 0])
def test_memory_accepts_any_value_a_kernel_writes(pattern: int) -> None:
    """Also a value made of the very bytes that memory was poisoned with."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = torch.empty(2, 3, dtype=torch.int32)
        y.fill_(pattern)
        return {"y": y}

    assert checked("memory", kernel(run)).outcome is Outcome.PASSED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Complaint:
    """What a sanitizer reports."""

    kind: str = "race"
    text: str = "race: two programs"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchfulLane(PlainLane):
    """The plain lane, with a sanitizer that complains of the run number `number` where it is asked."""

    number: int

    def run(self, spec: KernelSpec, inputs: Inputs, variation: Variation) -> Launched:
        """As the plain lane."""
        launched = super().run(spec, inputs, variation)
        if not variation.watched or variation.run != self.number:
            return launched
        return dataclasses.replace(launched, violations=(Complaint(),))


@pytest.mark.parametrize("number", [0, 1])
def test_memory_reports_what_a_sanitizer_saw(number: int) -> None:
    """In either run, since their programs run in another order; no other check asks for it."""
    lane = WatchfulLane(number=number)
    inputs = cases.build(CASE, lane.device)
    findings = checks.run("memory", SPEC, inputs, lane)
    assert findings.outcome is Outcome.FAILED
    assert [finding.summary for finding in findings.findings] == ["race: two programs"]
    assert findings.findings[0].facts["kind"] == "race"
    for check in ("agreement", "reproducibility"):
        assert checks.run(check, SPEC, inputs, lane).outcome is Outcome.PASSED


def test_memory_looks_at_inputs_where_they_lay() -> None:
    """A launcher that turns its own view of an input has not written it."""

    def turned(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        return {"y": torch.mul(tensors["x"].t_(), 2.0).t()}

    assert checked("memory", kernel(turned)).outcome is Outcome.PASSED
