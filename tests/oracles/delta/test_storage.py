"""What the delta-rule oracle makes of storage and of fp32 arithmetic: samples, their grids, and floors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bitproof.oracles.delta import answers, chunk, chunk_adjoint, ranks
from bitproof.oracles.delta.recurrence import Tokens
from bitproof.oracles.formats import BF16, Floats
from bitproof.oracles.precision import ALL_FP32, BACKWARD, FORWARD, NAMED, Precision, nearest
from tests.oracles.delta.operands import KEYS, LENGTHS, PLAIN, VALUES, Tensors, call, same


def correlated(dtype: torch.dtype, length: int = 65) -> Tensors:
    """Keys that nearly agree, little decay: where storage costs most."""
    tensors = call(lengths=(length,), groups=1, dtype=dtype)
    tensors["k"] = (tensors["k"].float() * 0.4 - 1).to(dtype)
    tensors["q"] = (tensors["q"].float() + 1).to(dtype)
    tensors["g"] = (tensors["g"].float() / 64).to(dtype)
    tensors["initial_state"] = torch.zeros_like(tensors["initial_state"])
    return tensors


def relative(found: Floats, value: Floats) -> float:
    """RMS of the difference over that of the value."""
    return float(np.sqrt(np.square(found - value).mean() / np.square(value).mean()))


@pytest.mark.parametrize(
    "precision", ["upstream", "targeted", Precision(fp32=frozenset({"u"}))], ids=str
)
def test_a_sample_errs_as_much_as_the_storage_that_it_stands_for(
    precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is about that of the roundings that the policy names; what products cut is less."""
    monkeypatch.setattr(answers, "GRIDS", (1.0,))
    tensors = correlated(torch.bfloat16)
    params = {**PLAIN, "normalise": True, "precision": precision}
    policy = precision if isinstance(precision, Precision) else NAMED[precision]
    exactly = answers.model(tensors, params, frozenset())["o"]
    stored = answers.model(tensors, params, frozenset(FORWARD) - policy.fp32)["o"]
    answer = answers.forward(tensors, params)["o"]
    same(answer.value, exactly)
    error = relative(stored, exactly)
    assert 2.0**-9 < error / 1.5 < relative(answer.model, answer.value) < 1.5 * error


def test_each_row_answers_with_the_farthest_of_eight_samples(monkeypatch: Any) -> None:
    """All at once, as so many more heads, they are what each grid alone gives: outputs and gradients."""
    params = {**PLAIN, "gate": "bounded", "normalise": True}
    tensors = call(lengths=(0, 5), gate="bounded", scalar=True, dtype=torch.bfloat16)
    found = answers.forward(tensors, params) | answers.vjp(tensors, params)
    farthest = {name: answer.value for name, answer in found.items()}
    for grid in answers.GRIDS:
        with monkeypatch.context() as patch:
            patch.setattr(answers, "GRIDS", (grid,))
            alone = answers.forward(tensors, params) | answers.vjp(tensors, params)
        for name, answer in alone.items():
            inner = tuple(range(answer.rows, answer.model.ndim))
            size = [
                np.square(model - answer.value).sum(inner, keepdims=True)
                for model in (answer.model, farthest[name])
            ]
            farthest[name] = np.where(size[0] > size[1], answer.model, farthest[name])
    for name, answer in found.items():
        same(answer.model, farthest[name])
        assert not np.array_equal(answer.model, answer.value), name


def test_products_read_exactly_what_was_stored_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """On each sample's own grid, whose numbers no cut to ten bits changes; other numbers it does."""
    seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward(x: Tokens, scale: float, initial: Tensor, parts: Any, **how: Any) -> Any:
        stored = how["store"]("state", initial)
        seen.append((initial, stored, how["operand"](stored)))
        assert torch.equal(how["fold"](initial), how["operand"](initial)) == (len(seen) == 2)
        return torch.zeros_like(x.v), how["operand"](initial)

    monkeypatch.setattr(ranks, "forward", forward)
    answer = answers.forward(call(dtype=torch.bfloat16), PLAIN)["final_state"]
    for initial, stored, read in seen:
        assert not torch.equal(stored, initial)
        assert torch.equal(read, stored)
    assert len(seen) == 2
    assert not np.array_equal(answer.model, seen[1][0].numpy())


def test_keeping_more_costs_less() -> None:
    """Outputs and gradients alike: upstream errs more than targeted, targeted more than fp32."""
    tensors = correlated(torch.bfloat16)
    errors = {}
    for name in NAMED:
        params = {**PLAIN, "normalise": True, "precision": name}
        outputs = answers.forward(tensors, params) | answers.vjp(tensors, params)
        errors[name] = {key: relative(a.model, a.value) for key, a in outputs.items()}
    assert errors["upstream"]["o"] > errors["targeted"]["o"] > 2 * errors["fp32"]["o"]
    for output in ("dq", "dk", "dv", "db", "dw", "dg"):
        assert errors["upstream"][output] > 2 * errors["fp32"][output], output
        # Products cut what is kept to ten bits.
        assert 0 < errors["fp32"][output] < 2.0**-6, output


def test_fp32_operands_are_not_stored_in_less() -> None:
    """Whatever the policy says, the model rounds nothing below fp32, and cuts what products read."""
    tensors = correlated(torch.float32)
    params = {**PLAIN, "normalise": True}
    upstream, fp32 = (
        answers.forward(tensors, {**params, "precision": name})["o"]
        for name in ("upstream", "fp32")
    )
    assert np.array_equal(upstream.model, fp32.model)
    assert 0 < relative(fp32.model, fp32.value) < 2.0**-8


