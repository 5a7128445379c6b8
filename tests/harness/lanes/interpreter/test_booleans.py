"""Boolean operators on tensors on the interpreter lane: elementwise where they compile, else refused."""

import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness.errors import Uncompilable

TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])


@triton.jit
def _select(x, y, n, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    if OP == "and":
        keep = a > 0 and i < n
    elif OP == "or":
        keep = a > 0 or i < n
    elif OP == "not":
        keep = not (a > 0)
    elif OP == "nested":
        keep = not (a > 0 and (i < n or i == N - 1))
    elif OP == "constant":
        keep = (N > 2 and a > 0) or N < 0
    elif OP == "scalars":
        keep = (i < n) & (n > 1 and not (n > 100))
    elif OP == "chain":
        keep = 0 < i < n
    elif OP == "integers":
        keep = i and a > 0
    elif OP == "not_integer":
        keep = not i
    tl.store(y + i, tl.where(keep, a, 0.0))


@triton.jit
def _branch(x, y, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    if OP == "if":
        if a > 0:
            a += 1
    elif OP == "while":
        while a > 0:
            a -= 1
    elif OP == "ternary":
        a = a if a > 0 else -a
    elif OP == "scalar":
        a = a if tl.sum(a) > 0 and N > 2 else -a
    tl.store(y + i, a)


X = torch.tensor([1.0, -2.0, 3.0, -4.0])


def _selected(interpret, op):
    y = torch.empty(4)
    interpret(_select, X, y, 3, op, 4)
    return y.tolist()


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("and", [1.0, 0.0, 3.0, 0.0]),
        ("or", [1.0, -2.0, 3.0, 0.0]),
        ("not", [0.0, -2.0, 0.0, -4.0]),
        ("nested", [0.0, -2.0, 0.0, -4.0]),
        ("constant", [1.0, 0.0, 3.0, 0.0]),
        ("scalars", [1.0, -2.0, 3.0, 0.0]),
    ],
)
def test_boolean_operators_work_elementwise(interpret, op, expected):
    """`and`, `or` and `not` combine blocks lane by lane; constants cut them short."""
    assert _selected(interpret, op) == expected


def test_chains_of_comparisons_follow_the_installed_triton(interpret):
    """`0 < i < n` is elementwise from triton 3.9 and refused before, as it does not compile there."""
    if TRITON >= (3, 9):
        assert _selected(interpret, "chain") == [0.0, -2.0, 3.0, 0.0]
    else:
        with pytest.raises(Uncompilable, match="chain of comparisons"):
            _selected(interpret, "chain")


@pytest.mark.parametrize("op", ["integers", "not_integer"])
def test_operands_that_are_not_boolean_are_refused(interpret, op):
    """The compiler would reinterpret 32 bits as one, and gives up."""
    with pytest.raises(Uncompilable, match="only of int1"):
        _selected(interpret, op)


@pytest.mark.parametrize("op", ["if", "while", "ternary"])
def test_a_block_has_no_truth(interpret, op):
    """A branch on a block is refused instead of always taken."""
    with pytest.raises(Uncompilable, match="truth of a block"):
        interpret(_branch, X, torch.empty(4), op, 4)


def test_a_scalar_has_a_truth(interpret):
    """A branch on a reduced value works."""
    y = torch.empty(4)
    interpret(_branch, X, y, "scalar", 4)
    assert y.tolist() == (-X).tolist()


def test_the_stock_interpreter_keeps_its_reading(interpret):
    """Outside a session the rewritten kernel behaves as Triton ships it: a block is true."""
    y = torch.empty(4)
    interpret(_branch, X, y, "scalar", 4)
    _branch[(1,)](X, y, "if", 4)
    assert y.tolist() == (X + 1).tolist()
