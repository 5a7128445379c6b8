"""flash-linear-attention's cumulative sums and recurrent kernels on the interpreter lane."""

import itertools
import warnings

import pytest
import torch

with warnings.catch_warnings():
    # fla says at import that it found no GPU.
    warnings.simplefilter("ignore")
    from fla.ops.delta_rule import fused_recurrent_delta_rule
    from fla.ops.gated_delta_rule import (
        chunk_gated_delta_rule,
        fused_recurrent_gated_delta_rule,
    )
    from fla.ops.gla import fused_recurrent_gla
    from fla.ops.linear_attn import fused_recurrent_linear_attn
    from fla.ops.utils.cumsum import chunk_global_cumsum, chunk_local_cumsum

CUTS = [None, [0, 40, 130]]


def by_chunks(x, cuts, chunk, reverse):
    """Cumulative sums of `x` along its second axis, restarted at every chunk of every sequence."""
    cuts = cuts or [0, x.shape[1]]
    pieces = []
    for start, end in itertools.pairwise(cuts):
        for at in range(start, end, chunk or end - start):
            part = x[:, at : min(at + chunk, end) if chunk else end]
            pieces.append(part.flip(1).cumsum(1).flip(1) if reverse else part.cumsum(1))
    return torch.cat(pieces, 1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("shape", [(1, 130, 2), (1, 130, 2, 24)])
def test_local_cumsum_is_exact(clean, small, shape, cuts, reverse):
    """Sums of small integers within chunks of 64, of scalars and vectors, packed or not."""
    x = small(*shape)
    lengths = None if cuts is None else torch.tensor(cuts)
    y = clean(lambda: chunk_local_cumsum(x, 64, reverse=reverse, cu_seqlens=lengths))
    assert torch.equal(y, by_chunks(x, cuts, 64, reverse))


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("shape", [(1, 130, 2), (1, 130, 2, 24)])
def test_global_cumsum_is_exact(clean, small, shape, cuts):
    """Sums of small integers over whole sequences."""
    x = small(*shape)
    lengths = None if cuts is None else torch.tensor(cuts)
    y = clean(lambda: chunk_global_cumsum(x, cu_seqlens=lengths))
    assert torch.equal(y, by_chunks(x, cuts, None, False))


def test_recurrent_linear_attention_is_exact(clean, small):
    """The output is q_t times the sum of k_s v_s up to t, exact for small integers."""
    q, k, v = (small(1, 9, 2, 16, seed=seed) for seed in range(3))
    y, _ = clean(
        lambda: fused_recurrent_linear_attn(
            q, k, v, scale=1.0, normalize=False, output_final_state=True
        )
    )
    scores = torch.einsum("bthd,bshd->bhts", q, k).tril()
    assert torch.equal(y, torch.einsum("bhts,bshd->bthd", scores, v))


def recurrences(normal):
    """Calls of fla's recurrent kernels and of one chunked one, by name."""
    q, k, v = (normal(1, 20, 2, 16, seed=seed) for seed in range(3))
    k = torch.nn.functional.normalize(k, dim=-1)
    beta = torch.sigmoid(normal(1, 20, 2, seed=3))
    gate, vector_gate = -normal(1, 20, 2, seed=4).abs(), -normal(1, 20, 2, 16, seed=5).abs()
    cuts = torch.tensor([0, 7, 7, 20])
    final = {"output_final_state": True}
    return {
        "delta": lambda: fused_recurrent_delta_rule(q, k, v, beta, scale=1.0, **final),
        "gated delta": lambda: fused_recurrent_gated_delta_rule(
            q, k, v, g=gate, beta=beta, **final
        ),
        "gated delta, packed": lambda: fused_recurrent_gated_delta_rule(
            q, k, v, g=gate, beta=beta, cu_seqlens=cuts, **final
        ),
        "gated linear": lambda: fused_recurrent_gla(q, k, v, gk=vector_gate, **final),
        "chunked gated delta": lambda: chunk_gated_delta_rule(q, k, v, g=gate, beta=beta, **final),
    }


@pytest.mark.parametrize(
    "name",
    ["delta", "gated delta", "gated delta, packed", "gated linear", "chunked gated delta"],
)
def test_a_recurrence_runs_clean(clean, normal, name):
    """Token by token and in chunks: nothing to report, finite, the same bits in any order."""
    y, state = clean(recurrences(normal)[name])
    assert y.isfinite().all()
    assert state.isfinite().all()


def test_a_gate_of_the_wrong_shape_is_reported(clean, normal):
    """A scalar gate passed where one a channel belongs is read past its end."""
    q, k, v = (normal(1, 20, 2, 16, seed=seed) for seed in range(3))
    wrong = -normal(1, 20, 2, seed=3).abs()
    with pytest.raises(AssertionError, match=r"gk\[0, 20, 0\]"):
        clean(lambda: fused_recurrent_gated_delta_rule(q, k, v, gk=wrong))
