"""Contracts of the built-in families hold any number of subjects: right ones pass, wrong ones are refuted."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bitproof.harness import checks
from bitproof.harness.case import build
from bitproof.harness.contract import Contract
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search.falsify import draw_cases
from bitproof.harness.spec import KernelSpec
from bitproof.kernels.delta import contracts as delta
from bitproof.kernels.delta.cases import DeltaCase
from bitproof.kernels.dsrelu import contracts as dsrelu
from bitproof.kernels.fp8_gemm import contracts as fp8_gemm
from bitproof.kernels.quantise import contracts as quantise
from bitproof.oracles import formats
from bitproof.oracles.estimates import Estimate
from bitproof.oracles.modelled import Modelled
from tests.harness.plain import PlainLane

EVERY: tuple[Contract, ...] = (
    *quantise.CASTS.values(),
    quantise.ROUND_E4M3,
    quantise.PER_TENSOR_STATIC,
    quantise.PER_TOKEN_GROUP,
    quantise.UE8M0_GROUP,
    quantise.UE8M0_INPLACE,
    quantise.E2M1_GROUP,
    *quantise.KV_STORES.values(),
    *(dsrelu.BF16, dsrelu.FP8),
    *(delta.KDA, delta.KDA_VJP, delta.KDA_RECURRENT),
    *(delta.GDN2, delta.GDN2_VJP, delta.GDN2_RECURRENT),
    *(fp8_gemm.BLOCK_SCALED_LINEAR, fp8_gemm.POWER_OF_TWO_LINEAR, fp8_gemm.SPLIT_K_LINEAR),
    *(fp8_gemm.ALIGN_TOKENS, fp8_gemm.MOE_PREFILL),
)
Run = Callable[[Mapping[str, Tensor], Mapping[str, Any]], dict[str, Tensor]]


def _exact(contract: Contract) -> Run:
    """A launcher that returns what the oracle says, rounded once to the outputs' types."""

    def run(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
        assert contract.oracle is not None
        types = contract.dtypes(tensors, params) if contract.dtypes else {}
        outputs = {}
        for name, answer in contract.oracle(tensors, params).items():
            value = answer.value if isinstance(answer, (Estimate, Modelled)) else answer
            given = (
                torch.from_numpy(formats.bits(value).copy().view(_SIGNED[value.dtype.itemsize]))
                if value.dtype != np.float64
                else torch.from_numpy(value.copy())
            )
            if value.dtype != np.float64:
                kind = formats.of_dtype(value.dtype).torch_dtype if _is_float(value) else None
                given = given.view(kind) if kind is not None else _plain(given, value.dtype)
            outputs[name] = given.to(types[name]) if name in types else given
        return outputs

    return run


_SIGNED = {1: np.uint8, 2: np.int16, 4: np.int32}


def _is_float(value: Any) -> bool:
    return not np.issubdtype(value.dtype, np.integer)


def _plain(given: Tensor, dtype: Any) -> Tensor:
    return given.view(torch.int8) if dtype == np.int8 else given


def _spoilt(run: Run, output: str) -> Run:
    """The same launcher with one output's numbers moved by half of their size, or their last bit."""

    def spoil(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
        outputs = run(tensors, params)
        y = outputs[output]
        moved = y.float() * 1.5 if y.is_floating_point() else y ^ 1
        return {**outputs, output: moved.to(y.dtype)}

    return spoil


def _outcomes(contract: Contract, run: Run, count: int) -> list[Outcome]:
    """What agreement says of a launcher on the first cases of a contract."""
    spec, lane = KernelSpec(contract=contract, run=run), PlainLane()
    cases: list[Any] = draw_cases(spec, count)
    if isinstance(cases[0], DeltaCase):  # whose oracles take seconds
        cases = [dataclasses.replace(cases[0], lengths=(3, 2), seed=seed) for seed in range(count)]
    return [checks.run("agreement", spec, build(case, lane.device), lane).outcome for case in cases]


@pytest.mark.parametrize("contract", EVERY, ids=lambda contract: contract.name)
def test_a_contract_holds_a_subject_that_is_not_ours(contract: Contract) -> None:
    """One that gives the answers passes, one that is off by half in one output does not."""
    right, count = _exact(contract), 1 if contract.case is DeltaCase else 4
    assert Outcome.FAILED not in _outcomes(contract, right, count)
    output = next(iter(contract.outputs))
    assert Outcome.FAILED in _outcomes(contract, _spoilt(right, output), count)


def _cast(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
    return {"y": tensors["x"].float().clamp(-448, 448).to(torch.float8_e4m3fn)}


def _cast_through_fp16(tensors: Mapping[str, Tensor], params: Any) -> dict[str, Tensor]:
    return {"y": tensors["x"].float().clamp(-448, 448).half().to(torch.float8_e4m3fn)}


def test_casts_of_torch_are_held_to_the_contract() -> None:
    """One that rounds once passes, one that rounds through fp16 first does not."""
    contract = quantise.CASTS["e4m3"]
    assert Outcome.FAILED not in _outcomes(contract, _cast, 60)
    assert Outcome.FAILED in _outcomes(contract, _cast_through_fp16, 60)


def _kda(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
    """Token by token in fp32, as the recurrence is written."""
    q, k, v, g, beta = (tensors[name].float() for name in ("q", "k", "v", "g", "beta"))
    if params["normalise"]:
        q, k = (x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    share = v.shape[1] // q.shape[1]
    q, k = (x.repeat_interleave(share, 1) for x in (q, k))
    scale = params["scale"] or k.shape[-1] ** -0.5
    bounds = tensors["cu_seqlens"].tolist()
    o = torch.zeros_like(v)
    states = torch.zeros(len(bounds) - 1, v.shape[1], k.shape[-1], v.shape[-1])
    if "initial_state" in tensors:
        states += tensors["initial_state"]
    for place, (first, end) in enumerate(itertools.pairwise(bounds)):
        s = states[place]
        for t in range(first, end):
            s = s * g[t].exp()[..., None]
            read = (s * k[t][..., None]).sum(1)
            s = s + k[t][..., None] * ((v[t] - read) * beta[t][:, None])[:, None]
            o[t] = (s * q[t][..., None]).sum(1) * scale
        states[place] = s
    return {"o": o.to(tensors["v"].dtype), "final_state": states}


def _kda_without_the_read(tensors: Mapping[str, Tensor], params: Any) -> dict[str, Tensor]:
    """What a key already holds is not taken out: plain linear attention."""
    return _kda({**tensors, "k": torch.zeros_like(tensors["k"])}, params)


def test_a_recurrence_in_torch_is_held_to_the_contract_of_kda() -> None:
    """The recurrence passes, and without its read it does not."""
    assert Outcome.FAILED not in _outcomes(delta.KDA_RECURRENT, _kda, 4)
    assert Outcome.FAILED in _outcomes(delta.KDA_RECURRENT, _kda_without_the_read, 4)


def _values(scales: Tensor) -> Tensor:
    """Scales in float64: as they are, or e8m0 codes, of which none drawn is a NaN."""
    return scales.double() if scales.dtype != torch.uint8 else 2.0 ** (scales.double() - 127)


def _linear(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
    """Dequantised and multiplied in float64, then rounded."""
    a, b = tensors["a"].double(), tensors["b"].double()
    by_row = _values(tensors["a_scale"]).repeat_interleave(128, 1)[:, : a.shape[1]]
    by_block = _values(tensors["b_scale"]).repeat_interleave(128, 0)[: len(b)]
    y = (a * by_row) @ (b * by_block.repeat_interleave(128, 1)[:, : b.shape[1]]).t()
    out = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[params["out"]]
    return {"y": y.float().to(out)}


def _linear_with_the_first_scale(tensors: Mapping[str, Tensor], params: Any) -> dict[str, Tensor]:
    """One scale for all of K: that of the first block."""
    first = tensors["a_scale"][:, :1].expand_as(tensors["a_scale"])
    return _linear({**tensors, "a_scale": first}, params)


def test_products_in_torch_are_held_to_the_contracts_of_linears() -> None:
    """One that multiplies what the codes stand for passes, one with a scale of the wrong block does not."""
    for contract in (fp8_gemm.BLOCK_SCALED_LINEAR, fp8_gemm.POWER_OF_TWO_LINEAR):
        assert Outcome.FAILED not in _outcomes(contract, _linear, 40)
        assert Outcome.FAILED in _outcomes(contract, _linear_with_the_first_scale, 40)


def _every_public_contract() -> Iterator[Contract]:
    for module in (quantise, dsrelu, delta, fp8_gemm):
        for value in vars(module).values():
            many = value.values() if isinstance(value, dict) else (value,)
            yield from (one for one in many if isinstance(one, Contract))


def test_every_exported_contract_is_held_here() -> None:
    """None is left out of the table above."""
    assert {c.name for c in _every_public_contract()} == {c.name for c in EVERY}
