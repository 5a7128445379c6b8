"""The delta-rule kernels on small inputs that broke others, and what their precision policies are worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from harness import checks, lanes
from harness.case import Inputs, build
from harness.discovery import find
from harness.faults import plant
from harness.lanes.base import Variation, parameters
from harness.norms import relative_error
from harness.outcomes import Findings, Outcome
from harness.spec import KernelSpec, Params, Tensors
from harness.strategies.floats import pattern
from harness.strategies.gates import Gates
from kernels import delta_backward, delta_chunk
from kernels.delta import (
    GDN2_CHUNK,
    GDN2_CHUNK_VJP,
    GDN2_RECURRENT,
    KDA_CHUNK,
    KDA_CHUNK_VJP,
    KDA_RECURRENT,
)
from kernels.delta_cases import GARBAGE, LIMIT, DeltaCase
from kernels.delta_contract import of_case

FORWARD = (GDN2_CHUNK, KDA_CHUNK)
BACKWARD = (GDN2_CHUNK_VJP, KDA_CHUNK_VJP)
TOKEN_BY_TOKEN = (GDN2_RECURRENT, KDA_RECURRENT)
EVERY = (*FORWARD, *BACKWARD, *TOKEN_BY_TOKEN)
REPORTED = Gates(gate="bounded", kind="gentle", seed=1)


def case_of(spec: KernelSpec, **fields: Any) -> DeltaCase:
    """A case that the spec takes."""
    named = {
        "kind": spec.name.partition("_")[0],
        "gradient": spec in BACKWARD,
        "precision": "fp32" if spec in TOKEN_BY_TOKEN else "upstream",
        "seed": 5,
    }
    return DeltaCase(**{**named, **fields})


def judged(spec: KernelSpec, check: str, case: DeltaCase) -> Findings:
    """What a check says of a case on the present lane."""
    lane = lanes.present()
    return checks.run(check, spec, build(case, lane.device), lane)


def holds(specs: Iterable[KernelSpec], *named: str, **fields: Any) -> None:
    """The named checks pass on such a case of each spec."""
    for spec in specs:
        for check in named:
            found = judged(spec, check, case_of(spec, **fields))
            assert found.outcome is Outcome.PASSED, f"{spec.name}: {check}: {found.text}"


def ran(spec: KernelSpec, case: DeltaCase) -> tuple[Inputs, dict[str, torch.Tensor]]:
    """A case's inputs and outputs."""
    lane = lanes.present()
    inputs = build(case, lane.device)
    outputs = lane.run(spec, inputs, Variation()).outputs
    return inputs, {name: tensor.cpu() for name, tensor in outputs.items()}


def error(spec: KernelSpec, case: DeltaCase) -> float:
    """The relative root mean square error of o."""
    inputs, outputs = ran(spec, case)
    exact = spec.oracle(inputs.tensors, parameters(inputs))["o"].value
    return relative_error(outputs["o"].double().numpy(), exact)


def applied(spec: KernelSpec, case: DeltaCase, name: str) -> None:
    """The invariance applies to the case, and every invariance that does holds."""
    found = judged(spec, "invariances", case)
    assert found.outcome is Outcome.PASSED, found.text
    assert found.counts[f"{name} applied"] == 1


def planted(kernel: str, name: str) -> KernelSpec:
    """The kernel with one of its faults."""
    (found,) = find(["kernels.delta"], [kernel])
    (fault,) = (fault for fault in found.spec.faults if fault.name == name)
    return plant(found, fault)


def test_two_packed_sequences_are_two_runs() -> None:
    """40 and 50 tokens with initial states in one chunk's room: each alone gives the same bits."""
    holds(EVERY, "agreement", lengths=(40, 50), initial=True)
    for spec in (KDA_CHUNK, GDN2_RECURRENT):
        case = case_of(spec, lengths=(40, 50), initial=True)
        applied(spec, case, "one sequence alone")


@pytest.mark.parametrize("lengths", [(1,), (21,)], ids=str)
def test_nothing_but_decays_of_a_state_is_left(lengths: tuple[int, ...]) -> None:
    """The same decay in every channel, by constants whose power of e rounds to bf16 with little error."""
    for decay in (-0.5, -0.6931472, -1.3862944, -2.818, -14.568, -53.412, -60.083, -61.188):
        gates = Gates(kind="steps", bits=(pattern(decay),))
        specs = (KDA_CHUNK, KDA_RECURRENT)
        holds(specs, "agreement", lengths=lengths, gates=gates, erase="zero", initial=True)


def test_a_sequence_in_two_runs_is_one_run() -> None:
    """The first call's final state begins the second: after any token, or after a whole chunk."""
    for spec, lengths in ((GDN2_RECURRENT, (40, 50)), (GDN2_CHUNK, (40, 90))):
        case = case_of(spec, lengths=lengths, initial=True)
        applied(spec, case, "a sequence in two runs")


