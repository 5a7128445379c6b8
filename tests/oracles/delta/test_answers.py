"""The delta-rule oracle in every option: against plainer calls of itself, and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bitproof.oracles.delta import answers, recurrence
from bitproof.oracles.delta.gates import GateParameters, activate
from bitproof.oracles.delta.problem import pose_problem
from bitproof.oracles.delta.recurrence import Tokens
from bitproof.oracles.formats import Floats
from tests.oracles.delta.operands import (
    GROUPS,
    HEADS,
    KEYS,
    LENGTHS,
    PLAIN,
    Tensors,
    call,
    numbers,
    same,
)

# As an argument of a kernel.
SCALE = float(np.float32(KEYS**-0.5))


def values(tensors: Tensors, params: dict[str, Any]) -> dict[str, Floats]:
    """The exact part of o, of the final state and of every gradient."""
    outputs = answers.forward(tensors, params) | answers.vjp(tensors, params)
    return {name: answer.value for name, answer in outputs.items()}


@pytest.fixture
def one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only exact parts are compared, the other samples would just take time."""
    monkeypatch.setattr(answers, "GRIDS", (1.0,))


def test_a_call_is_the_recurrence_of_its_operands() -> None:
    """With one head for each value head, log-decays, and nothing normalised: as they are, times the scale."""
    tensors = call(groups=1)
    wide = {name: value.double() for name, value in tensors.items()}
    x = Tokens(**{name: wide[name] for name in "qkvgbw"})
    for given, scale in ((None, SCALE), (0.25, 0.25)):
        run = recurrence.recurrence(x, scale, wide["initial_state"], LENGTHS)
        for form in (answers.forward, answers.recurrent):
            found = form(tensors, {**PLAIN, "scale": given})
            same(found["o"].value, run.o.numpy())
            same(found["final_state"].value, run.final.numpy())


def test_value_heads_share_the_head_they_belong_to(one_sample: None) -> None:
    """A group is what as many heads with the same q and k would be, and their gradients are summed."""
    tensors = call()
    repeated = dict(tensors)
    for name in "qk":
        repeated[name] = tensors[name].repeat_interleave(GROUPS, 1)
    found, expected = values(tensors, PLAIN), values(repeated, PLAIN)
    for name in ("dq", "dk"):
        t = expected[name].shape[0]
        expected[name] = expected[name].reshape(t, HEADS, GROUPS, KEYS).sum(2)
    for name, value in expected.items():
        same(found[name], value)


def test_states_with_values_first_are_transposed_states(one_sample: None) -> None:
    """Initial and final ones, and their gradients; nothing else changes."""
    tensors = call()
    turned = dict(tensors)
    for name in ("initial_state", "dht"):
        turned[name] = tensors[name].transpose(-1, -2).contiguous()
    expected, found = values(tensors, PLAIN), values(turned, {**PLAIN, "state_v_first": True})
    for name, value in expected.items():
        states = name in ("final_state", "d_initial_state")
        same(found[name], value.swapaxes(-1, -2) if states else value)


def test_one_number_a_token_is_both_gates(one_sample: None) -> None:
    """beta is b and w, everywhere the same; its gradient is the sum of theirs."""
    scalar = call(scalar=True)
    vectors = call() | {name: scalar[name] for name in scalar if name != "beta"}
    for name in ("b", "w"):
        width = vectors[name].shape[-1]
        vectors[name] = scalar["beta"][..., None].expand(-1, -1, width).contiguous()
    found, expected = values(scalar, PLAIN), values(vectors, PLAIN)
    same(found.pop("dbeta"), expected.pop("db").sum(-1) + expected.pop("dw").sum(-1))
    assert set(found) == set(expected)
    for name, value in expected.items():
        same(found[name], value)


