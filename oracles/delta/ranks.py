"""The gated delta rule in chunks where sequences are cut over ranks: context parallelism, forward and back.

The T rows of a call, slack rows among them, are cut into equal shares of ceil(T / ranks) rows, one after
another; the last ones may be shorter or empty. Chunks begin anew where a share does. Of the state S at its
start, a rank's part of a sequence makes M S + h (notation of `oracles.delta.chunk`; all chunks of the part in
turn):

    M <- (Diag(e^(G_last)) - (k * e^(G_last - G))^T w_wy) M        from the identity
    h <- what the chunks make of a state of zero, or of the sequence's initial one where it begins

Each rank sends its summary, M and h. The next one folds all that came before, S = M S + h in the order of the
ranks, and begins there. Gradients go the other way: of the gradient dS at its end, a part makes
M^T dS + dh, and folding begins at the sequence's last rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bitproof.oracles.delta.chunk import (
    Chunks,
    Operand,
    Within,
    as_is,
    make_chunks,
    pass_states,
    within,
)
from bitproof.oracles.delta.chunk_adjoint import from_the_end, pass_back, within_adjoint
from bitproof.oracles.delta.recurrence import Tokens
from bitproof.oracles.precision import Store, exact


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What ranks hold of sequences, one part after another: `lengths` in tokens, and whose `sequence`.

    A sequence has at least one part; one without tokens has one of length 0.
    """

    lengths: tuple[int, ...]
    sequence: tuple[int, ...]

    @property
    def firsts(self) -> list[int]:
        """For each sequence, its first part."""
        return [self.sequence.index(n) for n in range(self._count)]

    @property
    def lasts(self) -> list[int]:
        """For each sequence, its last part."""
        return [len(self.sequence) - 1 - self.sequence[::-1].index(n) for n in range(self._count)]

    @property
    def _count(self) -> int:
        return max(self.sequence, default=-1) + 1


