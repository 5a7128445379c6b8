"""The delta rule's recurrence and its adjoint against rational arithmetic, closed forms and differences."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from itertools import product

import pytest
import torch
from torch import Tensor

from bitproof.oracles.delta.recurrence import Tokens, adjoint, recurrence
from tests.oracles.delta.operands import apart, numbers, states, tokens

# float64 arithmetic over a few hundred additions.
EXACT = 1e-13
LENGTHS = (3, 0, 7, 1, 0)


def everything(
    x: Tokens, initial: Tensor, lengths: tuple[int, ...], scale: float = 0.7
) -> dict[str, Tensor]:
    """Outputs, and gradients for hashed gradients of the outputs."""
    run = recurrence(x, scale, initial, lengths, keep=True)
    do, dfinal = numbers(91, *x.v.shape), numbers(92, *initial.shape)
    grads, dinitial = adjoint(x, scale, run, lengths, do, dfinal)
    return {"o": run.o, "final": run.final, "dinitial": dinitial, **grads.to_dict()}


def fractions(x: Tensor) -> dict[tuple[int, ...], Fraction]:
    """Elements by index, exactly."""
    return {i: Fraction(float(x[i])) for i in product(*(range(n) for n in x.shape))}


def test_the_recurrence_is_the_formula_in_rational_arithmetic() -> None:
    """Element by element with exact sums; decays, which are irrational, as float64 has them."""
    x = tokens(1, 4, heads=2, keys=3, values=2)
    initial, scale = states(1, 1, x), 0.375
    run = recurrence(x, scale, initial, [4], keep=True)
    assert run.decayed is not None
    assert run.written is not None
    q, k, v, b, w = (fractions(getattr(x, name)) for name in "qkvbw")
    decay, start = fractions(x.g.exp()), fractions(initial)
    o, final = torch.zeros_like(run.o), torch.zeros_like(initial)
    decayed, written = torch.zeros_like(run.decayed), torch.zeros_like(run.written)
    for h, j in product(range(2), range(2)):
        state = [start[0, h, i, j] for i in range(3)]
        for t in range(4):
            state = [decay[t, h, i] * s for i, s in enumerate(state)]
            decayed[t, h, :, j] = torch.tensor([float(s) for s in state], dtype=torch.float64)
            erased = sum(b[t, h, i] * k[t, h, i] * s for i, s in enumerate(state))
            n = w[t, h, j] * v[t, h, j] - erased
            written[t, h, j] = float(n)
            state = [s + k[t, h, i] * n for i, s in enumerate(state)]
            read = sum(q[t, h, i] * s for i, s in enumerate(state))
            o[t, h, j] = float(Fraction(scale) * read)
        final[0, h, :, j] = torch.tensor([float(s) for s in state], dtype=torch.float64)
    assert apart(run.o, o) < EXACT
    assert apart(run.final, final) < EXACT
    assert apart(run.decayed, decayed) < EXACT
    assert apart(run.written, written) < EXACT


def test_nothing_is_erased_where_b_is_zero() -> None:
    """Then it is linear attention with decay: a sum over all earlier tokens, and the initial state."""
    x = dataclasses.replace(tokens(2, 9), b=torch.zeros(9, 2, 8, dtype=torch.float64))
    initial, g = states(2, 1, x), x.g.cumsum(0)
    expected = torch.zeros_like(x.v)
    for t in range(9):
        read = x.q[t] * g[t].exp()
        expected[t] = torch.einsum("hk,hkv->hv", read, initial[0])
        for s in range(t + 1):
            weight = (x.q[t] * x.k[s] * (g[t] - g[s]).exp()).sum(-1, keepdim=True)
            expected[t] += weight * x.w[s] * x.v[s]
    assert apart(recurrence(x, 0.5, initial, [9]).o, 0.5 * expected) < EXACT


def test_what_is_written_at_orthonormal_keys_is_recalled_exactly() -> None:
    """With no decay and b = w = 1, each key answers with the value that was last written at it."""
    keys = torch.linalg.qr(numbers(3, 4, 4)).Q
    order = [0, 1, 2, 0, 3, 1]
    k, v = keys[order][:, None], numbers(4, 6, 1, 5)
    ones = torch.ones(6, 1, 5, dtype=torch.float64)
    x = Tokens(q=k, k=k, v=v, g=torch.zeros_like(k), b=torch.ones_like(k), w=ones)
    run = recurrence(x, 1.0, torch.zeros(1, 1, 4, 5, dtype=torch.float64), [6])
    assert apart(run.o, v) < EXACT
    recalled = keys @ run.final[0, 0]
    assert apart(recalled, v[[3, 5, 2, 4], 0]) < EXACT


def test_one_number_for_both_gates_is_kimi_delta_attention() -> None:
    """Against its own recurrence, S + beta k (v - S^T k)^T, head by head."""
    x = tokens(5, 8)
    beta = 1 + numbers(6, 8, 2, 1)
    x = dataclasses.replace(x, b=beta.expand_as(x.k), w=beta.expand_as(x.v))
    initial = states(5, 1, x)
    run = recurrence(x, 0.25, initial, [8])
    for head in range(2):
        state = initial[0, head]
        for t in range(8):
            k = x.k[t, head]
            state = x.g[t, head].exp().diag() @ state
            miss = x.v[t, head] - state.T @ k
            state = state + beta[t, head] * torch.outer(k, miss)
            assert apart(run.o[t, head], 0.25 * state.T @ x.q[t, head]) < EXACT
        assert apart(run.final[0, head], state) < EXACT


def test_the_adjoint_is_what_autograd_makes_of_the_recurrence() -> None:
    """Of packed sequences of several lengths, all operands and the initial states."""
    x = tokens(7, sum(LENGTHS))
    initial = states(7, len(LENGTHS), x)
    found = everything(x, initial, LENGTHS)
    leaves = {name: value.clone().requires_grad_() for name, value in x.to_dict().items()}
    start = initial.clone().requires_grad_()
    run = recurrence(Tokens(**leaves), 0.7, start, LENGTHS)
    do, dfinal = numbers(91, *x.v.shape), numbers(92, *initial.shape)
    ((run.o * do).sum() + (run.final * dfinal).sum()).backward()
    for name, leaf in {**leaves, "dinitial": start}.items():
        assert leaf.grad is not None
        assert apart(found[name], leaf.grad) < EXACT, name


@pytest.mark.parametrize("name", [*"qkvgbw", "initial"])
def test_the_adjoint_is_the_limit_of_differences(name: str) -> None:
    """Along hashed directions, with Richardson's extrapolation, whose error is of the fourth power."""
    x, step = tokens(8, sum(LENGTHS)), 2.0**-9
    initial = states(8, len(LENGTHS), x)
    do, dfinal = numbers(91, *x.v.shape), numbers(92, *initial.shape)
    found = everything(x, initial, LENGTHS)
    gradient = found["dinitial" if name == "initial" else name]
    direction = numbers(93, *gradient.shape)

    def loss(far: float) -> float:
        moved = {**x.to_dict(), "initial": initial}
        moved[name] = moved[name] + far * direction
        start = moved.pop("initial")
        run = recurrence(Tokens(**moved), 0.7, start, LENGTHS)
        return float((run.o * do).sum() + (run.final * dfinal).sum())

    wide, narrow = ((loss(h) - loss(-h)) / (2 * h) for h in (step, step / 2))
    slope = float((gradient * direction).sum())
    size = float(gradient.norm() * direction.norm())
    assert abs((4 * narrow - wide) / 3 - slope) < step**4 * size
    assert abs(slope) > step * size


