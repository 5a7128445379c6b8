"""The gated delta rule as a recurrence over tokens, and its adjoint, in float64.

Per token t with key k, query q, log-decay g, erase gate b in R^K and value v, write gate w in R^V, on a
state S in R^(K x V) (flash-linear-attention RFC 1550, "Gated DeltaNet 2"):

    S'  = Diag(e^g) S                   decay
    n   = w * v - (b * k)^T S'          what is written, less what is erased
    S   = S' + k n^T
    o   = scale * q^T S

With b = w = beta, one number a token, it is Kimi Delta Attention. Tensors are packed: rows of all sequences
one after another, `lengths` of them, rows past the last being slack. A state is reset, or begins at its
sequence's initial one, wherever a sequence begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from bitproof.oracles.precision import Store, exact


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """float64 operands: q, k, g, b [T, H, K]; v, w [T, H, V]."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    b: Tensor
    w: Tensor

    def to_dict(self) -> dict[str, Tensor]:
        """The six by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class Run:
    """o [T, H, V], slack rows zero; final [N, H, K, V]; each token's S' and n if kept.

    Those are decayed [T, H, K, V] and written [T, H, V], zero in slack rows. All float64.
    """

    o: Tensor
    final: Tensor
    decayed: Tensor | None = None
    written: Tensor | None = None


def recurrence(
    x: Tokens,
    scale: float,
    initial: Tensor,
    lengths: Sequence[int],
    *,
    keep: bool = False,
    store: Store = exact,
) -> Run:
    """The recurrence from `initial` [N, H, K, V], all sequences a step at a time.

    `store` keeps states and n.
    """
    state = initial.clone()
    o = torch.zeros_like(x.v)
    decayed = x.q.new_zeros(*x.q.shape, x.v.shape[-1]) if keep else None
    written = torch.zeros_like(x.v) if keep else None
    for rows, active in _steps(lengths, state.device):
        faded = store("state", state[active] * x.g[rows].exp()[..., None])
        n = store("v_new", x.w[rows] * x.v[rows] - _read(x.b[rows] * x.k[rows], faded))
        if decayed is not None and written is not None:
            decayed[rows], written[rows] = faded, n
        after = store("state", faded + x.k[rows][..., None] * n[..., None, :])
        o[rows] = scale * _read(x.q[rows], after)
        state[active] = after
    return Run(o=o, final=state, decayed=decayed, written=written)


def adjoint(
    x: Tokens, scale: float, run: Run, lengths: Sequence[int], do: Tensor, dfinal: Tensor
) -> tuple[Tokens, Tensor]:
    """Gradients of the operands and of the initial state, from those of o and of the final state.

    `do` is [T, H, V], `dfinal` and what is returned for the initial state [N, H, K, V], all float64. The
    recurrence is differentiated token by token, backwards; dS is the gradient of the state after a token:

        dS <- dS + scale * q do^T       dq = scale * S do
        dn  = dS^T k                    dk = dS n - b * (S' dn)     db = -k * (S' dn)
        dv  = w * dn                    dw = v * dn
        dS' = dS - (b * k) dn^T         dg = sum over V of dS' * S'
        dS <- Diag(e^g) dS'

    `run` must be that of `recurrence` with `keep`; AssertionError where it was not kept.
    """
    assert run.decayed is not None
    assert run.written is not None
    grads = Tokens(**{name: torch.zeros_like(value) for name, value in x.to_dict().items()})
    dstate = dfinal.clone()
    for rows, active in reversed(list(_steps(lengths, dstate.device))):
        q, k, v, b, w = x.q[rows], x.k[rows], x.v[rows], x.b[rows], x.w[rows]
        faded, n = run.decayed[rows], run.written[rows]
        after = faded + k[..., None] * n[..., None, :]
        ds = dstate[active] + scale * q[..., None] * do[rows][..., None, :]
        grads.q[rows] = scale * _dot(after, do[rows])
        dn = _read(k, ds)
        grads.v[rows], grads.w[rows] = w * dn, v * dn
        erased = -_dot(faded, dn)
        grads.k[rows] = _dot(ds, n) + b * erased
        grads.b[rows] = k * erased
        ds = ds - (b * k)[..., None] * dn[..., None, :]
        grads.g[rows] = (ds * faded).sum(-1)
        dstate[active] = ds * x.g[rows].exp()[..., None]
    return grads, dstate


def _steps(lengths: Sequence[int], device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """For each step: the rows of its tokens and the sequences that they belong to, both on `device`."""
    sizes = torch.tensor(list(lengths), dtype=torch.int64)
    order = torch.argsort(sizes, descending=True, stable=True)
    first = (torch.cumsum(sizes, 0) - sizes)[order].to(device)
    active = order.to(device)
    for step in range(max(lengths, default=0)):
        count = int((sizes > step).sum())
        yield first[:count] + step, active[:count]


def _read(row: Tensor, state: Tensor) -> Tensor:
    """row^T state: [.., K], [.., K, V] -> [.., V]."""
    return (row[..., None, :] @ state).squeeze(-2)


def _dot(state: Tensor, column: Tensor) -> Tensor:
    """state column: [.., K, V], [.., V] -> [.., K]."""
    return (state @ column[..., None]).squeeze(-1)
