"""moe-ops' grouped products and routing on the interpreter lane."""

import pytest
import torch
from moe_ops import fused_topk_softmax, permute, unpermute
from moe_ops.grouped_gemm_ops import gmm_try_fn, gmm_try_gradB

SPLITS = [[7, 0, 13], [0, 0, 20], [20, 0, 0], [1, 18, 1]]


def offsets(split):
    """Where each expert's rows start, and where the last ones end."""
    return torch.tensor([0, *split]).cumsum(0)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_grouped_product_is_exact(clean, small, split, dtype):
    """Small integers, ragged and empty experts: each row times its own expert's weights."""
    a, b = small(20, 24).to(dtype), small(3, 16, 24, seed=1).to(dtype)
    product = clean(lambda: gmm_try_fn(a, b, offsets(split), True))
    rows = a.double().split(split)
    exact = torch.cat([part @ weight.double().T for part, weight in zip(rows, b, strict=True)])
    assert torch.equal(product, exact.to(dtype))


@pytest.mark.parametrize("split", SPLITS)
def test_the_weight_gradient_is_exact(clean, small, split):
    """An expert without rows gets a gradient of zeros."""
    a, dy, b = small(20, 24), small(20, 16, seed=1), torch.empty(3, 16, 24)
    gradient = clean(lambda: gmm_try_gradB(a, b, offsets(split), dy, True))
    pairs = zip(dy.split(split), a.split(split), strict=True)
    assert torch.equal(gradient, torch.stack([one.T @ other for one, other in pairs]))


def test_routing_and_back_is_the_identity(clean, normal):
    """Tokens sent to two experts each and gathered with weights one half come back unchanged."""
    logits, x = normal(9, 8), normal(9, 32, seed=1)
    weights, indices = clean(lambda: fused_topk_softmax(logits, K=2))

    def route():
        sent, rows, _ = permute(x, indices.to(torch.int32), E=8)
        return unpermute(sent, rows, torch.full_like(weights, 0.5), num_tokens=9, num_topK=2)

    assert torch.equal(clean(route), x)
