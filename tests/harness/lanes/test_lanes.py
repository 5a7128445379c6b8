"""Choosing a lane before triton loads, opening it once, and launching on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness import case as cases
from bitproof.harness import checks, lanes
from bitproof.harness.case import Launch
from bitproof.harness.errors import EnvironmentUnfit, UsageError
from bitproof.harness.lanes.arena import POISONS
from bitproof.harness.lanes.base import Variation
from bitproof.harness.outcomes import Outcome
from bitproof.harness.spec import Params, Tensors
from tests.harness.plain import RowsCase, scaled, variant

VARIABLES = ("BITPROOF_LANE", "TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process without a lane and without triton; what it sets is undone."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "triton")
    return monkeypatch


def _set() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in VARIABLES}


@pytest.mark.parametrize(
    ("gpus", "asked", "inherited", "lane"),
    [
        (0, None, None, "interpreter"),
        (2, None, None, "cuda"),
        (2, "interpreter", None, "interpreter"),
        (2, "interpreter", "cuda", "interpreter"),
        (2, None, "interpreter", "interpreter"),
        (1, "cuda", None, "cuda"),
    ],
)
def test_a_lane_is_chosen_by_option_then_parent_then_machine(
    process: pytest.MonkeyPatch, gpus: int, asked: str | None, inherited: str | None, lane: str
) -> None:
    """And fixed in the environment, for triton and for child processes."""
    process.setattr(lanes, "gpus", lambda: gpus)
    if inherited is not None:
        process.setenv("BITPROOF_LANE", inherited)
    assert lanes.choose(asked) == lane
    interpreting = "1" if lane == "interpreter" else "0"
    assert _set() == dict(zip(VARIABLES, (lane, interpreting, "1"), strict=True))


def test_a_fusion_setting_of_the_callers_is_kept(process: pytest.MonkeyPatch) -> None:
    """Only the default, which differs between tritons, is pinned."""
    process.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    lanes.choose("interpreter")
    assert os.environ["TRITON_DEFAULT_FP_FUSION"] == "0"


@pytest.mark.parametrize(
    ("asked", "kind", "message"),
    [
        ("gpu", UsageError, "unknown lane 'gpu': choose one of cuda, interpreter"),
        (
            "cuda",
            EnvironmentUnfit,
            "no GPU for lane cuda: use --lane interpreter, or run where torch",
        ),
    ],
)
def test_a_lane_that_cannot_be_is_one_sentence(
    process: pytest.MonkeyPatch, asked: str, kind: type[Exception], message: str
) -> None:
    """An unknown name, or cuda without a GPU; nothing is set."""
    process.setattr(lanes, "gpus", lambda: 0)
    with pytest.raises(kind, match=message):
        lanes.choose(asked)
    assert set(_set().values()) == {None}


def test_triton_in_the_other_mode_is_one_sentence(process: pytest.MonkeyPatch) -> None:
    """TRITON_INTERPRET is read when triton is imported: afterwards it is too late."""
    process.setitem(sys.modules, "triton", triton)
    with pytest.raises(
        EnvironmentUnfit, match="set TRITON_INTERPRET=1 before anything imports tri"
    ):
        lanes.choose("interpreter")
    process.setenv("TRITON_INTERPRET", "1")
    assert lanes.choose("interpreter") == "interpreter"


def test_no_triton_at_all_is_one_sentence(process: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    process.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        EnvironmentUnfit, match=r"triton is not installed: pip install 'triton>=3.6'"
    ):
        lanes.choose("interpreter")


def test_no_lane_is_present_before_one_is_chosen(process: pytest.MonkeyPatch) -> None:
    """A library caller is told what to call."""
    with pytest.raises(EnvironmentUnfit, match="no lane was chosen"):
        lanes.present.__wrapped__()


@pytest.mark.parametrize("version", ["3.5.1", "2.0.0+git1234"])
def test_an_unsupported_triton_is_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """With the version that is there and the one that is needed."""
    monkeypatch.setattr(triton, "__version__", version)
    with pytest.raises(EnvironmentUnfit) as caught:
        lanes.present.__wrapped__()
    assert str(caught.value).startswith(f"triton {version} is not supported: pip install 'triton>=")


@pytest.mark.parametrize("version", ["3.6.0", "3.10.1+git1234", "4.0.0"])
def test_a_later_triton_is_supported(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """From 3.6 on."""
    monkeypatch.setattr(triton, "__version__", version)
    assert lanes.present.__wrapped__().name == lanes.present().name


def test_a_run_is_plain_unless_asked() -> None:
    """The first of one, without sanitizer or delay, its fresh memory NaN."""
    assert Variation() == Variation(run=0, runs=1, watched=False, delayed=False)
    assert Variation().poison == 0xFF


def test_flushed_subnormals_are_found_when_the_lane_opens() -> None:
    """Some library's torch.set_flush_denormal(True) would make oracles wrong: one sentence instead."""
    torch.set_flush_denormal(True)
    try:
        with pytest.raises(EnvironmentUnfit, match=r"call torch\.set_flush_denormal\(False\)"):
            lanes.present.__wrapped__()
    finally:
        torch.set_flush_denormal(False)
    assert lanes.present.__wrapped__().name == lanes.present().name


