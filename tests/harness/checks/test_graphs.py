"""What a graph replays is compared with eager launches, bit for bit; what no graph can hold is found."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from bitproof.harness import case as cases
from bitproof.harness import lanes
from bitproof.harness.case import Inputs
from bitproof.harness.checks import graphs as check
from bitproof.harness.errors import Unsupported
from bitproof.harness.lanes.base import Uncapturable
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.search import falsify
from bitproof.harness.spec import Bitwise, Fault, KernelSpec
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import plant
from tests.harness import capturing
from tests.harness.capturing import FAULTS
from tests.harness.plain import CASE, PlainLane, RowsCase, scaled, scaled_oracle, variant

CAPTURING = str(Path(capturing.__file__))
SHOWN = [fault for fault in FAULTS if fault.caught_by == "graphs"]

Replay = Callable[[Inputs, Inputs], dict[str, Tensor]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recorded:
    """A graph that gives `gives(captured inputs, present inputs)`."""

    captured: Inputs
    gives: Replay

    def replay(self, inputs: Inputs) -> dict[str, Tensor]:
        return self.gives(self.captured, inputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordingLane(PlainLane):
    """The plain lane with such graphs, or with none where `gives` is what a capture raises."""

    gives: Replay | Exception

    def capture(self, spec: KernelSpec, inputs: Inputs) -> Recorded:
        if isinstance(self.gives, Exception):
            raise Uncapturable(spec.name) from self.gives
        return Recorded(captured=inputs, gives=self.gives)


def _judged(gives: Replay | Exception, case: RowsCase = CASE, **changes: Any) -> CheckResult:
    lane = RecordingLane(gives=gives)
    return check.check(variant(capturable=True, **changes), cases.build(case, lane.device), lane)


def _doubled(inputs: Inputs) -> dict[str, Tensor]:
    return scaled(inputs.tensors, inputs.params)


def test_replays_that_read_the_present_values_pass() -> None:
    """On both values."""
    findings = _judged(lambda captured, inputs: _doubled(inputs))
    assert (findings.outcome, findings.findings) == (Outcome.PASSED, ())


def test_replays_of_what_was_captured_are_found() -> None:
    """A graph that holds a result, not the work that makes it, is right on the first values alone."""
    findings = _judged(lambda captured, inputs: _doubled(captured))
    assert findings.outcome is Outcome.FAILED
    assert [finding.summary for finding in findings.findings] == [
        "y[0, 0]: its graph, replayed on the values in reverse, gives other bits"
    ]


def test_replays_that_add_up_are_found() -> None:
    """What a replay leaves behind shows in the next one, which is on the first values."""
    total = torch.zeros(2, 3)

    def adds(captured: Inputs, inputs: Inputs) -> dict[str, Tensor]:
        total.add_(_doubled(inputs)["y"])
        return {"y": total.clone()}

    findings = _judged(adds)
    assert [finding.summary for finding in findings.findings] == [
        "y[0, 0]: its graph, replayed on the first values, gives other bits"
    ]


@pytest.mark.parametrize("case", [RowsCase(), RowsCase(rows=0, columns=3)])
def test_values_that_are_their_own_reverse_show_nothing(case: RowsCase) -> None:
    """One element, or none: a graph that holds the result would pass too."""
    findings = _judged(lambda captured, inputs: _doubled(captured), case)
    assert findings.outcome is Outcome.NOT_DEMONSTRATED
    assert findings.reason == "its outputs are the same on its values in reverse"


def test_outputs_outside_the_bitwise_claim_are_not_compared() -> None:
    """They may differ from launch to launch, so that other bits say nothing of the graph."""
    calls = itertools.count()

    def run(tensors: Any, params: Any) -> dict[str, Tensor]:
        return {**scaled(tensors, params), "z": torch.tensor(next(calls))}

    def answer(tensors: Any, params: Any) -> dict[str, Any]:
        return {**scaled_oracle(tensors, params), "z": torch.tensor(0)}

    bound = variant().bounds["y"]
    changes = {"run": run, "oracle": answer, "bounds": {"y": bound, "z": bound}}
    claim = Bitwise(outputs=frozenset({"y"}), shown_by="reads fresh memory")
    replay = lambda captured, inputs: run(inputs.tensors, inputs.params)  # noqa: E731
    assert _judged(replay, **changes).outcome is Outcome.FAILED
    findings = _judged(replay, **changes, reproducible=claim)
    assert findings.outcome is Outcome.PASSED


def test_a_launch_that_no_graph_can_hold_is_a_finding() -> None:
    """With what was raised, and where."""

    with pytest.raises(ValueError, match="none") as caught:
        float("none")
    findings = _judged(caught.value)
    assert findings.outcome is Outcome.FAILED
    (finding,) = findings.findings
    here = f"test_a_launch_that_no_graph_can_hold_is_a_finding ({__file__}:"
    assert finding.summary.startswith(f"no graph can hold this launch: ValueError in {here}")


def test_only_floating_point_values_are_turned_round() -> None:
    """By their bits, NaN payloads and signs of zero included; indices stay, or they would point elsewhere."""
    tensors = {
        "x": torch.tensor([[1.0, -0.0], [math.nan, 2.0]]),
        "codes": torch.tensor([0x01, 0xFF], dtype=torch.uint8).view(torch.float8_e4m3fn),
        "one": torch.tensor(3.0),
        "offsets": torch.tensor([0, 2, 5]),
    }
    turned = check.reverse(Inputs(tensors=tensors, params={"factor": 1.0})).tensors
    assert str(turned["x"].tolist()) == "[[2.0, nan], [-0.0, 1.0]]"
    assert turned["codes"].view(torch.uint8).tolist() == [0xFF, 0x01]
    assert turned["one"].item() == 3.0
    assert turned["offsets"].tolist() == [0, 2, 5]


def test_the_interpreter_records_nothing() -> None:
    """Asked all the same, it is unsupported."""
    lane = lanes.present()
    if lane.name != "interpreter":
        pytest.skip("this lane has graphs")
    with pytest.raises(Unsupported, match="lane interpreter has no graphs"):
        lane.capture(variant(), cases.build(CASE, lane.device))


# --- on a card


def _found(fault: Fault | None = None) -> KernelSpec:
    found: FoundSpec = find([CAPTURING])[0]
    return found.spec if fault is None else plant(found, fault)


def _searched(spec: KernelSpec) -> falsify.Search:
    if lanes.family(lanes.present().name) != "cuda":
        pytest.skip("a graph needs a card")
    quiet = settings(derandomize=True, database=None)
    return falsify.search(spec, "graphs", lanes.present(), max_examples=10, base=quiet)


def test_a_right_kernel_passes_on_a_card() -> None:
    """Cases of one element, which show nothing, among others that do."""
    result = _searched(_found())
    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize("fault", SHOWN, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_on_a_card_and_leaves_it_usable(fault: Fault) -> None:
    """Neither a wait nor a broken capture costs the process its device: the right kernel passes after it."""
    result = _searched(_found(fault))
    assert result.outcome is Outcome.FAILED
    assert result.findings is not None
    summary = result.findings.findings[0].summary
    if "keeps" in fault.name:
        assert "its graph, replayed on the values in reverse, gives other bits" in summary
    else:
        assert summary.startswith("no graph can hold this launch: ")
        where = "synchronize" if "waits" in fault.name else "doubled"
        assert f" in {where} (" in summary
    assert _searched(_found()).outcome is Outcome.PASSED
    assert torch.rand(3, device="cuda").isfinite().all()


@pytest.mark.parametrize("fault", SHOWN, ids=lambda fault: fault.name)
@pytest.mark.parametrize("name", ["agreement", "reproducibility"])
def test_no_other_check_sees_it(fault: Fault, name: str) -> None:
    """Launched eagerly, the faulty kernel is right."""
    if "cuda" in fault.new and not lanes.gpus():
        pytest.skip("it calls CUDA")
    spec, lane = _found(fault), lanes.present()
    quiet = settings(derandomize=True, database=None)
    result = falsify.search(spec, name, lane, max_examples=10, base=quiet)
    assert result.outcome is Outcome.PASSED
