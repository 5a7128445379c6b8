"""Liger's kernels on the interpreter lane."""

import pytest
import torch
from liger_kernel.ops.geglu import geglu_backward, geglu_forward
from liger_kernel.ops.layer_norm import layer_norm_backward, layer_norm_forward
from liger_kernel.ops.relu_squared import relu_squared_forward
from liger_kernel.ops.rms_norm import rms_norm_backward, rms_norm_forward
from liger_kernel.ops.rope import rope_forward
from liger_kernel.ops.softmax import _softmax_forward
from liger_kernel.ops.swiglu import swiglu_backward, swiglu_forward

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("mode", ["llama", "gemma", "none"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_runs_clean(clean, normal, mode, dtype):
    """Forward and backward in each casting mode, with libdevice's rsqrt and float arguments."""
    x, w, dy = normal(5, 100).to(dtype), normal(100, seed=1).to(dtype), normal(5, 100, seed=2)

    def call():
        y, _, rstd, block, warps, casting = rms_norm_forward(x, w, 1e-6, 0.0, mode, None)
        grads = rms_norm_backward(dy.to(dtype), x, w, rstd, 0.0, casting, block, warps, False, None)
        return (y, rstd, *grads)

    assert all(t.isfinite().all() for t in clean(call))


def test_rms_norm_of_ones_is_the_weight(clean, normal):
    """Rows of ones have a root mean square of one: the output is the weight, bit for bit."""
    weight = normal(100)
    y = clean(lambda: rms_norm_forward(torch.ones(3, 100), weight, 0.0, 0.0, "llama", None)[0])
    assert torch.equal(y, weight.expand(3, 100))


@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu_runs_clean(clean, normal, dtype):
    """Forward, and the backward that overwrites its inputs."""
    a, b, dc = (normal(5, 70, seed=seed).to(dtype) for seed in range(3))
    clean(lambda: swiglu_forward(a, b)[2])
    clean(lambda: swiglu_backward(a.clone(), b.clone(), dc))


def test_swiglu_of_zero_is_zero(clean, normal):
    """A closed gate lets nothing through."""
    assert not clean(lambda: swiglu_forward(torch.zeros(5, 70), normal(5, 70))[2]).any()


def test_geglu_runs_clean(clean, normal):
    """Forward and backward, with libdevice's tanh."""
    a, b, dc = (normal(5, 70, seed=seed) for seed in range(3))
    clean(lambda: geglu_forward(a, b)[2])
    clean(lambda: geglu_backward(a.clone(), b.clone(), dc))


def test_layer_norm_runs_clean(clean, normal):
    """Forward, and the backward that reduces over rows into one partial sum a program."""
    x, w, b, dy = normal(6, 40), normal(40, seed=1), normal(40, seed=2), normal(6, 40, seed=3)

    def call():
        y, _, mean, rstd, *_ = layer_norm_forward(x, w, b, 1e-5)
        return (y, *layer_norm_backward(dy, x, w, b, mean, rstd))

    clean(call)


def test_softmax_of_equal_scores_is_uniform(clean):
    """A row of 64 equal scores becomes 2^-6 everywhere."""
    y = clean(lambda: _softmax_forward(torch.full((3, 64), 7.0))[0])
    assert torch.equal(y, torch.full((3, 64), 2.0**-6))


def test_squared_relu_is_exact(clean, small):
    """Small integers are squared exactly."""
    x = small(4, 50)
    assert torch.equal(clean(lambda: relu_squared_forward(x)), x.clamp(min=0) ** 2)


def test_rope_by_zero_degrees_changes_nothing(clean, normal):
    """cos = 1 and sin = 0 leave queries and keys as they are."""
    q, k = normal(1, 6, 4, 16), normal(1, 6, 2, 16, seed=1)
    cos, sin = torch.ones(1, 6, 16), torch.zeros(1, 6, 16)

    def call():
        rotated = rope_forward(q.transpose(1, 2).clone(), k.transpose(1, 2).clone(), cos, sin)
        return rotated[:2]

    new_q, new_k = clean(call)
    assert torch.equal(new_q, q.transpose(1, 2))
    assert torch.equal(new_k, k.transpose(1, 2))