def cut(lengths: Sequence[int], rows: int, ranks: int) -> Parts:
    """The parts of sequences of these lengths, `rows` being all rows; ValueError below one rank."""
    if ranks < 1:
        raise ValueError(f"there must be at least 1 rank, not {ranks}")
    share = -(-rows // ranks)
    sizes, sequence, start = [], [], 0
    for n, length in enumerate(lengths):
        stop = start + length
        inside = [row for row in range(share, rows, share) if start < row < stop] if share else []
        for first, last in zip([start, *inside], [*inside, stop], strict=True):
            sizes.append(last - first)
            sequence.append(n)
        start = stop
    return Parts(lengths=tuple(sizes), sequence=tuple(sequence))


def forward(
    x: Tokens,
    scale: float,
    initial: Tensor,
    parts: Parts,
    *,
    store: Store = exact,
    operand: Operand = as_is,
    fold: Operand = as_is,
) -> tuple[Tensor, Tensor]:
    """(o [T, H, V], final state [N, H, K, V]), as `recurrence.recurrence` in exact arithmetic.

    `fold` reads the operands of the products by which summaries are folded.
    """
    chunks = make_chunks(parts.lengths, len(x.q))
    split = Tokens(**{name: chunks.split(value) for name, value in x.to_dict().items()})
    c = within(split, scale, store, operand, operand)
    begun = _starts(c, chunks, parts, scale, initial, store, operand, fold)
    found = pass_states(c, chunks, scale, begun, store, operand)
    return chunks.join(found.o), found.final[parts.lasts]


def weigh_adjoint(
    x: Tokens,
    scale: float,
    initial: Tensor,
    parts: Parts,
    do: Tensor,
    dfinal: Tensor,
    *,
    store: Store = exact,
    operand: Operand = as_is,
    fold: Operand = as_is,
) -> tuple[Tokens, Tensor, Tensor]:
    """`chunk_adjoint.weigh_adjoint` of sequences in parts."""
    chunks = make_chunks(parts.lengths, len(x.q))
    split = Tokens(**{name: chunks.split(value) for name, value in x.to_dict().items()})
    c = within(split, scale, store, operand, operand)
    begun = _starts(c, chunks, parts, scale, initial, store, operand, fold)
    run = pass_states(c, chunks, scale, begun, store, operand)
    dout = chunks.split(do)
    ends = _ends(c, chunks, parts, scale, dout, dfinal, store, operand, fold)
    dn, dstates, dbegun = pass_back(c, chunks, scale, dout, ends, store, operand)
    grads, terms = within_adjoint(split, c, run, scale, dout, dn, dstates, store, operand)
    joined = Tokens(**{name: chunks.join(g) for name, g in grads.to_dict().items()})
    return joined, dbegun[parts.firsts], chunks.join(from_the_end(terms))


def _starts(
    c: Within,
    chunks: Chunks,
    parts: Parts,
    scale: float,
    initial: Tensor,
    store: Store,
    operand: Operand,
    fold: Operand,
) -> Tensor:
    """The state that each part begins with [P, H, K, V], merged from the summaries before it."""
    given = _at(parts, parts.firsts, initial)
    if len(parts.sequence) == len(initial):
        return given
    local = store("summary state", pass_states(c, chunks, scale, given, store, operand).final)
    begun = list(given)
    for n, (first, last) in enumerate(zip(parts.firsts, parts.lasts, strict=True)):
        assert parts.sequence[first] == n
        state = local[first]
        for part in range(first + 1, last + 1):
            begun[part] = store("merged state", state)
            if part < last:
                transition = store(
                    "summary transition", _transition(c, chunks, part, store, operand)
                )
                state = fold(transition) @ fold(state) + local[part]
    return torch.stack(begun)


def _ends(
    c: Within,
    chunks: Chunks,
    parts: Parts,
    scale: float,
    do: Tensor,
    dfinal: Tensor,
    store: Store,
    operand: Operand,
    fold: Operand,
) -> Tensor:
    """The gradient of the state that each part ends with [P, H, K, V], merged from those after it."""
    given = _at(parts, parts.lasts, dfinal)
    if len(parts.sequence) == len(dfinal):
        return given
    local = store("summary gradient", pass_back(c, chunks, scale, do, given, store, operand)[2])
    ends = list(given)
    for first, last in zip(parts.firsts, parts.lasts, strict=True):
        gradient = local[last]
        for part in range(last - 1, first - 1, -1):
            ends[part] = store("merged gradient", gradient)
            if part > first:
                back = store(
                    "summary transition", _transition_back(c, chunks, part, store, operand)
                )
                gradient = fold(back) @ fold(gradient) + local[part]
    return torch.stack(ends)


def _at(parts: Parts, places: Sequence[int], states: Tensor) -> Tensor:
    """`states` of sequences at these parts, one for each sequence; zeros at the others."""
    found = states.new_zeros(len(parts.sequence), *states.shape[1:])
    found[list(places)] = states
    return found


def _transition(c: Within, chunks: Chunks, part: int, store: Store, operand: Operand) -> Tensor:
    """M of one part, [H, K, K]; reading the identity it begins with rounds nothing."""
    state: Tensor | None = None
    for i in (i for i, n in enumerate(chunks.sequence) if n == part):
        if state is None:
            new = store("v_new", -operand(c.w[i]))
            state = torch.diag_embed(c.last[i]) + operand(c.kg[i]).mT @ operand(new)
        else:
            new = store("v_new", -(operand(c.w[i]) @ operand(store("state", state))))
            state = c.last[i][..., None] * state + operand(c.kg[i]).mT @ operand(new)
    assert state is not None
    return state


def _transition_back(
    c: Within, chunks: Chunks, part: int, store: Store, operand: Operand
) -> Tensor:
    """M^T of one part, [H, K, K], from its last chunk to its first."""
    state: Tensor | None = None
    for i in reversed([i for i, n in enumerate(chunks.sequence) if n == part]):
        if state is None:
            dn = store("dv_new", operand(c.kg[i]))
            state = torch.diag_embed(c.last[i]) - operand(c.w[i]).mT @ operand(dn)
        else:
            dn = store("dv_new", operand(c.kg[i]) @ operand(store("dstate", state)))
            state = c.last[i][..., None] * state - operand(c.w[i]).mT @ operand(dn)
    assert state is not None
    return state