def test_a_token_by_token_kernel_stores_its_output_alone() -> None:
    """Its model is the exact answer; the floor holds half a unit of bf16, and of fp32 for the state."""
    tensors = correlated(torch.bfloat16)
    found = answers.recurrent(tensors, {**PLAIN, "normalise": True})
    for answer in found.values():
        assert np.array_equal(answer.model, answer.value)
    for name, dtype in (("o", torch.bfloat16), ("final_state", torch.float32)):
        value = found[name].value
        rounded = torch.from_numpy(value).to(dtype).double().numpy()
        assert (np.abs(rounded - value) <= found[name].floor).all()
    # Beside the rounding of bf16, what fp32's arithmetic adds is small.
    assert np.median(found["o"].floor / np.abs(found["o"].value)) < 1.25 * 2.0**-8


def test_intermediates_of_the_backward_pass_are_stored_in_it_alone() -> None:
    """Kept in fp32 besides those of the forward pass they change gradients, except what they do not feed."""
    tensors = correlated(torch.bfloat16)
    forward = Precision(fp32=frozenset(FORWARD))
    found, kept = (
        answers.vjp(tensors, {**PLAIN, "normalise": True, "precision": policy})
        for policy in (forward, ALL_FP32)
    )
    assert ALL_FP32.fp32 - forward.fp32 == set(BACKWARD)
    changed = {name for name in kept if not np.array_equal(found[name].model, kept[name].model)}
    assert changed == {"dk", "dv", "dg", "db", "dw", "d_initial_state"}
    for name in changed - {"d_initial_state"}:
        assert relative(found[name].model, found[name].value) > relative(
            kept[name].model, kept[name].value
        )


def test_the_model_rounds_the_output_where_it_is_asked_to() -> None:
    """Alone, that is the exact output rounded to v's type; the final state has no such rounding."""
    tensors = correlated(torch.bfloat16)
    exactly = answers.model(tensors, PLAIN, frozenset())
    found = answers.model(tensors, PLAIN, frozenset({"o"}))
    expected = nearest(torch.from_numpy(exactly["o"]), BF16).numpy()
    assert np.array_equal(found["o"], expected)
    assert np.array_equal(found["final_state"], exactly["final_state"])


def test_sums_may_err_as_their_terms_do() -> None:
    """The floor of a sum grows with what storage costs its terms; that of what is no sum does not."""
    tensors = call(gate="bounded", scalar=True, dtype=torch.bfloat16)
    floors = {}
    for name in ("upstream", "fp32"):
        params = {**PLAIN, "gate": "bounded", "precision": name}
        outputs = answers.vjp(tensors, params)
        floors[name] = {key: float(answer.floor.mean()) for key, answer in outputs.items()}
    for name, floor in floors["upstream"].items():
        if name in ("dA_log", "ddt_bias", "dbeta"):
            assert floor > 2 * floors["fp32"][name], name
        elif name == "dg":  # where it cancels in one channel, a stored intermediate is left
            assert floor > floors["fp32"][name]
        else:
            assert floor == floors["fp32"][name], name


def test_floors_hold_what_fp32_arithmetic_costs_and_hide_no_bf16(monkeypatch: Any) -> None:
    """The chunk form in fp32 is within it in each row; it is less than one rounding to bf16 costs."""
    monkeypatch.setattr(answers, "GRIDS", (1.0,))
    lengths, scale = (65, 0, 12), KEYS**-0.5
    tensors = call(lengths=lengths, groups=1, dtype=torch.float32)
    tensors["g"] /= 16
    outputs = answers.forward(tensors, PLAIN) | answers.vjp(tensors, PLAIN)
    x = Tokens(**{name: tensors[name] for name in "qkvgbw"})
    given = (x, scale, tensors["initial_state"], lengths)
    o, final = chunk.forward(*given)
    grads, dinitial = chunk_adjoint.adjoint(*given, tensors["do"], tensors["dht"])
    found = {f"d{name}": value for name, value in grads.to_dict().items()}
    found |= {"o": o, "final_state": final, "d_initial_state": dinitial}
    assert set(found) == set(outputs)
    for name, value in found.items():
        assert value.dtype == torch.float32
        exactly, floor = outputs[name].value, outputs[name].floor
        error, floor, size = (
            np.sqrt(np.square(x).sum(tuple(range(2, x.ndim))))
            for x in (value.double().numpy() - exactly, floor, exactly)
        )
        assert (error <= floor).all(), name
        assert np.median(floor / size) < 2.0**-9, name


def test_what_may_be_flushed_on_the_way_is_in_every_floor() -> None:
    """Where nothing is differentiated all is zero, and a sum may hold as much for each of its terms."""
    tensors = call(gate="bounded", scalar=True, dtype=torch.bfloat16)
    for name in ("do", "dht"):
        tensors[name] = torch.zeros_like(tensors[name])
    count = sum(LENGTHS)
    terms = {"dA_log": count * KEYS, "ddt_bias": count, "dbeta": KEYS + VALUES}
    for name, answer in answers.vjp(tensors, {**PLAIN, "gate": "bounded"}).items():
        assert not answer.value.any()
        assert not answer.model.any()
        least = 256 * 2.0**-126 * terms.get(name, 1)
        assert (answer.floor >= least).all(), name
        assert (answer.floor < 2 * least).all(), name