def test_packed_sequences_are_what_each_is_alone() -> None:
    """Outputs and gradients, empty sequences among them, whichever order the lengths come in."""
    x = tokens(9, sum(LENGTHS))
    initial = states(9, len(LENGTHS), x)
    packed = everything(x, initial, LENGTHS)
    do, dfinal = numbers(91, *x.v.shape), numbers(92, *initial.shape)
    first = 0
    for n, length in enumerate(LENGTHS):
        rows = slice(first, first + length)
        part = Tokens(**{name: value[rows] for name, value in x.to_dict().items()})
        run = recurrence(part, 0.7, initial[n : n + 1], [length], keep=True)
        grads, dinitial = adjoint(part, 0.7, run, [length], do[rows], dfinal[n : n + 1])
        assert apart(packed["final"][n], run.final[0]) < EXACT
        assert apart(packed["dinitial"][n], dinitial[0]) < EXACT
        assert apart(packed["o"][rows], run.o) < EXACT
        for name, value in grads.to_dict().items():
            assert apart(packed[name][rows], value) < EXACT, name
        first += length


def test_an_empty_sequence_hands_its_state_on() -> None:
    """Its final state is the initial one, and so is the gradient; of no sequences there is nothing."""
    x = tokens(10, 3)
    initial = states(10, 3, x)
    found = everything(x, initial, (0, 3, 0))
    for n in (0, 2):
        assert torch.equal(found["final"][n], initial[n])
        assert torch.equal(found["dinitial"][n], numbers(92, *initial.shape)[n])
    none = everything(tokens(10, 0), initial[:0], ())
    assert {name: value.shape[0] for name, value in none.items()} == dict.fromkeys(found, 0)


def test_rows_past_the_last_sequence_are_nobodys() -> None:
    """Whatever they hold: their outputs and gradients are zero, and nothing else depends on them."""
    x, initial = tokens(11, 6), states(11, 1, tokens(11, 6))
    spoilt = Tokens(**{name: value.clone() for name, value in x.to_dict().items()})
    for value in spoilt.to_dict().values():
        value[4:] = float("nan")
    clean, found = everything(x, initial, (4,)), everything(spoilt, initial, (4,))
    for name, value in found.items():
        assert torch.equal(value, clean[name]), name
        if name not in ("final", "dinitial"):
            assert not value[4:].any(), name
            assert value[:4].any(), name


def test_states_and_what_is_written_are_stored() -> None:
    """Twice and once a token: a store that keeps nothing leaves nothing to read."""
    x = tokens(12, 5)
    initial, names = states(12, 1, x), []

    def none(name: str, value: Tensor) -> Tensor:
        names.append(name)
        return torch.zeros_like(value)

    run = recurrence(x, 1.0, initial, [5], store=none)
    assert not run.o.any()
    assert not run.final.any()
    assert names == ["state", "v_new", "state"] * 5


def test_the_initial_state_is_left_as_it_was() -> None:
    """Neither the recurrence nor the adjoint writes where it reads."""
    x = tokens(13, 4)
    initial = states(13, 1, x)
    before = initial.clone()
    run = recurrence(x, 1.0, initial, [4], keep=True)
    dfinal = states(14, 1, x)
    kept = dfinal.clone()
    adjoint(x, 1.0, run, [4], numbers(91, *x.v.shape), dfinal)
    assert torch.equal(initial, before)
    assert torch.equal(dfinal, kept)
