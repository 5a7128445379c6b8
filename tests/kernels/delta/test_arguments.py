"""What the delta-rule kernels refuse, with which sentence; and that no policy changes a public type."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from bitproof.harness.case import build
from bitproof.kernels.delta import chunk_bwd, specs
from bitproof.kernels.delta.arguments import Operands, Options, of_case, require_assembler
from bitproof.kernels.delta.cases import DeltaCase
from bitproof.oracles.precision import NAMED, Precision

CPU = torch.device("cpu")
CASE = DeltaCase(lengths=(3, 2), slack=1, heads=2, groups=2, keys=16, values=8, initial=True)
SCALAR = dataclasses.replace(CASE, kind="kda")
RAW = dataclasses.replace(CASE, gates=dataclasses.replace(CASE.gates, gate="bounded"))


def accept(case: DeltaCase, changed: dict[str, Any]) -> None:
    """Check the case's tensors with some in another form, or absent where that is None."""
    tensors = {**case.tensors(CPU), **changed}
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    of_case(given, case.params())


def zeros(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Zeros of a shape, in bf16 unless told otherwise."""
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize("case", [CASE, SCALAR, RAW], ids=["gdn2", "kda", "raw gates"])
def test_what_the_contract_describes_is_accepted(case: DeltaCase) -> None:
    """The cases that the refusals below begin with, and gates in another type than q."""
    accept(case, {})
    accept(case, {"g": case.tensors(CPU)["g"].to(torch.float16)})


F32 = torch.float32
REFUSED: dict[str, tuple[DeltaCase, dict[str, Any], str]] = {
    "beta and b": (SCALAR, {"b": zeros(6, 4, 16)}, "give either b and w, or beta in place of both"),
    "beta and w": (SCALAR, {"w": zeros(6, 4, 8)}, "give either b and w, or beta in place of both"),
    "no w": (CASE, {"w": None}, "give either b and w, or beta in place of both"),
    "no gate": (CASE, {"b": None, "w": None}, "give either b and w, or beta in place of both"),
    "no A_log": (
        dataclasses.replace(CASE, gates=dataclasses.replace(CASE.gates, gate="plain")),
        {"A_log": None},
        "a plain gate needs A_log; only a bounded one may lack it",
    ),
    "a batch axis": (
        CASE,
        {"q": zeros(1, 6, 2, 16)},
        "q and v must be [T, heads, width], packed by cu_seqlens",
    ),
    "no head axis": (CASE, {"v": zeros(6, 8)}, "q and v must be [T, heads, width], packed by"),
    "q in float64": (
        CASE,
        {"q": zeros(6, 2, 16, dtype=torch.float64)},
        "q must be bf16, fp16 or fp32, it is torch.float64",
    ),
    "no head": (
        CASE,
        {"q": zeros(6, 0, 16)},
        "the 4 value heads must be a multiple of q's 0 heads",
    ),
    "heads that share nothing": (
        CASE,
        {"q": zeros(6, 3, 16)},
        "the 4 value heads must be a multiple of q's 3 heads",
    ),
    "wide keys": (CASE, {"q": zeros(6, 2, 257)}, "K and V must be from 1 to 256, they are 257, 8"),
    "no values": (CASE, {"v": zeros(6, 4, 0)}, "K and V must be from 1 to 256, they are 16, 0"),
    "k of other heads": (
        CASE,
        {"k": zeros(6, 4, 16)},
        "k must have shape (6, 2, 16), it has (6, 4, 16)",
    ),
    "k in another type": (
        CASE,
        {"k": zeros(6, 2, 16, dtype=torch.float16)},
        "k must be torch.bfloat16, it is torch.float16",
    ),
    "v of other tokens": (
        CASE,
        {"v": zeros(5, 4, 8)},
        "v must have shape (6, 4, 8), it has (5, 4, 8)",
    ),
    "v in another type": (
        CASE,
        {"v": zeros(6, 4, 8, dtype=F32)},
        "v must be torch.bfloat16, it is torch.float32",
    ),
    "g for q's heads": (
        CASE,
        {"g": zeros(6, 2, 16)},
        "g must have shape (6, 4, 16), it has (6, 2, 16)",
    ),
    "g in integers": (
        CASE,
        {"g": zeros(6, 4, 16, dtype=torch.int32)},
        "g must be bf16, fp16 or fp32, it is torch.int32",
    ),
    "b as wide as values": (
        CASE,
        {"b": zeros(6, 4, 8)},
        "b must have shape (6, 4, 16), it has (6, 4, 8)",
    ),
    "b for each head": (CASE, {"b": zeros(6, 4)}, "b must have shape (6, 4, 16), it has (6, 4)"),
    "b and w for each head": (
        CASE,
        {"b": zeros(6, 4), "w": zeros(6, 4)},
        "b must have shape (6, 4, 16), it has (6, 4)",
    ),
    "w for each head": (CASE, {"w": zeros(6, 4)}, "w must have shape (6, 4, 8), it has (6, 4)"),
    "beta for q's heads": (
        SCALAR,
        {"beta": zeros(6, 2)},
        "beta must have shape (6, 4), it has (6, 2)",
    ),
    "no boundary": (
        CASE,
        {"cu_seqlens": zeros(1, dtype=torch.int32)},
        "cu_seqlens must be [N + 1] for N sequences, N at least 1",
    ),
    "boundaries in int64": (
        CASE,
        {"cu_seqlens": zeros(3, dtype=torch.int64)},
        "cu_seqlens must be torch.int32, it is torch.int64",
    ),
    "a state for each token": (
        CASE,
        {"initial_state": zeros(6, 4, 16, 8, dtype=F32)},
        "initial_state must have shape (2, 4, 16, 8), it has (6, 4, 16, 8)",
    ),
    "a state in bf16": (
        CASE,
        {"initial_state": zeros(2, 4, 16, 8)},
        "initial_state must be torch.float32, it is torch.bfloat16",
    ),
    "a state turned round": (
        dataclasses.replace(CASE, state_v_first=True),
        {"initial_state": zeros(2, 4, 16, 8, dtype=F32)},
        "initial_state must have shape (2, 4, 8, 16), it has (2, 4, 16, 8)",
    ),
    "A_log for q's heads": (
        RAW,
        {"A_log": zeros(2, dtype=F32)},
        "A_log must have shape (4,), it has (2,)",
    ),
    "A_log in bf16": (
        RAW,
        {"A_log": zeros(4)},
        "A_log must be torch.float32, it is torch.bfloat16",
    ),
    "dt_bias in a row": (
        RAW,
        {"dt_bias": zeros(64, dtype=F32)},
        "dt_bias must have shape (4, 16), it has (64,)",
    ),
    "queries with gaps": (CASE, {"q": zeros(6, 2, 32)[..., ::2]}, "q must be contiguous"),
    "rows with gaps": (CASE, {"v": zeros(6, 4, 16)[..., ::2]}, "v must be contiguous"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_with_a_sentence_that_names_it(what: str) -> None:
    """Each tensor's shape, type and layout, and each combination of tensors that says nothing."""
    case, changed, sentence = REFUSED[what]
    with pytest.raises(ValueError, match=re.escape(sentence)):
        accept(case, changed)


def test_options_that_no_kernel_computes_are_refused() -> None:
    """A gate that there is not; a bound of a bounded gate that its exponentials do not reach."""
    with pytest.raises(ValueError, match="gate must be one of log, plain, bounded, not 'safe'"):
        Options(gate="safe")
    for bound in (-5.5, 0.0, 1.0, float("nan")):
        expected = f"lower_bound must be at least -5 and below 0, not {bound}"
        with pytest.raises(ValueError, match=re.escape(expected)):
            Options(gate="bounded", lower_bound=bound)
        assert Options(gate="log", lower_bound=bound).gate == "log"


def test_gradients_that_do_not_fit_are_refused() -> None:
    """That of o like v, that of the final state in fp32; so does the backward pass itself."""
    x, options = of_case(CASE.tensors(CPU), CASE.params())
    do, dfinal = zeros(6, 4, 8), zeros(2, 4, 16, 8, dtype=F32)
    x.require_gradients(do, dfinal)
    for wrong, sentence in (
        ((do[:5], dfinal), "do must have shape (6, 4, 8), it has (5, 4, 8)"),
        ((do.float(), dfinal), "do must be torch.bfloat16, it is torch.float32"),
        ((do, dfinal[:1]), "dht must have shape (2, 4, 16, 8), it has (1, 4, 16, 8)"),
        ((do, dfinal.bfloat16()), "dht must be torch.float32, it is torch.bfloat16"),
    ):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            x.require_gradients(*wrong)
        with pytest.raises(ValueError, match=re.escape(sentence)):
            chunk_bwd.backward(x, options, CASE.launch, *wrong)


def test_parameters_are_read_with_raw_gates_alone() -> None:
    """Beside log-decays they are neither checked nor passed on; absent they stay so."""
    tensors = CASE.tensors(CPU) | {"A_log": zeros(1), "dt_bias": zeros(1)}
    x = Operands.of(tensors, Options())
    assert x.a_log is None
    assert x.dt_bias is None
    tensors = RAW.tensors(CPU)
    x, options = of_case(tensors, RAW.params())
    assert x.a_log is tensors["A_log"]
    assert x.dt_bias is tensors["dt_bias"]
    del tensors["A_log"], tensors["dt_bias"]
    assert Operands.of(tensors, options).a_log is None


def test_a_policy_is_given_by_name_or_as_it_is() -> None:
    """One's own set of intermediates counts as much as a named one."""
    own = Precision(fp32=frozenset({"u"}))
    assert Options.of({**CASE.params(), "precision": own}).precision is own
    for name, policy in NAMED.items():
        assert Options.of({**CASE.params(), "precision": name}).precision is policy


SMALL = DeltaCase(lengths=(3, 2), slack=1, initial=True)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("gdn2", "bf16"), ("gdn2", "fp16"), ("kda", "bf16"), ("kda", "fp32")]
)
def test_public_types_are_the_operands_under_every_policy(
    kind: Any, dtype: Any, outputs: Any
) -> None:
    """Outputs as v and gradients as their operands; states and parameters' gradients in fp32."""
    chunk, vjp, recurrent = {
        "gdn2": (specs.GDN2_CHUNK, specs.GDN2_CHUNK_VJP, specs.GDN2_RECURRENT),
        "kda": (specs.KDA_CHUNK, specs.KDA_CHUNK_VJP, specs.KDA_RECURRENT),
    }[kind]
    gates = dataclasses.replace(SMALL.gates, gate="bounded")
    for precision in NAMED:
        case = dataclasses.replace(
            SMALL, kind=kind, dtype=dtype, gates=gates, precision=precision, gradient=True
        )
        inputs = build(case, CPU)
        tensors, params = dict(inputs.tensors), inputs.params
        # A gate may be in another type than q.
        tensors["g"] = tensors["g"].to(torch.float16)
        how = {"params": params, "launch": inputs.launch}
        found = outputs(vjp, **how, **tensors)
        names = ["q", "k", "v", "g", *({"beta"} if kind == "kda" else ("b", "w"))]
        expected = {f"d{name}": tensors[name].dtype for name in names}
        expected |= dict.fromkeys(("d_initial_state", "dA_log", "ddt_bias"), F32)
        assert {name: tensor.dtype for name, tensor in found.items()} == expected
        forward = {name: value for name, value in tensors.items() if name not in ("do", "dht")}
        # What goes token by token has no policy.
        for spec in (chunk, recurrent) if precision == "fp32" else (chunk,):
            found = outputs(spec, **how, **forward)
            assert found["o"].dtype == tensors["v"].dtype
            assert found["final_state"].dtype == F32


def test_an_assembler_that_spoils_the_kernels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a card, Triton 3.6 and 3.7 need another ptxas than their own; later versions and the CPU do not."""
    card = torch.device("cuda")
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    for version in ("3.6.0", "3.7.1"):
        with pytest.raises(ValueError, match="let TRITON_PTXAS_PATH name ptxas"):
            require_assembler(card, version)
        require_assembler(CPU, version)
    for version in ("3.8.0", "3.10.0", "4.0.0"):
        require_assembler(card, version)
    monkeypatch.setenv("TRITON_PTXAS_PATH", "ptxas-blackwell")
    require_assembler(card, "3.6.0")
