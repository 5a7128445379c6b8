"""Hints to the compiler are held to what they promise, as assumptions are."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def hinted(x, start, KIND: tl.constexpr, WHAT: tl.constexpr, VALUE: tl.constexpr):
    """Hints at offsets of the kind named."""
    i = tl.arange(0, 16)
    if KIND == "run":
        offsets = start + i
    elif KIND == "every fourth":
        offsets = start + 4 * i
    elif KIND == "fours":
        offsets = start + i // 4 * 4
    else:
        offsets = (start + i) % 10
    if WHAT == "multiple":
        offsets = tl.multiple_of(offsets, VALUE)
    elif WHAT == "contiguous":
        offsets = tl.max_contiguous(offsets, VALUE)
    else:
        offsets = tl.max_constancy(offsets, VALUE)
    tl.store(x + offsets, 1.0)


@triton.jit
def hinted_rows(x, VALUE: tl.constexpr):
    """Hints at a block of rows, contiguous along the last axis alone."""
    offsets = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    offsets = tl.max_contiguous(tl.multiple_of(offsets, (1, 8)), (1, VALUE))
    tl.store(x + offsets, 1.0)


@triton.jit
def hinted_pointer(x, VALUE: tl.constexpr):
    """Hints at an address, in bytes."""
    tl.store(tl.multiple_of(x, VALUE), 1.0)


@triton.jit
def hinted_stride(x, stride, VALUE: tl.constexpr):
    """Hints at a scalar argument."""
    stride = tl.multiple_of(stride, VALUE)
    tl.store(x + stride, 1.0)


@pytest.mark.parametrize(
    ("kind", "start", "what", "value", "holds"),
    [
        ("run", 16, "multiple", 16, True),
        ("run", 8, "multiple", 16, False),
        ("every fourth", 0, "multiple", 4, True),
        ("every fourth", 2, "multiple", 4, False),
        ("wrapped", 0, "multiple", 16, True),
        ("run", 3, "contiguous", 16, True),
        ("run", 3, "contiguous", 64, True),
        ("wrapped", 0, "contiguous", 16, False),
        ("wrapped", 0, "contiguous", 2, True),
        ("every fourth", 0, "contiguous", 2, False),
        ("fours", 1, "constancy", 4, True),
        ("fours", 1, "constancy", 8, False),
        ("run", 0, "constancy", 2, False),
    ],
)
def test_a_false_hint_is_reported(watched, kind, start, what, value, holds):
    """By the definitions of the language reference, on the values at hand; a true one is not."""
    found = watched(hinted, torch.zeros(128), start, kind, what, value).violations
    assert bool(found) is not holds
    for one in found:
        assert one.kind == "assert"
        assert f"[{value}] does not hold" in one.text
        assert "tl.m" in one.source_line


@pytest.mark.parametrize(("value", "holds"), [(8, True), (16, True)])
def test_a_hint_counts_along_its_own_axis(watched, value, holds):
    """Rows are judged one by one; a group longer than the axis is the axis."""
    assert bool(watched(hinted_rows, torch.zeros(32), value).violations) is not holds


@pytest.mark.parametrize(
    ("shift", "value", "holds"), [(0, 16, True), (4, 16, True), (1, 16, False)]
)
def test_divisibility_of_a_pointer_counts_bytes(watched, shift, value, holds):
    """Four elements of four bytes are sixteen."""
    memory = torch.zeros(256)
    shift += -memory.data_ptr() % 16 // 4
    assert bool(watched(hinted_pointer, memory[shift:], value).violations) is not holds


@pytest.mark.parametrize(("stride", "holds"), [(32, True), (24, False)])
def test_a_hint_at_a_scalar_is_held(watched, stride, holds):
    """As kernels give it for strides."""
    assert bool(watched(hinted_stride, torch.zeros(64), stride, 16).violations) is not holds
