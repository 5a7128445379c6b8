"""The gated delta rule in chunks of 64 tokens, exactly or with the roundings of what a kernel stores.

With G the cumulative log-decay of a chunk, `scores` and `L` the decayed products of q and of b * k with
earlier k, and S the state at its start (flash-linear-attention RFC 1550; WY representation):

    A = (I + L)^-1      u = A (w * v)       w_wy = A (b * k * e^G)
    n = u - w_wy S      o = scale * (q * e^G) S + scores n
    S <- Diag(e^(G_last)) S + (k * e^(G_last - G))^T n

Every intermediate passes through `store`, every operand of a product through `operand`: both do nothing in
exact arithmetic, and round where the kernel does in the storage model. Decayed products are taken by halves
(see `halves`), so that no factor exceeds 1 whatever the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from bitproof.oracles.delta.recurrence import Tokens
from bitproof.oracles.precision import Store, exact

CHUNK: Final = 64

Operand = Callable[[Tensor], Tensor]


def as_is(x: Tensor) -> Tensor:
    """An operand that a product reads exactly."""
    return x


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """Which rows make up a chunk: `rows` [C, 64] into T + 1, T where there is none; `sequence` [C]."""

    rows: Tensor
    sequence: tuple[int, ...]
    tokens: int

    def split(self, x: Tensor) -> Tensor:
        """[T, H, D] -> [C, H, 64, D], zeros where there is no row."""
        padded = torch.cat([x, x.new_zeros(1, *x.shape[1:])])
        return padded[self.rows.to(x.device)].transpose(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """[C, H, 64, D] -> [T, H, D], zeros in rows that are in no chunk."""
        out = x.new_zeros(self.tokens + 1, x.shape[1], x.shape[3])
        out[self.rows.to(x.device)] = x.transpose(1, 2)
        return out[: self.tokens]


def make_chunks(lengths: Sequence[int], tokens: int) -> Chunks:
    """The chunks of each sequence in turn, from its first token on; the last may be partial."""
    rows, sequence, start = [], [], 0
    for n, length in enumerate(lengths):
        for first in range(0, length, CHUNK):
            index = torch.arange(first, first + CHUNK)
            rows.append(torch.where(index < length, start + index, tokens))
            sequence.append(n)
        start += length
    table = torch.stack(rows) if rows else torch.zeros(0, CHUNK, dtype=torch.int64)
    return Chunks(rows=table, sequence=tuple(sequence), tokens=tokens)


def halves() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For block sizes 1, 2, 4, ..., 32: (reference rows [64], lower rows [64], mask [64, 64]).

    A block of 2s rows has an upper and a lower half; the mask picks its lower-left quarter. Both halves'
    decay is counted from the first row of the lower one, which no element of the quarter lies before.
    """
    row = torch.arange(CHUNK)
    size = 1
    while size < CHUNK:
        lower = row // size % 2 == 1
        reference = row // (2 * size) * (2 * size) + size
        same = row[:, None] // (2 * size) == row[None, :] // (2 * size)
        yield reference, lower, same & lower[:, None] & ~lower[None, :]
        size *= 2


@dataclass(frozen=True, kw_only=True)
class Half:
    """One half of the blocks of some size: which rows, and their decay from or to the reference row."""

    rows: Tensor
    factor: Tensor

    def of(self, x: Tensor) -> Tensor:
        """x times its decay, zero in the other half's rows."""
        return torch.where(self.rows, x * self.factor, 0.0)


def fade_halves(decay: Tensor) -> Iterator[tuple[Half, Half, Tensor]]:
    """For each block size: (upper half, lower half, mask) of cumulative log-decays [.., 64, K]."""
    for reference, rows, mask in halves():
        lower = rows.to(decay.device)[:, None]
        distance = decay - decay[..., reference.to(decay.device), :]
        yield (
            Half(rows=~lower, factor=torch.where(lower, 0.0, -distance).exp()),
            Half(rows=lower, factor=torch.where(lower, distance, 0.0).exp()),
            mask.to(decay.device),
        )