@pytest.mark.parametrize("gate", ["plain", "bounded"])
def test_raw_gates_are_the_log_decays_that_they_stand_for(gate: Any) -> None:
    """The outputs of raw gates are those of log-decays activated beforehand."""
    tensors = call(gate=gate)
    parameters = {name: tensors[source].double() for name, source in _PARAMETERS.items()}
    given = GateParameters(gate=gate, lower_bound=-3.0, **parameters)
    wide = {name: value.double() for name, value in tensors.items()}
    q, k = (wide[name].repeat_interleave(GROUPS, 1) for name in "qk")
    g = activate(wide["g"], given)
    x = Tokens(q=q, k=k, **{name: wide[name] for name in "vbw"}, g=g)
    run = recurrence.recurrence(x, SCALE, wide["initial_state"], LENGTHS)
    found = answers.forward(tensors, {**PLAIN, "gate": gate, "lower_bound": -3.0})
    same(found["o"].value, run.o.numpy())


_PARAMETERS = {"a_log": "A_log", "dt_bias": "dt_bias"}


def test_absent_parameters_are_zeros_and_have_gradients(one_sample: None) -> None:
    """A bounded gate without A_log or dt_bias, and no initial state: all as if they were zeros."""
    tensors, params = call(gate="bounded"), {**PLAIN, "gate": "bounded"}
    names = ("A_log", "dt_bias", "initial_state")
    zeros = tensors | {name: torch.zeros_like(tensors[name]) for name in names}
    expected = values(zeros, params)
    for absent in ([names[0]], [names[1]], [names[2]], names):
        kept = {name: value for name, value in zeros.items() if name not in absent}
        found = values(kept, params)
        assert {"dA_log", "ddt_bias", "d_initial_state"} <= set(found)
        for name, value in expected.items():
            same(found[name], value)


def test_slack_rows_are_zero_whatever_they_hold(one_sample: None) -> None:
    """NaN in every tensor's rows of nobody: outputs and gradients are zero there, the others untouched."""
    params = {**PLAIN, "gate": "bounded", "normalise": True}
    tensors = call(gate="bounded", slack=3)
    used = sum(LENGTHS)
    for name in ("q", "k", "v", "g", "b", "w", "do"):
        tensors[name][used:] = float("nan")
    rows = {name: value for name, value in tensors.items() if len(value) == used + 3}
    expected = values(tensors | {name: value[:used] for name, value in rows.items()}, params)
    found = values(tensors, params)
    for name, value in expected.items():
        if len(value) == used:
            assert not found[name][used:].any()
            assert np.array_equal(found[name][:used], value)
            assert len(found[name]) == used + 3
        else:
            assert np.array_equal(found[name], value)


def test_the_model_of_gradients_rounds_what_it_is_told_to(one_sample: None) -> None:
    """Nothing: the adjoint; the gradients: those alone; an intermediate: what depends on it alone."""
    tensors = call(gate="plain")
    for name in ("q", "k", "v", "g", "b", "w"):
        tensors[name] = tensors[name].bfloat16()
    params = {**PLAIN, "gate": "plain"}
    exact = {name: answer.value for name, answer in answers.vjp(tensors, params).items()}

    def modelled(*rounded: str) -> dict[str, np.ndarray]:
        return answers.gradient_model(tensors, params, frozenset(rounded))

    for name, value in modelled().items():
        same(value, exact[name])
    for name, value in modelled("gradient").items():
        wide = name in ("d_initial_state", "dA_log", "ddt_bias")
        fmt = torch.float32 if wide else torch.bfloat16
        same(value, torch.from_numpy(exact[name]).to(fmt).double().numpy())
    found = modelled("v_new")
    same(found["dv"], exact["dv"])
    # Half a unit of bf16 is 2^-9, of which few numbers lose less than an eighth.
    lost = np.linalg.norm(found["dk"] - exact["dk"])
    assert lost > 2.0**-12 * np.linalg.norm(exact["dk"])


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("v_first", [False, True])
def test_answers_have_the_shapes_of_what_they_answer_for(
    scalar: bool, v_first: bool, one_sample: None
) -> None:
    """Outputs as v and the states, gradients as their tensors; rows are tokens or sequences, by heads."""
    tensors = call(gate="plain", scalar=scalar, slack=2)
    if v_first:
        for name in ("initial_state", "dht"):
            tensors[name] = tensors[name].transpose(-1, -2).contiguous()
    params = {
        **PLAIN,
        "gate": "plain",
        "state_v_first": v_first,
        "limits": {"o": 0.008, "dq": 0.01},
    }
    found = answers.forward(tensors, params)
    assert {name: answer.shape for name, answer in found.items()} == {
        "o": tuple(tensors["v"].shape),
        "final_state": tuple(tensors["initial_state"].shape),
    }
    assert (found["o"].limit, found["final_state"].limit) == (0.008, None)
    assert answers.recurrent(tensors, params)["o"].limit == 0.008
    found = answers.vjp(tensors, params)
    assert (found["dq"].limit, found["dk"].limit) == (0.01, None)
    del params["limits"]
    assert answers.forward(tensors, params)["o"].limit is None
    sources = {"q", "k", "v", "g", "A_log", "dt_bias", *({"beta"} if scalar else {"b", "w"})}
    expected = {f"d{name}": tuple(tensors[name].shape) for name in sources}
    expected["d_initial_state"] = tuple(tensors["initial_state"].shape)
    assert {name: answer.shape for name, answer in found.items()} == expected
    assert {name: answer.rows for name, answer in found.items()} == {
        name: min(2, len(shape)) for name, shape in expected.items()
    }
    assert all((answer.floor > 0).all() for answer in found.values())


