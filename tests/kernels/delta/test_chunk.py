"""The delta-rule kernels on small inputs that broke others, and what callers may count on."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from bitproof.harness.case import Inputs
from bitproof.harness.outcomes import Outcome
from bitproof.harness.spec import KernelSpec, Params, Tensors
from bitproof.harness.strategies.floats import pattern
from bitproof.harness.strategies.gates import Gate, Gates
from bitproof.kernels.delta import chunk_bwd, chunk_fwd
from bitproof.kernels.delta.arguments import of_case
from bitproof.kernels.delta.cases import GARBAGE
from bitproof.kernels.delta.packing import TOKENS, repack
from tests.kernels.delta.judging import (
    BACKWARD,
    EVERY,
    FORWARD,
    GDN2_CHUNK,
    GDN2_CHUNK_VJP,
    GDN2_RECURRENT,
    KDA_CHUNK,
    KDA_CHUNK_VJP,
    KDA_RECURRENT,
    REPORTED,
    TOKEN_BY_TOKEN,
    applied,
    case_of,
    errors,
    holds,
    judged,
    outputs_of,
    planted,
    ran,
)


@pytest.mark.slow
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


def test_a_gradient_that_cancels_in_one_channel_may_slip() -> None:
    """The first of two tokens' dg, which is zero, hangs on the one channel whose gate is not saturated."""
    gates = Gates(gate="bounded", kind="gentle", seed=1)
    fields: dict[str, Any] = {"lengths": (2,), "heads": 2, "keys": 32, "values": 24, "seed": 1}
    holds(BACKWARD, "agreement", **fields, gates=gates)


def test_no_contract_limits_a_gradient_whose_terms_cancel() -> None:
    """dg of gentle gates hangs on one of 16 channels: 7 % of it are fp16's roundings."""
    gates = Gates(gate="bounded", kind="gentle", seed=806)
    fields: dict[str, Any] = {"lengths": (65,), "dtype": "fp16", "precision": "fp32"}
    fields |= {"state_v_first": True, "seed": 0}
    case = case_of(KDA_CHUNK_VJP, **fields, gates=gates, scale=pattern(-0.3))
    assert case.limits
    assert errors(KDA_CHUNK_VJP, case)["dg"] > 0.02
    assert judged(KDA_CHUNK_VJP, "agreement", case).outcome is Outcome.PASSED


def test_a_sequence_in_two_runs_is_one_run() -> None:
    """The first call's final state begins the second: after any token, or after a whole chunk."""
    for spec, lengths in ((GDN2_RECURRENT, (40, 50)), (GDN2_CHUNK, (40, 90))):
        case = case_of(spec, lengths=lengths, initial=True)
        applied(spec, case, "a sequence in two runs")


def test_a_sequence_in_two_calls_has_the_gradients_of_one() -> None:
    """The second call's gradient of its initial state is the first one's of its final state, bit for bit."""
    case = case_of(
        KDA_CHUNK_VJP, lengths=(100,), initial=True, gates=Gates(gate="plain", kind="gentle")
    )
    inputs, whole = ran(KDA_CHUNK_VJP, case)
    tensors = inputs.tensors

    def call(first: int, last: int, **states: torch.Tensor) -> Inputs:
        rows = torch.arange(first, last, device=tensors["q"].device)
        return repack(inputs, [(0, rows)]).replace(**states)

    first = call(0, 64)
    state = outputs_of(KDA_CHUNK, first)["final_state"].to(tensors["dht"].device)
    rest = outputs_of(KDA_CHUNK_VJP, call(64, 100, initial_state=state))
    handed = rest["d_initial_state"].to(tensors["dht"].device)
    begun = outputs_of(KDA_CHUNK_VJP, call(0, 64, dht=handed))
    assert torch.equal(begun["d_initial_state"], whole["d_initial_state"])
    for name in ("dq", "dk", "dv", "dg", "dbeta"):
        assert torch.equal(torch.cat([begun[name], rest[name]]), whole[name]), name


