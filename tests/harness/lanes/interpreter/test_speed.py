"""What the lane remembers between operations and launches is what it would have worked out again."""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError


@triton.jit
def row_sum(x, y, BLOCK: tl.constexpr):
    """Calls a function of the standard library, which is a kernel's function like any other."""
    tl.store(y + tl.program_id(0), tl.sum(tl.load(x + tl.arange(0, BLOCK)), axis=0))


@pytest.mark.parametrize("element", [tl.float32, tl.pointer_type(tl.bfloat16), tl.int1])
def test_a_remembered_type_is_a_fresh_one(watched, element):
    """The second block type of a shape has the element type asked for, and all that the first had."""
    watched(row_sum, torch.ones(8), torch.zeros(1), 8)
    tl.block_type(tl.int8, [4, 2])
    first, second = tl.block_type(element, [4, 2]), tl.block_type(element, tl.tuple([4, 2]))
    assert second == first
    assert (second.element_ty, second.name, second.numel) == (
        element,
        f"<{first.shape}, {element}>",
        8,
    )


@pytest.mark.parametrize(
    ("shape", "error"), [([3], ValueError), ([2.0], TypeError), ([], TypeError)]
)
def test_a_wrong_shape_is_an_error_every_time(watched, shape, error):
    """Only what was built once is remembered."""
    watched(row_sum, torch.ones(8), torch.zeros(1), 8)
    for _ in range(2):
        with pytest.raises(error):
            tl.block_type(tl.float32, shape)


def test_the_language_is_searched_at_most_once(watched, monkeypatch):
    """Neither a nested call nor a further launch goes through Triton's modules again."""
    watched(row_sum, torch.ones(8), torch.zeros(3), 8, grid=(3,))
    monkeypatch.setattr(interpreter, "_patch_lang", None)
    y = torch.zeros(3)
    watched(row_sum, torch.ones(8), y, 8, grid=(3,))
    assert y.tolist() == [8.0] * 3


def test_the_language_is_put_back(watched):
    """After a launch, also one that fails, Triton's functions are its own again."""
    before = {name: getattr(tl, name) for name in ("load", "sum", "range", "reduce")}
    with pytest.raises(InterpreterError, match="row_sum"):
        watched(row_sum, torch.ones(8), y="nothing", BLOCK=8)
    assert {name: getattr(tl, name) for name in before} == before
