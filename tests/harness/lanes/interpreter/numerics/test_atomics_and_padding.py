"""Memory operations on small floats: padding with NaN, atomic additions in bf16."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def _load_past_the_end(x, y, N: tl.constexpr):
    rows = tl.make_tensor_descriptor(x, [12, 16], [16, 1], [N, N], padding_option="nan")
    i = tl.arange(0, N)
    tl.store(y + i[:, None] * N + i[None, :], rows.load([0, 0]).to(tl.float32))


@triton.jit
def _add_twice(x, y, old, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.atomic_add(y + i, a)
    tl.store(old + i, tl.atomic_add(y + i, a, mask=i < N - 1))


@triton.jit
def _add_all_to_one(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(y + i * 0, tl.load(x + i))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_padding_with_nan_is_nan_in_every_type(interpret, dtype):
    """A descriptor's padding is NaN, not the integer zero that numpy makes of it."""
    x, y = torch.ones(12, 16, dtype=dtype), torch.zeros(16, 16)
    interpret(_load_past_the_end, x, y, 16)
    assert (y[:12] == 1).all()
    assert y[12:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_atomic_additions_round_in_their_type(interpret, dtype):
    """Each atomic addition rounds once, gives the old value, and leaves masked lanes alone."""
    x = torch.tensor([1.0, 2.5, 256.0, 3.0], dtype=dtype)
    y, old = torch.ones(4, dtype=dtype), torch.zeros(4, dtype=dtype)
    interpret(_add_twice, x, y, old, 4)
    once = torch.ones(4, dtype=dtype) + x
    twice = torch.where(torch.arange(4) < 3, once + x, once)
    assert torch.equal(y, twice)
    assert torch.equal(old[:3], once[:3])


def test_atomic_additions_to_one_element_all_count(interpret):
    """Lanes that meet at one bf16 element add one after another."""
    y = torch.zeros(1, dtype=torch.bfloat16)
    interpret(_add_all_to_one, torch.ones(64, dtype=torch.bfloat16), y, 64)
    assert y.item() == 64.0
