"""The adjoint of the gated delta rule in chunks, exactly or with the roundings of what a kernel stores.

Notation of `oracles.delta.chunk`. With d the gradient of what follows it, per chunk (differentiated from
the chunk form; agrees with `oracles.delta.recurrence.adjoint`):

    dscores = do n^T                        dn    = scores^T do + kg dS_out
    dw_wy   = -dn S^T                       dA    = dn (w * v)^T + dw_wy (b * k * e^G)^T
    dL      = -A^T dA A^T                   dS    = Diag(e^(G_last)) dS_out + scale * qg^T do - w_wy^T dn

and dG, the gradient of the cumulative log-decay, is what each factor e^G hands back. For rows i and j of
a chunk, with dbk the gradient of b * k, and dw that of the gate w:

    dq_i  = scale * (e^(G_i) * (S do_i) + sum_(j <= i) dscores_ij e^(G_i - G_j) * k_j)
    dbk_i = e^(G_i) * (A^T dw_wy)_i + sum_(j < i) dL_ij e^(G_i - G_j) * k_j
    dkg_j = e^(G_last - G_j) * (dS_out n_j)
    dks_j = sum_(i >= j) e^(G_i - G_j) * (scale * dscores_ij q_i + dL_ij b_i * k_i)
    dk    = dkg + dks + b * dbk             db = k * dbk
    dv    = w * (A^T dn)                    dw = v * (A^T dn)
    dG    = q * dq + b * k * dbk - k * (dkg + dks)
    dg_i  = sum_(j >= i) dG_j

where the last row of dG also has sum_j k_j * dkg_j and the sum of e^(G_last) * S * dS_out over V.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bitproof.oracles.delta.chunk import (
    Chunks,
    Operand,
    Pass,
    Within,
    as_is,
    fade_halves,
    make_chunks,
    pass_states,
    within,
)
from bitproof.oracles.delta.recurrence import Tokens
from bitproof.oracles.precision import Store, exact


def adjoint(
    x: Tokens,
    scale: float,
    initial: Tensor,
    lengths: Sequence[int],
    do: Tensor,
    dfinal: Tensor,
    *,
    store: Store = exact,
    operand: Operand = as_is,
    solve: Operand = as_is,
) -> tuple[Tokens, Tensor]:
    """Gradients of the operands and of the initial state, as `oracles.delta.recurrence.adjoint` gives them.

    `do` is [T, H, V], `dfinal` and `initial` [N, H, K, V], float64.
    """
    grads, dinitial, _ = weigh_adjoint(
        x, scale, initial, lengths, do, dfinal, store=store, operand=operand, solve=solve
    )
    return grads, dinitial


def weigh_adjoint(
    x: Tokens,
    scale: float,
    initial: Tensor,
    lengths: Sequence[int],
    do: Tensor,
    dfinal: Tensor,
    *,
    store: Store = exact,
    operand: Operand = as_is,
    solve: Operand = as_is,
) -> tuple[Tokens, Tensor, Tensor]:
    """`adjoint`, and the sum [T, H, K] of the magnitudes of all that is added up to the gradient of g.

    Terms of that gradient cancel, in part or wholly; their errors do not.
    """
    chunks = make_chunks(lengths, len(x.q))
    parts = Tokens(**{name: chunks.split(value) for name, value in x.to_dict().items()})
    c = within(parts, scale, store, operand, solve)
    run = pass_states(c, chunks, scale, initial, store, operand)
    dout = chunks.split(do)
    dn, dstates, dinitial = pass_back(c, chunks, scale, dout, dfinal, store, operand)
    grads, terms = within_adjoint(parts, c, run, scale, dout, dn, dstates, store, operand)
    joined = Tokens(**{name: chunks.join(g) for name, g in grads.to_dict().items()})
    return joined, dinitial, chunks.join(from_the_end(terms))


def pass_back(
    c: Within,
    chunks: Chunks,
    scale: float,
    do: Tensor,
    dfinal: Tensor,
    store: Store,
    operand: Operand,
) -> tuple[Tensor, Tensor, Tensor]:
    """(gradients of v_new, of the states at chunk ends as read, of the initial states).

    `do` is [C, H, 64, V]; `dfinal` [N, H, K, V], as is the last that is returned.
    """
    running = list(dfinal.clone())
    dn = torch.zeros_like(c.u)
    dstates = [dfinal.new_zeros(dfinal.shape[1:])] * len(chunks.sequence)
    for i, n in reversed(list(enumerate(chunks.sequence))):
        dstates[i] = store("dstate", running[n])
        local = operand(c.scores[i]).mT @ operand(do[i])
        dn[i] = store("dv_new", local + operand(c.kg[i]) @ operand(dstates[i]))
        running[n] = (
            c.last[i][..., None] * running[n]
            + scale * (operand(c.qg[i]).mT @ operand(do[i]))
            - operand(c.w[i]).mT @ operand(dn[i])
        )
    kept = torch.stack(dstates) if dstates else dfinal.new_zeros(0, *dfinal.shape[1:])
    return dn, kept, torch.stack(running) if running else dfinal


def within_adjoint(
    x: Tokens,
    c: Within,
    run: Pass,
    scale: float,
    do: Tensor,
    dn: Tensor,
    dstates: Tensor,
    store: Store,
    operand: Operand,
) -> tuple[Tokens, Tensor]:
    """Gradients of the operands of each chunk [C, H, 64, ...], and the magnitudes of dG's terms."""
    grown, fading = c.decay.exp(), (c.decay[..., -1:, :] - c.decay).exp()
    dq = scale * (operand(do) @ operand(run.states).mT) * grown
    dk = (operand(run.v_new) @ operand(dstates).mT) * fading
    read, carried, kept = c.q * dq, c.k * dk, run.states * dstates
    terms = read.abs() + carried.abs()
    terms[..., -1, :] += kept.abs().sum(-1) * c.last + carried.abs().sum(-2)
    ddecay = read - carried
    ddecay[..., -1, :] += kept.sum(-1) * c.last + carried.sum(-2)

    dw = store("dw", -(operand(dn) @ operand(run.states).mT))
    dinverse = operand(dn) @ operand(c.write).mT + operand(dw) @ operand(c.erase).mT
    dinverse = store("dinverse", dinverse.tril(-1))
    half = store("dinverse", operand(c.inverse).mT @ operand(dinverse))
    dlower = -(operand(half) @ operand(c.inverse).mT).tril(-1)
    dwrite = operand(c.inverse).mT @ operand(dn)
    derase = operand(c.inverse).mT @ operand(dw)
    dbk = derase * grown
    erased = dbk * x.b * c.k
    terms, ddecay = terms + erased.abs(), ddecay + erased

    dscores = scale * (operand(do) @ operand(run.v_new).mT).tril()
    dq_in, dbk_in, dk_in = _scores_adjoint(x.b * c.k, c, dscores, dlower, operand)
    for term in (c.q * dq_in, x.b * c.k * dbk_in, -c.k * dk_in):
        terms, ddecay = terms + term.abs(), ddecay + term
    diagonal = torch.diagonal(dscores, dim1=-2, dim2=-1)[..., None]
    dbk = dbk + dbk_in
    grads = Tokens(
        q=dq + dq_in + diagonal * c.k,
        k=dk + dk_in + diagonal * c.q + x.b * dbk,
        v=x.w * dwrite,
        g=from_the_end(ddecay),
        b=c.k * dbk,
        w=x.v * dwrite,
    )
    return grads, terms


def from_the_end(x: Tensor) -> Tensor:
    """Cumulative sums of rows [.., 64, K] from the last one on."""
    return x.flip(-2).cumsum(-2).flip(-2)


def _scores_adjoint(
    bk: Tensor, c: Within, dscores: Tensor, dlower: Tensor, operand: Operand
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, of b * k and of k by the decayed products below the diagonal."""
    dq, dbk, dk = (torch.zeros_like(c.q) for _ in range(3))
    for upper, under, mask in fade_halves(c.decay):
        by_q = operand(torch.where(mask, dscores, 0.0))
        by_bk = operand(torch.where(mask, dlower, 0.0))
        right = operand(upper.of(c.k))
        dq = dq + under.of(by_q @ right)
        dbk = dbk + under.of(by_bk @ right)
        left = by_q.mT @ operand(under.of(c.q)) + by_bk.mT @ operand(under.of(bk))
        dk = dk + upper.of(left)
    return dq, dbk, dk
