"""Sequences over several ranks in one process."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from bitproof.harness import lanes
from bitproof.harness.attribution.costs import Model
from bitproof.harness.bits import bits
from bitproof.harness.case import build
from bitproof.harness.lanes.base import Variation
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify
from bitproof.harness.spec import KernelSpec
from bitproof.harness.subjects.discovery import find
from bitproof.harness.subjects.planting import plant
from bitproof.kernels.delta.cases import DeltaCase
from bitproof.kernels.delta.ranks.cases import RanksCase
from bitproof.kernels.delta.ranks.corners import corners
from bitproof.kernels.delta.ranks.specs import GDN2_CP
from bitproof.kernels.delta.specs import GDN2_CHUNK
from tests.kernels.delta.judging import judged

OFFSET = "reads the first head's decay in the summary"


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformGates(RanksCase):
    """The same with gates that are those of the first value head in all."""

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """With g, A_log and dt_bias repeated."""
        made = super().tensors(device)
        axes = {"g": 1, "A_log": 0, "dt_bias": 0}
        for name, axis in axes.items():
            if name in made:
                first = made[name].narrow(axis, 0, 1)
                made[name] = first.expand_as(made[name]).contiguous()
        return made


def _uniform(case: RanksCase) -> UniformGates:
    return UniformGates(call=case.call, ranks=case.ranks)


def _planted(name: str) -> KernelSpec:
    (found,) = find(kernels=["gdn2_cp"])
    (fault,) = (fault for fault in found.spec.faults if fault.name == name)
    return plant(found, fault)


def test_a_missing_head_offset_shows_where_gates_differ_from_head_to_head() -> None:
    """And nowhere else: it went unseen in public because every head had one gate."""
    corner = corners("gdn2")[0]
    case = RanksCase(call=dataclasses.replace(corner.call, lengths=(24,)), ranks=2)
    spec = _planted(OFFSET)
    differing: Any = case
    assert judged(spec, "agreement", differing).outcome is Outcome.FAILED
    uniform: Any = _uniform(case)
    assert judged(spec, "agreement", uniform).outcome is Outcome.PASSED


@pytest.mark.slow
def test_a_missing_head_offset_is_caught_within_ten_examples() -> None:
    """Ten drawn cases and the corners show it; with uniform gates the same ones do not."""
    spec = _planted(OFFSET)

    def draw(**options: Any) -> Any:
        return spec.cases(**options).map(_uniform)

    uniform = dataclasses.replace(
        spec,
        cases=draw,
        corners=tuple(map(_uniform, spec.corners)),
        refusals=(),  # type: ignore[arg-type]
    )
    for one, outcome in ((spec, Outcome.FAILED), (uniform, Outcome.PASSED)):
        found = falsify.search(
            one,
            "agreement",
            lanes.present(),
            max_examples=10,
            shrink=False,
            base=settings(derandomize=True, database=None),
        )
        assert found.outcome is outcome


def test_one_rank_gives_the_bits_of_the_chunked_kernel() -> None:
    """With initial states, which every rank is given."""
    call = DeltaCase(kind="gdn2", lengths=(3, 0, 70), slack=2, initial=True)
    lane = lanes.present()
    plain = lane.run(GDN2_CHUNK, build(call, lane.device), Variation()).outputs
    case = RanksCase(call=call, ranks=1)
    found = lane.run(GDN2_CP, build(case, lane.device), Variation()).outputs
    for name, tensor in plain.items():
        assert torch.equal(bits(found[name]), bits(tensor)), name


def test_what_ranks_exchange_is_listed_where_it_is_rounded() -> None:
    """Under `narrow` on several ranks: not on one, nor where it is sent in fp32."""
    call = DeltaCase(kind="gdn2", lengths=(30,), initial=True)
    sent = {"summary state", "summary transition", "merged state"}
    for precision, ranks, listed in (
        ("narrow", 4, sent),
        ("narrow", 1, set()),
        ("upstream", 4, set()),
    ):
        case = RanksCase(call=dataclasses.replace(call, precision=precision), ranks=ranks)
        model = Model(spec=GDN2_CP, inputs=build(case, torch.device("cpu")), output="o")
        assert {point for point in model.stored if point not in GDN2_CHUNK.storage.points} == listed
        assert all(model.error([point]) > 0 for point in listed)