@dataclass(frozen=True, kw_only=True)
class Within:
    """What the tokens of each chunk make of one another, [C, H, ...]."""

    decay: Tensor  # G [64, K]
    q: Tensor
    k: Tensor
    scores: Tensor  # [64, 64], scale included
    inverse: Tensor  # [64, 64]
    write: Tensor  # w * v
    erase: Tensor  # b * k * e^G
    u: Tensor
    w: Tensor
    qg: Tensor
    kg: Tensor
    last: Tensor  # e^(G_last) [K]


def within(x: Tokens, scale: float, store: Store, operand: Operand, solve: Operand) -> Within:
    """`x` in chunks [C, H, 64, ...]; `solve` reads the operands of the triangular inverse."""
    decay = x.g.cumsum(-2)
    q, k = store("qk", x.q), store("qk", x.k)
    bk = x.b * k
    scores = torch.diag_embed((q * k).sum(-1))
    lower = torch.zeros_like(scores)
    for upper, under, mask in fade_halves(decay):
        right = operand(upper.of(k)).mT
        scores = scores + torch.where(mask, operand(under.of(q)) @ right, 0.0)
        lower = lower + torch.where(mask, operand(under.of(bk)) @ right, 0.0)
    scores = store("scores", scale * scores)
    a = store("inverse", invert(lower, solve))
    write, erase = store("write", x.w * x.v), store("erase", bk * decay.exp())
    return Within(
        decay=decay,
        q=q,
        k=k,
        scores=scores,
        inverse=a,
        write=write,
        erase=erase,
        u=store("u", operand(a) @ operand(write)),
        w=store("w", operand(a) @ operand(erase)),
        qg=store("qg", q * decay.exp()),
        kg=store("kg", k * (decay[..., -1:, :] - decay).exp()),
        last=store("last", decay[..., -1, :].exp()),
    )


def invert(lower: Tensor, operand: Operand = as_is) -> Tensor:
    """(I + L)^-1 of strictly lower triangular L [.., 64, 64], by blocks of doubling size.

    Where X inverts the diagonal blocks of size s and B holds the quarters between them, X - X B X inverts
    those of size 2s.
    """
    x = torch.eye(CHUNK, dtype=lower.dtype, device=lower.device).expand_as(lower)
    for _, _, mask in halves():
        quarter = torch.where(mask.to(lower.device), lower, 0.0)
        x = x - operand(operand(x) @ operand(quarter)) @ operand(x)
    return x


@dataclass(frozen=True, kw_only=True)
class Pass:
    """The pass over states: o [C, H, 64, V], v_new alike, states at chunk starts [C, H, K, V], finals."""

    o: Tensor
    v_new: Tensor
    states: Tensor
    final: Tensor


def pass_states(
    c: Within, chunks: Chunks, scale: float, initial: Tensor, store: Store, operand: Operand
) -> Pass:
    """From the states `initial` [N, H, K, V] through every sequence's chunks in turn."""
    running = list(initial.clone())
    o, v_new, states = torch.zeros_like(c.u), torch.zeros_like(c.u), []
    for i, n in enumerate(chunks.sequence):
        state = store("state", running[n])
        new = store("v_new", c.u[i] - operand(c.w[i]) @ operand(state))
        o[i] = scale * (operand(c.qg[i]) @ operand(state)) + operand(c.scores[i]) @ operand(new)
        running[n] = c.last[i][..., None] * running[n] + operand(c.kg[i]).mT @ operand(new)
        v_new[i] = new
        states.append(state)
    kept = torch.stack(states) if states else initial.new_zeros(0, *initial.shape[1:])
    return Pass(o=o, v_new=v_new, states=kept, final=torch.stack(running) if running else initial)


def forward(
    x: Tokens,
    scale: float,
    initial: Tensor,
    lengths: Sequence[int],
    *,
    store: Store = exact,
    operand: Operand = as_is,
    solve: Operand = as_is,
) -> tuple[Tensor, Tensor]:
    """(o [T, H, V], final state [N, H, K, V]), as `recurrence.recurrence` in exact arithmetic."""
    chunks = make_chunks(lengths, len(x.q))
    parts = Tokens(**{name: chunks.split(value) for name, value in x.to_dict().items()})
    c = within(parts, scale, store, operand, solve)
    found = pass_states(c, chunks, scale, initial, store, operand)
    return chunks.join(found.o), found.final