def test_log_decays_have_no_parameters_to_differentiate() -> None:
    """Neither dA_log nor ddt_bias is answered, though the tensors are there."""
    tensors = call() | {"A_log": torch.zeros(4), "dt_bias": torch.zeros(4, KEYS)}
    assert not {"dA_log", "ddt_bias"} & set(answers.vjp(tensors, PLAIN))


OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gdn2, plain": ({"gate": "plain"}, {"gate": "plain", "normalise": True}),
    "gdn2, bounded": (
        {"gate": "bounded"},
        {"gate": "bounded", "lower_bound": -3.0, "normalise": True, "scale": 0.75},
    ),
    "gdn2, log": ({}, {"normalise": False}),
    "kda, bounded": ({"gate": "bounded", "scalar": True}, {"gate": "bounded", "normalise": True}),
    "kda, log": ({"scalar": True}, {"normalise": True}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_gradients_are_the_limits_of_differences_of_the_forward_pass(
    option: str, one_sample: None
) -> None:
    """Of every tensor, through gates, normalisation, groups and scale: along a hashed direction each."""
    knobs, changes = OPTIONS[option]
    tensors, params = call(**knobs), {**PLAIN, **changes}
    gradients = answers.vjp(tensors, params)
    do, dfinal = (tensors[name].double().numpy() for name in ("do", "dht"))
    step = 2.0**-6
    for salt, name in enumerate(sorted(set(tensors) - {"do", "dht", "cu_seqlens"})):
        gradient = gradients["d_initial_state" if name == "initial_state" else f"d{name}"].value
        # Multiples of 2^-5, so that whatever is moved is still a number of fp32.
        direction = (numbers(60 + salt, *tensors[name].shape) * 32).round() / 32

        def loss(far: float, name: str = name, direction: Tensor = direction) -> float:
            moved = (tensors[name].double() + far * direction).float()
            assert torch.equal(moved.double(), tensors[name].double() + far * direction)
            x = pose_problem(tensors | {name: moved}, params)
            run = recurrence.recurrence(x.x, x.scale, x.initial, x.lengths)
            return float((run.o.numpy() * do).sum() + (run.final.numpy() * dfinal).sum())

        wide, narrow = ((loss(h) - loss(-h)) / (2 * h) for h in (step, step / 2))
        along = float((gradient * direction.numpy()).sum())
        size = float(np.linalg.norm(gradient) * direction.norm())
        # Richardson's extrapolation errs by the fourth power of the step, times a fifth derivative.
        assert abs((4 * narrow - wide) / 3 - along) < 32 * step**4 * size, name
        assert size > 0, name
