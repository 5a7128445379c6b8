"""Reductions and scans on the interpreter lane: the compiled accumulation type, NaN, wrap-around."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])
NAN = float("nan")


@triton.jit
def _pick_greater(a, b):
    if a > b:  # noqa: SIM108
        r = a
    else:
        r = b
    return r


@triton.jit
def _affine(decay, value, next_decay, next_value):
    return decay * next_decay, value * next_decay + next_value


@triton.jit
def _keep_last(a, b):
    return b


@triton.jit
def _reduce(x, y, OP: tl.constexpr, N: tl.constexpr):
    a = tl.load(x + tl.arange(0, N))
    if OP == "sum":
        r = tl.sum(a)
    elif OP == "max":
        r = tl.max(a)
    elif OP == "min":
        r = tl.min(a)
    elif OP == "argmax":
        r = tl.argmax(a, 0)
    elif OP == "argmin":
        r = tl.argmin(a, 0)
    elif OP == "xor":
        r = tl.xor_sum(a)
    elif OP == "branching":
        r = tl.reduce(a, 0, _pick_greater)
    elif OP == "last":
        r = tl.reduce(a, 0, _keep_last)
    tl.store(y, r)


@triton.jit
def _max_with_index(x, y, index, N: tl.constexpr):
    value, where = tl.max(tl.load(x + tl.arange(0, N)), 0, return_indices=True)
    tl.store(y, value)
    tl.store(index, where)


@triton.jit
def _sum_axis(x, y, AXIS: tl.constexpr, KEEP: tl.constexpr, N: tl.constexpr, M: tl.constexpr):
    a = tl.load(x + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :])
    r = tl.sum(a, axis=AXIS, keep_dims=KEEP)
    if AXIS is None:
        tl.store(y, tl.sum(r))
    else:
        tl.store(y + tl.arange(0, N * M // (N if AXIS == 0 else M)), tl.ravel(r))


@triton.jit
def _scan(x, y, OP: tl.constexpr, REVERSE: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    if OP == "sum":
        r = tl.cumsum(a, 0, reverse=REVERSE)
    elif OP == "prod":
        r = tl.cumprod(a, 0, reverse=REVERSE)
    elif OP == "affine":
        _, r = tl.associative_scan((a * 0 + 2, a), 0, _affine, reverse=REVERSE)
    elif OP == "branching":
        r = tl.associative_scan(a, 0, _pick_greater, reverse=REVERSE)
    tl.store(y + i, r)


@triton.jit
def _histogram(x, y, N: tl.constexpr):
    a = tl.load(x + tl.arange(0, N))
    tl.store(y + tl.arange(0, 4), tl.histogram(a, 4, mask=a != 1))


@triton.jit
def _sort(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.sort(tl.load(x + i)))


def _reduced(interpret, op, x, dtype=None):
    y = torch.zeros(1, dtype=dtype or x.dtype)
    interpret(_reduce, x, y, op, x.numel())
    return y.item()


def _scanned(interpret, op, x, reverse=False, dtype=None):
    y = torch.zeros(x.numel(), dtype=dtype or x.dtype)
    interpret(_scan, x, y, op, reverse, x.numel())
    return y


def test_a_sum_of_ones_is_their_number(interpret):
    """The stock interpreter adds the bit patterns of bf16 ones to -2.66e36."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int8):
        assert _reduced(interpret, "sum", torch.ones(8, dtype=dtype)) == 8


def test_bf16_sums_accumulate_in_bf16(interpret):
    """512 ones in pairs are exact, and 256 + 1 is lost in eight significant bits."""
    assert _reduced(interpret, "sum", torch.ones(512, dtype=torch.bfloat16), torch.float32) == 512
    x = torch.tensor([256.0, 1.0], dtype=torch.bfloat16)
    assert _reduced(interpret, "sum", x, torch.float32) == 256
    assert _reduced(interpret, "sum", x.float(), torch.float32) == 257


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integer_sums_wrap_around(interpret, dtype):
    """2^(n-1) + 2^(n-1) is zero, not an error."""
    half = torch.iinfo(dtype).min
    assert _reduced(interpret, "sum", torch.tensor([half, half, 3, 0], dtype=dtype)) == 3


