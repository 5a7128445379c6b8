"""The chunk form and its adjoint: equal to the recurrence's, and rounded just where a kernel rounds."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from bitproof.oracles.delta import chunk, chunk_adjoint, recurrence
from bitproof.oracles.delta.chunk import CHUNK, invert, make_chunks
from bitproof.oracles.delta.recurrence import Tokens
from bitproof.oracles.precision import BACKWARD, FORWARD, Store, exact, make_store, tf32
from tests.oracles.delta.operands import apart, numbers, states, tokens

# float64 arithmetic: sums of some hundred terms, and sums of those.
EXACT = 1e-13
SCALE = 0.4
LENGTHS = (0, 1, 15, 16, 17, 63, 64, 65, 129)


def by_tokens(x: Tokens, initial: Tensor, lengths: tuple[int, ...]) -> dict[str, Tensor]:
    """Outputs and gradients of the recurrence."""
    run = recurrence.recurrence(x, SCALE, initial, lengths, keep=True)
    do, dfinal = numbers(91, *x.v.shape), numbers(92, *initial.shape)
    grads, dinitial = recurrence.adjoint(x, SCALE, run, lengths, do, dfinal)
    return {"o": run.o, "final": run.final, "dinitial": dinitial, **grads.to_dict()}


def by_chunks(
    x: Tokens,
    initial: Tensor,
    lengths: tuple[int, ...],
    store: Store = exact,
    operand: Callable[[Tensor], Tensor] = chunk.as_is,
    solve: Callable[[Tensor], Tensor] = chunk.as_is,
) -> dict[str, Tensor]:
    """The same of the chunk form, and what the gradient of g weighs."""
    do, dfinal = numbers(91, *x.v.shape), numbers(92, *initial.shape)
    o, final = chunk.forward(x, SCALE, initial, lengths, store=store, operand=operand, solve=solve)
    grads, dinitial, weight = chunk_adjoint.weigh_adjoint(
        x, SCALE, initial, lengths, do, dfinal, store=store, operand=operand, solve=solve
    )
    found = {"o": o, "final": final, "dinitial": dinitial, **grads.to_dict()}
    return {**found, "weight": weight}


@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_are_the_recurrence(length: int) -> None:
    """Outputs, the final state and every gradient, at lengths around those of a chunk and its blocks."""
    x = tokens(length, length)
    initial = states(length, 1, x)
    found = by_chunks(x, initial, (length,))
    for name, value in by_tokens(x, initial, (length,)).items():
        assert apart(found[name], value) <= EXACT, name


def test_packed_chunks_are_the_recurrence() -> None:
    """All those lengths at once, out of order, with slack rows behind them."""
    lengths = (64, 0, 17, 129, 1, 0, 65, 15)
    x = tokens(20, sum(lengths) + 5, heads=1)
    for value in x.to_dict().values():
        value[sum(lengths) :] = float("nan")
    initial = states(20, len(lengths), x)
    expected, found = by_tokens(x, initial, lengths), by_chunks(x, initial, lengths)
    for name, value in found.items():
        assert name == "weight" or apart(value, expected[name]) <= EXACT, name
        assert name in ("final", "dinitial") or not value[sum(lengths) :].any(), name


@pytest.mark.parametrize("decays", [(-60.0, -120.0), (0.0, -120.0, -60.0), (-120.0,), (-5.0, 0.0)])
def test_no_decay_is_too_deep(decays: tuple[float, ...]) -> None:
    """A chunk's cumulative log-decay far below any exponential's range costs no digit and no infinity."""
    x = tokens(21, 129)
    steps = torch.tensor(decays, dtype=torch.float64).repeat(129 * 8)[: 129 * 8].reshape(129, 1, 8)
    x = dataclasses.replace(x, g=steps.expand_as(x.g).contiguous())
    initial = states(21, 1, x)
    expected = by_tokens(x, initial, (129,))
    found = by_chunks(x, initial, (129,))
    for name, value in expected.items():
        # The gradient of what decays to nothing is a difference, exact to the size of its terms.
        size = float(found["weight" if name == "g" else name].abs().max())
        assert float((found[name] - value).abs().max()) <= EXACT * size, name


def test_nobodys_chunks_are_none() -> None:
    """Each sequence has its own, the last one partial; an empty sequence has none."""
    chunks = make_chunks((65, 0, 64, 3), 140)
    assert chunks.sequence == (0, 0, 2, 3)
    rows = chunks.rows.tolist()
    assert rows[0] == list(range(64))
    assert rows[1] == [64] + [140] * 63
    assert rows[2] == list(range(65, 129))
    assert rows[3] == [129, 130, 131] + [140] * 61
    x = numbers(1, 140, 2, 3)
    back = chunks.join(chunks.split(x))
    assert torch.equal(back[:132], x[:132])
    assert not back[132:].any()
    assert make_chunks((0,), 0).rows.shape == (0, CHUNK)


def test_the_inverse_is_the_inverse() -> None:
    """Of unit lower triangular matrices, by substitution in another library; nothing above the diagonal."""
    lower = numbers(2, 3, 2, CHUNK, CHUNK).tril(-1) / 4
    found = invert(lower)
    identity = torch.eye(CHUNK, dtype=torch.float64).expand_as(lower)
    expected = torch.from_numpy(np.linalg.inv((identity + lower).numpy()))
    assert apart(found, expected) < EXACT
    assert torch.equal(found.tril(), found)
    assert torch.equal(found.diagonal(dim1=-2, dim2=-1), identity.diagonal(dim1=-2, dim2=-1))


@pytest.mark.parametrize("length", [40, 64])
@pytest.mark.parametrize("name", ["", "products", *FORWARD, *BACKWARD])
def test_what_is_stored_is_what_is_read_from_there_on(name: str, length: int) -> None:
    """Each intermediate in turn half as large again, or every product, against formulas written out."""
    x = tokens(23, length)
    initial = states(23, 1, x)
    factors = collections.defaultdict(lambda: 1.0, {name: 1.5})
    # Both operands of a product pass through `operand`.
    operand = chunk.as_is if name != "products" else lambda value: 1.5**0.5 * value
    seen: dict[str, Tensor] = {}

    def store(point: str, value: Tensor) -> Tensor:
        stored = factors[point] * value
        seen.setdefault(point, stored)
        return stored

    found = by_chunks(x, initial, (length,), store, operand)
    for head in range(2):
        mine = Tokens(**{point: value[:, head] for point, value in x.to_dict().items()})
        expected = written_out(mine, initial[0, head], head, factors)
        for output, value in expected.items():
            stored = output.removeprefix("stored ")
            if stored != output:
                rows = slice(None) if stored in ("state", "dstate") else slice(length)
                got = seen[stored].reshape(2, *seen[stored].shape[-2:])[
                    head, rows, : value.shape[1]
                ]
            elif output in ("final", "dinitial"):
                got = found[output][0, head]
            else:
                got = found[output][:, head]
            assert apart(got, value) <= EXACT, output


def written_out(
    x: Tokens, initial: Tensor, head: int, factors: dict[str, float]
) -> dict[str, Tensor]:
    """One head of one chunk, [T, ...], from the equations of the kernel, element by element where it decays.

    Outputs and gradients by name, and what is stored on the way. `factors` says how much larger than it
    should be an intermediate is, or under "products" every product.
    """
    f, p, length = factors, factors["products"], len(x.q)
    do = numbers(91, length, 2, 4)[:, head]
    dfinal = numbers(92, 1, 2, 8, 4)[0, head]
    grown = x.g.cumsum(0)
    last = grown[-1].exp()[:, None]
    later = torch.ones(length, length).tril().bool()
    fade = torch.where(later[..., None], (grown[:, None] - grown[None]), 0.0).exp()
    strict = torch.where(later.tril(-1), p, 0.0).double()
    both = strict + torch.eye(length)
    q, k = f["qk"] * x.q, f["qk"] * x.k
    bk, wv = x.b * k, x.w * x.v
    scores = f["scores"] * SCALE * both * torch.einsum("ik,jk,ijk->ij", q, k, fade)
    lower = strict * torch.einsum("ik,jk,ijk->ij", bk, k, fade)
    a = f["inverse"] * torch.linalg.inv(torch.eye(length) + lower)
    write, erase = f["write"] * wv, f["erase"] * bk * grown.exp()
    u, wy = f["u"] * p * a @ write, f["w"] * p * a @ erase
    qg, kg = f["qg"] * q * grown.exp(), f["kg"] * k * (grown[-1] - grown).exp()
    state = f["state"] * initial
    n = f["v_new"] * (u - p * wy @ state)

    dstate = f["dstate"] * dfinal
    dn = f["dv_new"] * p * (scores.T @ do + kg @ dstate)
    dwy = f["dw"] * p * (-dn @ state.T)
    da = f["dinverse"] * p * (dn @ write.T + dwy @ erase.T).tril(-1)
    dlower = -p * (f["dinverse"] * p * (a.T @ da) @ a.T)
    dwrite, derase = p * a.T @ dn, p * a.T @ dwy * grown.exp()
    dscores = SCALE * p * do @ n.T
    dq_before = SCALE * p * do @ state.T * grown.exp()
    dk_after = p * n @ dstate.T * (grown[-1] - grown).exp()
    itself = dscores.diagonal()[:, None]
    dq_within = torch.einsum("ij,jk,ijk->ik", dscores * strict, k, fade)
    erased = torch.einsum("ij,jk,ijk->ik", dlower * strict, k, fade)
    read = torch.einsum("ij,ik,ijk->jk", dscores * strict, q, fade)
    read = read + torch.einsum("ij,ik,ijk->jk", dlower * strict, bk, fade)
    ddecay = q * (dq_before + dq_within) + bk * (derase + erased) - k * (dk_after + read)
    weight = (q * dq_before).abs() + (q * dq_within).abs() + (bk * derase).abs()
    weight = weight + (bk * erased).abs() + (k * dk_after).abs() + (k * read).abs()
    weight[-1] += (state * dstate * last).abs().sum(1) + (k * dk_after).abs().sum(0)
    ddecay[-1] += (state * dstate * last).sum(1) + (k * dk_after).sum(0)
    return {
        "o": p * (SCALE * qg @ state + scores @ n),
        "final": last * initial + p * kg.T @ n,
        "q": dq_before + dq_within + itself * k,
        "k": dk_after + read + itself * q + x.b * (derase + erased),
        "v": x.w * dwrite,
        "g": ddecay.flip(0).cumsum(0).flip(0),
        "weight": weight.flip(0).cumsum(0).flip(0),
        "b": k * (derase + erased),
        "w": x.v * dwrite,
        "dinitial": last * dfinal + p * (SCALE * qg.T @ do - wy.T @ dn),
        "stored scores": scores,
        "stored inverse": a,
        "stored write": write,
        "stored erase": erase,
        "stored u": u,
        "stored w": wy,
        "stored qg": qg,
        "stored kg": kg,
        "stored state": state,
        "stored v_new": n,
        "stored dstate": dstate,
        "stored dv_new": dn,
        "stored dw": dwy,
        "stored dinverse": da,
    }


AFTER_INVERSE = {"k", "b", "g"}
BACKWARDS = {
    "dstate": {*AFTER_INVERSE, "v", "w", "dinitial"},
    "dv_new": {*AFTER_INVERSE, "v", "w", "dinitial"},
    "dw": AFTER_INVERSE,
    "dinverse": AFTER_INVERSE,
}


@pytest.mark.parametrize("name", [*FORWARD, *BACKWARD])
def test_each_rounding_alone_shows_in_what_it_feeds(name: str) -> None:
    """Over three chunks: scores and qg do not reach the state, nor what is of the backward pass an output."""
    x = tokens(24, 129)
    # Little decay, so that what a chunk rounds is still there at the others.
    x = dataclasses.replace(x, g=x.g / 64)
    initial = states(24, 1, x)
    exactly = by_chunks(x, initial, (129,))
    found = by_chunks(x, initial, (129,), make_store(frozenset({name}), torch.bfloat16))
    changed = {output for output, value in found.items() if not torch.equal(value, exactly[output])}
    changed -= {"weight"}
    if name in BACKWARD:
        assert changed == BACKWARDS[name]
    else:
        outputs = {"o"} if name in ("scores", "qg") else {"o", "final"}
        assert changed & {"o", "final"} == outputs
    for output in changed:
        # Eight bits are kept.
        assert apart(found[output], exactly[output]) < 2.0**-6, output


def test_every_intermediate_is_stored_once_and_the_state_once_a_chunk() -> None:
    """By name, in a forward pass over four chunks of two sequences, and in the backward pass after it."""
    counts: collections.Counter[str] = collections.Counter()

    def count(name: str, value: Tensor) -> Tensor:
        counts[name] += 1
        return value

    x = tokens(25, 200)
    initial, lengths = states(25, 2, x), (65, 128)
    chunk.forward(x, SCALE, initial, lengths, store=count)
    once = dict.fromkeys(FORWARD, 1)
    assert {name: counts[name] for name in FORWARD} == {**once, "qk": 2, "state": 4, "v_new": 4}
    assert not set(counts) & set(BACKWARD)
    before = counts.copy()
    do, dfinal = numbers(91, *x.v.shape), numbers(92, *initial.shape)
    chunk_adjoint.adjoint(x, SCALE, initial, lengths, do, dfinal, store=count)
    counts -= before
    assert {name: counts[name] for name in FORWARD} == {name: before[name] for name in FORWARD}
    backward = {"dstate": 4, "dv_new": 4, "dw": 1, "dinverse": 2}
    assert {name: counts[name] for name in BACKWARD} == backward


def test_the_inverse_reads_through_its_own_cut() -> None:
    """`solve` changes the inverse and no score; a matrix whose products vanish has none but itself."""
    x = tokens(26, 64)
    initial = states(26, 1, x)
    seen: dict[str, dict[str, Tensor]] = {"exact": {}, "cut": {}}
    for which, solve in (("exact", chunk.as_is), ("cut", tf32)):

        def remember(name: str, value: Tensor, which: str = which) -> Tensor:
            seen[which][name] = value
            return value

        chunk.forward(x, SCALE, initial, (64,), store=remember, solve=solve)
    changed = {name for name in FORWARD if not torch.equal(seen["cut"][name], seen["exact"][name])}
    assert changed == {"inverse", "u", "w", "v_new"}
    # Each of six steps cuts numbers of size one to ten bits.
    assert apart(seen["cut"]["inverse"], seen["exact"]["inverse"]) < 6 * 2.0**-9
    lower = numbers(2, CHUNK, CHUNK).tril(-1)
    # -X B X is two products: of two operands, and of that with the third.
    single = torch.zeros_like(lower)
    single[1, 0] = 0.25
    assert float(invert(single, lambda value: 2 * value)[1, 0]) == -0.25 * 2**4
    assert torch.equal(invert(lower, torch.zeros_like), torch.eye(CHUNK, dtype=torch.float64))