def test_callers_may_leave_the_launch_to_us() -> None:
    """With what was measured to be fastest, forward and backward agree with the oracle as well."""

    def forward(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        o, final, _ = chunk_fwd.forward(*of_case(tensors, params), None)
        return {"o": o, "final_state": final}

    def backward(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        x, options = of_case(tensors, params)
        return chunk_bwd.backward(x, options, None, tensors["do"], tensors["dht"])

    for specs, run in ((FORWARD, forward), (BACKWARD, backward)):
        for spec in specs:
            case = case_of(spec, lengths=(37, 28), groups=2, gates=REPORTED, initial=True)
            found = judged(dataclasses.replace(spec, run=run), "agreement", case)
            assert found.outcome is Outcome.PASSED, f"{spec.name}: {found.text}"


def test_the_gradient_of_l_is_there_for_fp32_operands() -> None:
    """Two tokens and two blocks of values, where ptxas 12.9 stores zeros if the mask compares integers."""
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


def test_an_infinite_rate_meets_no_zero() -> None:
    """Raw gates of zero times e^90, and derivatives of saturated ones, which are zero: neither is NaN."""
    gates = Gates(gate="bounded", kind="edges", rate="extreme", biased=False)
    fields: dict[str, Any] = {"lengths": (20,), "heads": 2, "initial": True}
    for spec in (*FORWARD, *TOKEN_BY_TOKEN):
        inputs, _ = ran(spec, case_of(spec, **fields, gates=gates))
        assert bool((inputs.tensors["g"] == 0).any())
        holds((spec,), "agreement", **fields, gates=gates)
    holds(BACKWARD, "agreement", **fields, gates=dataclasses.replace(gates, biased=True))


@pytest.mark.parametrize("gate", [pytest.param("plain", marks=pytest.mark.slow), "bounded"])
def test_a_raw_gate_may_lack_its_bias(gate: Gate) -> None:
    """As one of zero: agreement, and every relation that applies."""
    fields: dict[str, Any] = {"lengths": (20, 7), "gates": Gates(gate=gate, biased=False)}
    holds(EVERY, "agreement", "invariances", **fields)


def test_more_sequences_than_a_small_table_holds() -> None:
    """Seventeen, some of them empty, forward and backward."""
    holds(
        EVERY, "agreement", lengths=(1, 2, 0, 3, 1) * 3 + (0, 4), initial=True, keys=24, values=24
    )


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


@pytest.mark.parametrize("heads", [1, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("gates", [REPORTED, Gates()], ids=lambda gates: gates.gate)
def test_the_width_of_the_kda_report(gates: Gates, heads: int) -> None:
    """65 tokens of heads with 128 keys and values fit a card and are right; 64 take minutes on a CPU."""
    fields = {"lengths": (65,), "heads": heads, "keys": 128, "values": 128, "gates": gates}
    holds((KDA_CHUNK, KDA_CHUNK_VJP), "agreement", precision="fp32", **fields)


def test_a_caller_may_promise_shallow_log_decays() -> None:
    """With `bounded`, log-decays of at least -5 take the products that bounded gates take."""

    def promised(tensors: Tensors, params: Params) -> tuple[Any, Any]:
        x, options = of_case(tensors, params)
        return x, dataclasses.replace(options, bounded=True)

    def forward(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        o, final, _ = chunk_fwd.forward(*promised(tensors, params), params["launch"])
        return {"o": o, "final_state": final}

    def backward(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        x, options = promised(tensors, params)
        given = (params["launch"], tensors["do"], tensors["dht"])
        return chunk_bwd.backward(x, options, *given)

    for specs, run in ((FORWARD, forward), (BACKWARD, backward)):
        for spec in specs:
            for kind in ("usual", "saturated"):
                case = case_of(spec, lengths=(70,), initial=True, gates=Gates(kind=kind))
                found = judged(dataclasses.replace(spec, run=run), "agreement", case)
                assert found.outcome is Outcome.PASSED, f"{spec.name}: {found.text}"


@pytest.mark.parametrize("spec", EVERY, ids=lambda spec: spec.name)
def test_other_tokens_to_come_change_no_bit(spec: KernelSpec) -> None:
    """The 22nd of 22 tokens is another one: outputs of the 21, or gradients by them, are the same bits."""
    wide = {"heads": 4, "keys": 128, "values": 128} if spec in FORWARD else {"heads": 2, "keys": 32}
    inputs, _ = ran(spec, case_of(spec, lengths=(22,), **wide, gates=Gates(gate="bounded")))
    if spec in BACKWARD:
        do = inputs.tensors["do"].clone()
        do[21:] = 0
        inputs = inputs.replace(do=do, dht=torch.zeros_like(inputs.tensors["dht"]))
    of_tokens = sorted(set(TOKENS) & set(inputs.tensors) - {"do"})
    edited = {name: inputs.tensors[name].clone() for name in of_tokens}
    for tensor in edited.values():
        tensor[21] = tensor[3]
    one, other = (outputs_of(spec, given) for given in (inputs, inputs.replace(**edited)))
    names = ("o",) if spec not in BACKWARD else tuple(f"d{name}" for name in edited)
    for name in names:
        assert torch.equal(one[name][:21] + 0.0, other[name][:21] + 0.0), name
    if spec not in BACKWARD:
        assert not torch.equal(one["final_state"], other["final_state"])


@pytest.mark.parametrize("spec", BACKWARD, ids=lambda spec: spec.name)
@pytest.mark.parametrize("keys", [1, 2])
def test_what_normalising_takes_out_of_a_gradient_is_no_error(spec: KernelSpec, keys: int) -> None:
    """With one channel all of it: dq and dk are what fp32 loses of magnitudes that cancel."""
    for seed in (0, 1, 5):
        case = case_of(spec, lengths=(2,), keys=keys, values=1, initial=True, seed=seed)
        found = judged(spec, "agreement", case)
        assert found.outcome is Outcome.PASSED, found.text


def test_every_gradient_is_there() -> None:
    """Each token, sequence or head of KDA's gradients has one that is not zero."""
    case = case_of(KDA_CHUNK_VJP, lengths=(37, 28), gates=REPORTED, initial=True)
    _, outputs = ran(KDA_CHUNK_VJP, case)
    assert outputs.keys() == KDA_CHUNK_VJP.bounds.keys()
    for name, tensor in outputs.items():
        assert tensor.reshape(len(tensor), -1).any(-1).all(), name