def test_narrow_integers_are_summed_in_32_bits(interpret):
    """int8 sums do not wrap at 8 bits."""
    x = torch.full((64,), 100, dtype=torch.int8)
    assert _reduced(interpret, "sum", x, torch.int32) == 6400


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extremes_ignore_nan_unless_all_are(interpret, dtype):
    """max and min of numbers and NaN are those of the numbers."""
    x = torch.tensor([1.0, NAN, 5.0, -2.0], dtype=dtype)
    assert _reduced(interpret, "max", x) == 5.0
    assert _reduced(interpret, "min", x) == -2.0
    assert np.isnan(_reduced(interpret, "max", torch.full((4,), NAN, dtype=dtype)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_arg_extremes_take_the_first_of_equals(interpret, dtype):
    """argmax and argmin point at the leftmost extreme, and agree with max and min."""
    x = torch.tensor([1, 7, 0, 7, 0, 3, 2, 1], dtype=dtype)
    assert _reduced(interpret, "argmax", x, torch.int32) == 1
    assert _reduced(interpret, "argmin", x, torch.int32) == 2
    y, index = torch.zeros(1, dtype=dtype), torch.zeros(1, dtype=torch.int32)
    interpret(_max_with_index, x, y, index, 8)
    assert (y.item(), index.item()) == (7, 1)


def test_argmax_with_nan_follows_its_combine_function(interpret):
    """`value1 > value2` fails on NaN, so the later half wins; no search ignores NaN behind its back."""
    x = torch.tensor([9.0, 1.0, NAN, 2.0])
    y, index = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    interpret(_max_with_index, x, y, index, 4)
    assert (y.item(), index.item()) == (2.0, 3)


def test_combine_functions_may_branch(interpret):
    """A combine function with an `if` on its scalars runs element after element."""
    assert _reduced(interpret, "branching", torch.tensor([3.0, 9.0, -1.0, 4.0])) == 9.0
    x = torch.tensor([3.0, 1.0, 5.0, 2.0])
    assert _scanned(interpret, "branching", x).tolist() == [3.0, 3.0, 5.0, 5.0]


def test_combination_keeps_the_order_of_its_operands(interpret):
    """Combining halves is only allowed because the function is associative; sides never swap."""
    assert _reduced(interpret, "last", torch.arange(64, dtype=torch.float32)) == 63.0


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("keep", [False, True])
def test_sums_along_an_axis(interpret, axis, keep):
    """Each axis, and all of them, sum as torch does; kept dimensions change no value."""
    x = torch.arange(32, dtype=torch.float32).reshape(4, 8)
    y = torch.zeros(8 if axis == 0 else 4)
    interpret(_sum_axis, x, y, axis, keep, 4, 8)
    if axis is None:
        assert y[0] == x.sum()
    else:
        assert torch.equal(y, x.sum(axis))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_cumulative_sums(interpret, dtype, reverse):
    """Small whole numbers have exact prefix sums in every type and direction."""
    x = (torch.arange(16) % 5 - 2).to(dtype)
    exact = x.double().flip(0).cumsum(0).flip(0) if reverse else x.double().cumsum(0)
    assert torch.equal(_scanned(interpret, "sum", x, reverse).double(), exact)


def test_bf16_cumulative_sums_follow_the_installed_triton(interpret):
    """bf16 cumsum accumulates in fp32 up to triton 3.8 and in bf16 from 3.9."""
    x = torch.tensor([256.0, 1.0], dtype=torch.bfloat16)
    last = _scanned(interpret, "sum", x, dtype=torch.float32)[-1].item()
    assert last == (256.0 if TRITON >= (3, 9) else 257.0)


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_with_a_combine_function_of_the_kernel(interpret, reverse):
    """A first-order recurrence scans to what a loop gives."""
    x = torch.arange(16, dtype=torch.float32) % 3
    got = _scanned(interpret, "affine", x, reverse)
    state, expected = 0.0, []
    for value in x.flip(0).tolist() if reverse else x.tolist():
        state = 2 * state + value
        expected.append(state)
    assert got.tolist() == (expected[::-1] if reverse else expected)


def test_cumulative_products_of_powers_of_two(interpret):
    """Products of powers of two are exact."""
    x = torch.tensor([2.0, 0.5, 4.0, -1.0, 2.0, 2.0, 0.25, 1.0])
    assert torch.equal(_scanned(interpret, "prod", x), x.cumprod(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_sorting_compares_values(interpret, dtype):
    """`tl.sort`, which is made of exclusive ors and comparisons, sorts negative bf16 too."""
    x = torch.tensor([3, -1, 7, -8, 0, 2, -5, 4], dtype=dtype)
    y = torch.zeros_like(x)
    interpret(_sort, x, y, 8)
    assert torch.equal(y, x.sort().values)


def test_exclusive_or_of_integers(interpret):
    """`tl.xor_sum` is exact."""
    x = torch.tensor([5, 9, -3, 1], dtype=torch.int32)
    assert _reduced(interpret, "xor", x) == 5 ^ 9 ^ -3 ^ 1


def test_histograms_drop_what_is_out_of_range(interpret):
    """Values at or past the last bin are not counted, nor are masked ones."""
    x = torch.tensor([0, 1, 3, 3, 4, 7, 2, 0], dtype=torch.int32)
    y = torch.zeros(4, dtype=torch.int32)
    interpret(_histogram, x, y, 8)
    assert y.tolist() == [2, 0, 1, 2]


@triton.jit
def _extreme(x, value, index, LEFT: tl.constexpr, LEAST: tl.constexpr, N: tl.constexpr):
    a = tl.load(x + tl.arange(0, N))
    if LEAST:
        v, i = tl.min(a, 0, return_indices=True, return_indices_tie_break_left=LEFT)
    else:
        v, i = tl.max(a, 0, return_indices=True, return_indices_tie_break_left=LEFT)
    tl.store(value, v)
    tl.store(index, i)


def _found(values, run, *, left, least=False):
    """(value, index) of the extreme in the run of that number."""
    from bitproof.harness.lanes.interpreter import overlay, state

    overlay.install()
    value, index = torch.empty(1), torch.empty(1, dtype=torch.int32)
    with state.session(state.Session(run=run)):
        _extreme[(1,)](torch.tensor(values), value, index, LEFT=left, LEAST=least, N=len(values))
    return value.item(), index.item()


@pytest.mark.parametrize("least", [False, True])
def test_a_tie_that_may_break_either_way_does_so_by_turn(least):
    """With `tie_break_left` the first of equal elements is chosen in every run."""
    values = [1.0, 5.0, 5.0, 1.0] if not least else [7.0, 5.0, 5.0, 7.0]
    either = [_found(values, run, left=False, least=least) for run in range(2)]
    assert either == [(5.0, 1), (5.0, 2)]
    assert [_found(values, run, left=True, least=least) for run in range(2)] == [(5.0, 1)] * 2


def test_nan_makes_the_place_of_the_greatest_hang_on_the_tree_by_turn():
    """Comparisons with NaN are false, so that it depends on who meets whom."""
    places = {_found([5.0, NAN, 1.0, 2.0], run, left=True)[1] for run in range(2)}
    assert len(places) == 2