def test_callers_may_leave_the_launch_to_us() -> None:
    """With what was measured to be fastest, forward and backward agree with the oracle as well."""

    def forward(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        o, final, _ = delta_chunk.forward(*of_case(tensors, params), None)
        return {"o": o, "final_state": final}

    def backward(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        x, options = of_case(tensors, params)
        return delta_backward.backward(x, options, None, tensors["do"], tensors["dht"])

    for specs, run in ((FORWARD, forward), (BACKWARD, backward)):
        for spec in specs:
            case = case_of(spec, lengths=(37, 28), groups=2, gates=REPORTED, initial=True)
            found = judged(dataclasses.replace(spec, run=run), "agreement", case)
            assert found.outcome is Outcome.PASSED, f"{spec.name}: {found.text}"


def test_the_gradient_of_l_is_there_for_fp32_operands() -> None:
    """Two tokens and two blocks of values: on a card ptxas 12.9 stored zeros for it."""
    small: dict[str, Any] = {
        "lengths": (2,),
        "keys": 32,
        "values": 64,
        "dtype": "fp32",
        "gates": REPORTED,
        "initial": True,
        "normalise": False,
    }
    holds(BACKWARD, "agreement", **small)
    wrong = planted("gdn2_chunk_vjp", "stores zeros for the gradient of L")
    found = judged(wrong, "agreement", case_of(GDN2_CHUNK_VJP, **small))
    assert found.outcome is Outcome.FAILED


@pytest.mark.parametrize("lengths", [(128, 0, 128), (0, 5), (5, 0), (0, 0, 0)], ids=str)
def test_empty_sequences_hand_their_state_on(lengths: tuple[int, ...]) -> None:
    """Nobody else notices them, forward and backward, and where there is nothing but empty ones."""
    small = sum(lengths) < 64
    holds(EVERY if small else (*FORWARD, KDA_CHUNK_VJP), "agreement", lengths=lengths, initial=True)
    for spec in EVERY if small else (KDA_CHUNK,):
        inputs, outputs = ran(spec, case_of(spec, lengths=lengths, initial=True))
        handed, name = (
            ("dht", "d_initial_state") if spec in BACKWARD else ("initial_state", "final_state")
        )
        for n, length in enumerate(lengths):
            if length == 0:
                assert torch.equal(outputs[name][n], inputs.tensors[handed][n].cpu())


@pytest.mark.parametrize("length", [63, 65, 75, 79, 500])
def test_the_final_state_is_right_next_to_a_chunks_edge(length: int) -> None:
    """Chunks that lack one token, or have from one to fifteen more than a whole number."""
    specs = FORWARD[:1] if length > 128 else FORWARD
    gates = Gates(gate="plain", seed=2)
    holds(specs, "agreement", lengths=(length,), initial=True, precision="targeted", gates=gates)


def test_the_final_state_is_judged_apart_from_the_output() -> None:
    """A decay that goes on past a sequence's end leaves o right, and is found all the same."""
    spec = planted("gdn2_chunk", "decays past a sequence's end")
    case = case_of(spec, lengths=(65,), gates=Gates(gate="plain", seed=2))
    findings = judged(spec, "agreement", case)
    assert findings.outcome is Outcome.FAILED
    assert {finding.output for finding in findings.findings} == {"final_state"}


def test_a_dropped_third_chunk_is_seen() -> None:
    """It has one token of 129."""
    spec = planted("kda_chunk", "drops the third chunk")
    assert judged(spec, "agreement", case_of(spec, lengths=(129,))).outcome is Outcome.FAILED


def test_an_anchor_ahead_is_seen() -> None:
    """Decays counted from a block's middle row are right, but for last bits that later tokens decide."""
    fields: dict[str, Any] = {"lengths": (22,), "gates": Gates(gate="bounded"), "seed": 3}
    spec = planted("gdn2_chunk", "anchors a block of 16 at its middle row")
    assert judged(spec, "agreement", case_of(spec, **fields)).outcome is Outcome.PASSED
    found = judged(spec, "invariances", case_of(spec, **fields))
    assert found.outcome is Outcome.FAILED
    assert any("the future cut off" in finding.summary for finding in found.findings)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_slack_rows_are_zero_and_reach_no_product(garbage: str) -> None:
    """72 rows with offsets 0, 40, 70: whatever the last two hold."""
    fields = {"lengths": (40, 30), "slack": 2, "garbage": garbage, "initial": True}
    holds(EVERY, "agreement", **fields)
    holds((GDN2_CHUNK, KDA_CHUNK_VJP), "memory", **fields)
    _, outputs = ran(KDA_CHUNK_VJP, case_of(KDA_CHUNK_VJP, **fields))
    for name in ("dq", "dk", "dv", "dg", "dbeta"):
        assert not outputs[name][70:].any()


@pytest.mark.parametrize("decay", [-5.914, -5.916])
def test_a_constant_deep_decay_is_finite(decay: float) -> None:
    """Fifteen steps of it are where exponentials that are anchored nowhere overflow."""
    gates = Gates(kind="steps", bits=(pattern(decay),))
    holds((*FORWARD, *BACKWARD), "agreement", lengths=(16,), gates=gates, precision="fp32")


def test_a_finite_forward_pass_has_finite_gradients() -> None:
    """Log-decays of 0, -60 and -120 in one chunk, whose differences no fp32 exponential holds."""
    gates = Gates(kind="steps", bits=(pattern(0.0), pattern(-60.0), pattern(-120.0)))
    fields: dict[str, Any] = {"lengths": (9,), "gates": gates, "initial": True}
    holds(FORWARD, "agreement", **fields)
    for spec in BACKWARD:
        _, outputs = ran(spec, case_of(spec, **fields))
        assert all(bool(tensor.isfinite().all()) for tensor in outputs.values())


@pytest.mark.parametrize("lengths", [(37, 28), (65,), (129,)], ids=str)
def test_the_geometries_of_the_kda_report(lengths: tuple[int, ...]) -> None:
    """Two sequences inside of a chunk, one token past a chunk, one past two, forward and backward."""
    fields = {"lengths": lengths, "heads": 2, "keys": 24, "precision": "fp32"}
    holds((KDA_CHUNK, KDA_CHUNK_VJP), "agreement", **fields)


def test_every_gradient_is_there() -> None:
    """Each token, sequence or head of KDA's gradients has one that is not zero."""
    case = case_of(KDA_CHUNK_VJP, lengths=(37, 28), gates=REPORTED, initial=True)
    _, outputs = ran(KDA_CHUNK_VJP, case)
    assert outputs.keys() == KDA_CHUNK_VJP.bounds.keys()
    for name, tensor in outputs.items():
        assert tensor.reshape(len(tensor), -1).any(-1).all(), name


@pytest.mark.parametrize("operands", ["normal", "correlated"])
def test_fp32_storage_is_worth_a_tenth_of_the_error(operands: str) -> None:
    """Of KDA's relative error in bf16, where the output's own rounding remains."""
    case = case_of(KDA_CHUNK, lengths=(65,), keys=64, values=64, gates=REPORTED, operands=operands)
    promoted = dataclasses.replace(case, precision="fp32")
    assert error(KDA_CHUNK, promoted) < 0.9 * error(KDA_CHUNK, case)


@pytest.mark.parametrize("spec", FORWARD, ids=lambda spec: spec.name)
def test_the_targeted_policy_meets_the_limit_that_upstream_misses(spec: KernelSpec) -> None:
    """0.8 % on the report's correlated operands: so no policy is always on, or never."""
    case = case_of(spec, lengths=(65,), keys=64, values=64, gates=REPORTED, operands="correlated")
    targeted = dataclasses.replace(case, precision="targeted")
    assert targeted.limited
    assert error(spec, targeted) < LIMIT < error(spec, case)
    assert judged(spec, "agreement", targeted).outcome is Outcome.PASSED


@pytest.mark.parametrize("precision", ["upstream", "targeted", "fp32"])
def test_no_policy_changes_a_public_type(precision: str) -> None:
    """o and the gradients have their operands' types, states fp32."""
    for spec in (*FORWARD, *BACKWARD):
        inputs, outputs = ran(spec, case_of(spec, lengths=(3,), precision=precision))
        for name, tensor in outputs.items():
            source = {"o": "v", "dq": "q", "dk": "k", "dv": "v", "dg": "g", "db": "b"}.get(
                name, name[1:]
            )
            fp32 = name in ("final_state", "d_initial_state", "dA_log", "ddt_bias")
            assert tensor.dtype == (torch.float32 if fp32 else inputs.tensors[source].dtype), name


@pytest.mark.parametrize("spec", FORWARD, ids=lambda spec: spec.name)
def test_an_fp32_callers_output_has_more_digits(spec: KernelSpec) -> None:
    """It is not rounded to bf16 and widened again."""
    _, outputs = ran(spec, case_of(spec, lengths=(65,), dtype="fp32"))
    assert not torch.equal(outputs["o"], outputs["o"].bfloat16().float())


def test_what_is_kept_in_fp32_has_more_digits() -> None:
    """Under the fp32 policy no intermediate that the backward pass reads is rounded to bf16 on its way."""
    case = case_of(KDA_CHUNK_VJP, lengths=(65,), initial=True, precision="fp32")
    kept: list[delta_chunk.Saved] = []

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        x, options = of_case(tensors, params)
        o, final, saved = delta_chunk.forward(x, options, params["launch"], retain=True)
        assert saved is not None
        kept.append(saved)
        return {"o": o, "final_state": final}

    ran(dataclasses.replace(KDA_CHUNK, run=run), case)
    for field in dataclasses.fields(kept[0]):
        tensor = getattr(kept[0], field.name)[0]
        assert tensor.dtype == torch.float32
        assert not torch.equal(tensor, tensor.bfloat16().float()), field.name