def test_the_present_lane_runs_torch_on_one_thread() -> None:
    """Workers fill the cores, and a case is small."""
    torch.set_num_threads(2)
    lanes.present.__wrapped__()
    assert torch.get_num_threads() == 1


def test_versions_say_what_a_record_needs() -> None:
    """Lane and libraries, as plain strings."""
    versions = lanes.present().versions()
    assert versions["lane"] == lanes.present().name
    assert versions["torch"] == torch.__version__
    assert versions["triton"] == triton.__version__
    assert versions["fp_fusion"] == os.environ["TRITON_DEFAULT_FP_FUSION"]
    assert {type(value) for value in versions.values()} == {str}


@pytest.mark.parametrize("number", range(len(POISONS)))
def test_every_run_gets_its_own_poison_and_layout(number: int) -> None:
    """Inputs are copies laid out as the case asks; fresh memory holds the run's byte."""
    lane = lanes.present()
    seen: dict[str, Any] = {}

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        seen["x"] = tensors["x"]
        seen["fresh"] = torch.empty(7, dtype=torch.uint8, device=tensors["x"].device).tolist()
        return scaled(tensors, params)

    case = RowsCase(rows=2, columns=3, launch=Launch(misalign=1, row_padding=5))
    inputs = cases.build(case, lane.device)
    launched = lane.run(
        variant(run=run, strided=frozenset({"x"})), inputs, Variation(run=number, runs=len(POISONS))
    )
    assert seen["fresh"] == [POISONS[number]] * 7
    assert seen["x"].stride() == (8, 1)
    assert seen["x"].data_ptr() % 16 == 4
    assert seen["x"].data_ptr() != inputs.tensors["x"].data_ptr()
    assert torch.equal(seen["x"], inputs.tensors["x"])
    assert torch.equal(launched.outputs["y"], 2 * inputs.tensors["x"])
    assert launched.inputs["x"].data_ptr() == seen["x"].data_ptr()


@triton.jit
def _accumulate(x, y, count, block: tl.constexpr):
    """y [count] += 2 x [count]."""
    index = tl.program_id(0) * block + tl.arange(0, block)
    inside = index < count
    value = tl.load(y + index, mask=inside) + 2.0 * tl.load(x + index, mask=inside)
    tl.store(y + index, value, mask=inside)


@pytest.mark.parametrize(
    "clear",
    [lambda y: y.zero_(), lambda y: y.data.zero_(), lambda y: y.view(torch.int32).zero_()],
)
def test_memory_that_torch_cleared_is_written(clear: Callable[[torch.Tensor], Any]) -> None:
    """A kernel may read it, also in inference mode, where torch keeps no record of writes."""

    @torch.inference_mode()
    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        x = tensors["x"]
        y = torch.empty_like(x)
        clear(y)
        _accumulate[(1,)](x, y, x.numel(), block=16)
        return {"y": y}

    lane = lanes.present()
    inputs = cases.build(RowsCase(rows=3, columns=4), lane.device)
    for check in ("agreement", "memory", "reproducibility"):
        findings = checks.run(check, variant(run=run), inputs, lane)
        assert findings.outcome is Outcome.PASSED, findings.text


@pytest.mark.parametrize("check", ["agreement", "memory", "reproducibility"])
def test_checks_pass_on_the_present_lane(check: str) -> None:
    """The plain kernel is as right there as it is on the plain lane."""
    lane = lanes.present()
    inputs = cases.build(RowsCase(rows=3, columns=4), lane.device)
    assert checks.run(check, variant(), inputs, lane).outcome is Outcome.PASSED
