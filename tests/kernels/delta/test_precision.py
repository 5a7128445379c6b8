"""What the delta rule's precision policies are worth, and the errors that contracts allow."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from bitproof.harness.bounds.norms import relative_error
from bitproof.harness.lanes.base import parameters
from bitproof.harness.outcomes import Outcome
from bitproof.harness.spec import KernelSpec, Params, Tensors
from bitproof.kernels.delta import chunk_fwd
from bitproof.kernels.delta.arguments import of_case
from bitproof.kernels.delta.cases import LIMIT
from bitproof.kernels.delta.packing import repack
from tests.kernels.delta.judging import (
    BACKWARD,
    FORWARD,
    KDA_CHUNK,
    KDA_CHUNK_VJP,
    REPORTED,
    case_of,
    error,
    errors,
    judged,
    outputs_of,
    planted,
    ran,
)


@pytest.mark.parametrize("operands", ["normal", "correlated"])
def test_fp32_storage_is_worth_a_tenth_of_the_error(operands: str) -> None:
    """Of KDA's relative error in bf16, where the output's own rounding remains."""
    case = case_of(KDA_CHUNK, lengths=(65,), keys=64, values=64, gates=REPORTED, operands=operands)
    promoted = dataclasses.replace(case, precision="fp32")
    assert error(KDA_CHUNK, promoted) < 0.9 * error(KDA_CHUNK, case)


@pytest.mark.parametrize("lengths", [(37, 28), (65,), (129,)], ids=str)
@pytest.mark.parametrize("precision", ["upstream", "fp32"])
def test_every_gradient_is_within_two_percent(precision: str, lengths: tuple[int, ...]) -> None:
    """Of KDA's report: none of the five is zero, or farther than that from the adjoint."""
    case = case_of(
        KDA_CHUNK_VJP, lengths=lengths, heads=2, keys=32, gates=REPORTED, precision=precision
    )
    found = errors(KDA_CHUNK_VJP, case)
    for name in ("dq", "dk", "dv", "dg", "dbeta"):
        assert 0 < found[name] < 0.02, name


@pytest.mark.parametrize("spec", [*FORWARD, *BACKWARD], ids=lambda spec: spec.name)
def test_upstream_s_tolerances_are_met_with_room(spec: KernelSpec) -> None:
    """Those of flash-linear-attention's tests, in the type that rounds most of those it tests, by half."""
    case = case_of(spec, lengths=(70, 30), keys=32, dtype="fp16", initial=True)
    found = errors(spec, case)
    limits = {name: limit for name, limit in case.limits.items() if name in found}
    assert limits.keys() == found.keys() - {"dg", "dA_log", "ddt_bias"}
    if spec in BACKWARD:
        limits["dg"] = 0.02
    assert {name for name, limit in limits.items() if found[name] > limit / 2} == set()


def test_a_sequence_cut_anywhere_is_one_run_within_tolerance() -> None:
    """After 40 of 90 tokens, where chunks begin elsewhere than in one run: not its bits, but its values."""
    case = case_of(KDA_CHUNK, lengths=(90,), keys=32, dtype="fp16")
    inputs, whole = ran(KDA_CHUNK, case)
    state, parts = None, []
    for first, last in ((0, 40), (40, 90)):
        rows = torch.arange(first, last, device=inputs.tensors["q"].device)
        call = repack(inputs, [(0, rows)])
        if state is not None:
            call = call.replace(initial_state=state)
        found = outputs_of(KDA_CHUNK, call)
        state = found["final_state"].to(rows.device)
        parts.append(found["o"])
    assert not torch.equal(torch.cat(parts), whole["o"])
    exact = KDA_CHUNK.oracle(inputs.tensors, parameters(inputs))
    for name, got in (("o", torch.cat(parts)), ("final_state", found["final_state"])):
        assert relative_error(got.double().numpy(), exact[name].value) < case.limits[name]


@pytest.mark.parametrize("spec", FORWARD, ids=lambda spec: spec.name)
def test_the_targeted_policy_meets_the_limit_that_upstream_misses(spec: KernelSpec) -> None:
    """0.8 % on the report's correlated operands: so no policy is always on, or never."""
    case = case_of(spec, lengths=(65,), keys=64, values=64, gates=REPORTED, operands="correlated")
    targeted = dataclasses.replace(case, precision="targeted")
    assert targeted.limits == {"o": LIMIT}
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
    kept: list[chunk_fwd.Saved] = []

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        x, options = of_case(tensors, params)
        o, final, saved = chunk_fwd.forward(x, options, params["launch"], retain=True)
        assert saved is not None
        kept.append(saved)
        return {"o": o, "final_state": final}

    ran(dataclasses.replace(KDA_CHUNK, run=run), case)
    for field in dataclasses.fields(kept[0]):
        tensor = getattr(kept[0], field.name)[0]
        assert tensor.dtype == torch.float32
        assert not torch.equal(tensor, tensor.bfloat16().float()), field.name


def test_a_promotion_of_the_forward_pass_alone_is_seen() -> None:
    """Intermediates that the backward pass computes again are those that were retained, bit for bit."""
    spec = planted("gdn2_chunk_vjp", "promotes the forward pass alone")
    case = case_of(spec, kind="gdn2", gradient=True, lengths=(20,), precision="fp32")
    found = judged(spec, "invariances", case)
    assert found.outcome is Outcome.FAILED
    assert any("intermediates computed again" in finding.summary for finding in found.findings)
