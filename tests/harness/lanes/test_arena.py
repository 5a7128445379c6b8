"""Guarded memory: what a launcher gets lies between known bytes, and whatever steps on them is seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness.bits import bits
from bitproof.harness.lanes.arena import GUARD, POISONS, Allocations, Arena, find_unwritten

CPU = torch.device("cpu")
X = torch.arange(12.0).reshape(3, 4)
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
]


def _arena(poison: int = 0xA5) -> Arena:
    return Arena(device=CPU, poison=poison)


def _around(arena: Arena) -> Tensor:
    """The bytes of the only block, with the tensor's own at GUARD."""
    (block,) = arena.blocks
    return block.buffer


def _served(make: Callable[[], Tensor], poison: int = 0xA5) -> tuple[Tensor, Arena]:
    arena = _arena(poison)
    with Allocations(arena):
        return make(), arena


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fresh_memory_holds_the_poison_between_guards(dtype: torch.dtype, poison: int) -> None:
    """Every byte of a reserved tensor and of the bands around it is the poison."""
    arena = _arena(poison)
    view = arena.reserve("y", (2, 3), dtype)
    assert view.shape == (2, 3)
    assert view.is_contiguous()
    assert view.data_ptr() - _around(arena).data_ptr() == GUARD
    assert len(_around(arena)) >= 2 * GUARD + 6 * dtype.itemsize
    assert set(_around(arena).tolist()) == {poison}
    assert list(arena.trespasses()) == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_placed_tensors_keep_every_bit(dtype: torch.dtype) -> None:
    """NaN payloads and odd booleans included; also from a strided or expanded source."""
    patterns = torch.arange(256, dtype=torch.uint8).repeat(8).view(dtype).reshape(8, -1)
    for source in (patterns, patterns.t(), patterns[::2, 1:], patterns[:1].expand(5, -1)):
        arena = _arena()
        placed = arena.place("x", source)
        assert torch.equal(bits(placed), bits(source))
        assert placed.stride() == source.stride()
        assert placed.data_ptr() - _around(arena).data_ptr() == GUARD
        assert list(arena.trespasses()) == []


@given(
    shape=st.lists(st.integers(0, 4), max_size=3).map(tuple),
    misalign=st.integers(0, 5),
    padding=st.integers(0, 5),
    dtype=st.sampled_from([torch.uint8, torch.float16, torch.int64]),
    place=st.data(),
)
def test_every_byte_outside_the_elements_is_guarded(
    shape: tuple[int, ...], misalign: int, padding: int, dtype: torch.dtype, place: st.DataObject
) -> None:
    """Wherever a byte changes: it belongs to an element, or it is reported at its offset."""
    arena = _arena()
    source = torch.zeros(shape, dtype=dtype)
    placed = arena.place("x", source, misalign=misalign, row_padding=padding)
    assert placed.is_contiguous() or padding
    buffer = _around(arena)
    start = GUARD + misalign * dtype.itemsize if placed.numel() else GUARD
    own = {
        start + offset * dtype.itemsize + byte
        for offset in _offsets(placed)
        for byte in range(dtype.itemsize)
    }
    near = st.integers(max(start - 40, 0), min(start + 400, len(buffer) - 1))
    changed = place.draw(st.one_of(near, st.integers(0, len(buffer) - 1)))
    buffer[changed] = 0x11
    expected = [] if changed in own else [("x", changed - start)]
    assert list(arena.trespasses()) == expected


def _offsets(tensor: Tensor) -> list[int]:
    """Element offsets from the first element, by the definition of strides."""
    offsets = [0] if tensor.numel() else []
    for extent, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = [offset + i * stride for offset in offsets for i in range(extent)]
    return offsets


def test_rows_lie_apart_where_padding_is_asked() -> None:
    """Dense last axis, rows further apart, outer axes to match; one row's worth of elements stays dense."""
    placed = _arena().place("x", torch.zeros(2, 3, 5), row_padding=2)
    assert placed.stride() == (21, 7, 1)
    assert _arena().place("x", torch.zeros(5), row_padding=2).stride() == (1,)


def test_the_first_changed_byte_of_each_block_is_reported() -> None:
    """Blocks are named and reported apart."""
    arena = _arena()
    first, second = (arena.reserve(name, (4,), torch.float32) for name in ("a", "b"))
    for view in (first, second):
        torch.as_strided(view, (2,), (1,), view.storage_offset() + 4).fill_(1.0)
    torch.as_strided(second, (1,), (1,), second.storage_offset() - 1).fill_(1.0)
    # 1.0 is 0x3f800000: all of its bytes differ from the poison.
    assert list(arena.trespasses()) == [("a", 16), ("b", -4)]


@pytest.mark.parametrize(
    ("make", "poisoned"),
    [
        (lambda: torch.empty(2, 3), True),
        (lambda: torch.empty_like(X, dtype=torch.int8), True),
        (lambda: torch.empty_strided((2, 3), (8, 1)), True),
        (lambda: torch.empty_permuted((2, 3), (1, 0)), True),
        (lambda: X.new_empty(2, 3), True),
        (lambda: X.new_empty_strided((2, 3), (1, 2)), True),
        (lambda: X.new(5), True),
        (lambda: torch.ops.aten.empty.memory_format([3]), True),
        (lambda: torch.empty(0, 4), True),
        (lambda: torch.zeros(()), False),
        (lambda: torch.full((3,), 1.5, dtype=torch.float8_e4m3fn), False),
        (lambda: torch.ones_like(X), False),
        (lambda: X.new_zeros(3), False),
        (lambda: torch.tensor([1, 2]), False),
        (lambda: X.clone(), False),
        (lambda: X.t().contiguous(), False),
        (lambda: X.to(torch.bfloat16), False),
        (lambda: torch.cat([X, X]), False),
        (lambda: X + 1, False),
        (lambda: X.sum(), False),
        (lambda: X[torch.tensor([2, 0])], False),
        (lambda: torch.nn.functional.pad(X, (0, 3)), False),
    ],
)
def test_whatever_torch_allocates_is_guarded(make: Callable[[], Tensor], poisoned: bool) -> None:
    """The launcher gets what torch would give it, in an arena; poisoned only where torch left it empty."""
    plain = make()
    tensor, arena = _served(make)
    block = arena.blocks[-1]
    assert (tensor.shape, tensor.dtype, tensor.stride()) == (
        plain.shape,
        plain.dtype,
        plain.stride(),
    )
    assert tensor.data_ptr() == block.view.data_ptr()
    assert block.poisoned == poisoned
    assert [view.data_ptr() for view in arena.list_unwritten()] == [tensor.data_ptr()] * poisoned
    if poisoned:
        assert set(bits(tensor).reshape(-1).view(torch.uint8).tolist()) <= {0xA5}
    else:
        assert torch.equal(bits(tensor), bits(plain))


@pytest.mark.parametrize(
    "write",
    [
        lambda tensor: tensor.zero_(),
        lambda tensor: tensor.data.zero_(),
        lambda tensor: tensor.numpy().fill(0),
        lambda tensor: tensor.view(torch.int32)[1:].zero_(),
    ],
)
def test_what_torch_wrote_is_not_listed_as_fresh(write: Callable[[Tensor], Any]) -> None:
    """Whatever way it was written, in inference mode too; what was listed as fresh stays listed."""
    arena = _arena()
    with torch.inference_mode(), Allocations(arena):
        fresh, written = torch.empty(3), torch.empty(3)
        write(written)
        assert [view.data_ptr() for view in arena.list_unwritten()] == [fresh.data_ptr()]
        write(fresh)
        later = torch.empty(0)
        assert len(arena.list_unwritten()) == 2
        assert arena.list_unwritten()[0].data_ptr() == fresh.data_ptr()
        assert later.numel() == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: X.t(),
        lambda: X[1:, ::2],
        lambda: X.contiguous(),
        lambda: X.to(torch.float32),
        lambda: X.view(torch.int32),
        lambda: X.expand(2, 3, 4),
        lambda: X.detach(),
        lambda: X.T,
        lambda: X.data,
        lambda: torch.empty(3, device="meta"),
        lambda: torch.topk(X, 2).values,
        lambda: torch.eye(2).to_sparse(),
    ],
)
def test_views_and_foreign_tensors_are_left_alone(make: Callable[[], Tensor]) -> None:
    """What shares an argument's memory keeps sharing it, and what is no plain memory here stays out."""
    tensor, arena = _served(make)
    lying_in_arena = [
        b for b in arena.blocks if tensor.layout is torch.strided and _same(b.view, tensor)
    ]
    assert lying_in_arena == []


def _same(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() != 0


@pytest.mark.parametrize("shape", [(3, 4), (0,)])
def test_out_arguments_are_written_in_place(shape: tuple[int, ...]) -> None:
    """`out=` fills the very tensor it was given, and one that has to grow does not grow into its guard."""

    def make() -> Tensor:
        out = torch.empty(shape)
        torch.cumsum(X, 0, out=out)
        return out

    out, arena = _served(make)
    assert torch.equal(out, torch.cumsum(X, 0))
    assert list(arena.trespasses()) == []


def test_resized_tensors_leave_their_guard() -> None:
    """Growing a tensor keeps its elements and is no trespass."""

    def make() -> Tensor:
        tensor = torch.zeros(3)
        tensor.resize_(300)
        tensor[3:] = 1.0
        return tensor

    tensor, arena = _served(make)
    assert tensor.tolist() == [0.0] * 3 + [1.0] * 297
    assert list(arena.trespasses()) == []


def test_turning_a_tensor_in_place_keeps_its_guards() -> None:
    """A launcher may transpose what it holds without moving what is guarded."""
    arena = _arena()
    with Allocations(arena):
        tensor = torch.empty(2, 3).t_()
        tensor.fill_(1.0)
    assert tensor.shape == (3, 2)
    assert list(arena.trespasses()) == []
    torch.as_strided(tensor, (7,), (1,)).fill_(1.0)
    assert [name for name, _ in arena.trespasses()] == ["allocation 0"]


def test_gradients_still_flow() -> None:
    """Leaves keep asking for gradients and results keep their history."""

    def make() -> Tensor:
        leaf = torch.ones(3, requires_grad=True)
        (leaf * 2).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    gradient, _ = _served(make)
    assert gradient.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("poisons", list(itertools.pairwise(POISONS)))
def test_unwritten_needs_both_poisons(dtype: torch.dtype, poisons: tuple[int, int]) -> None:
    """An element equal to one run's poison was written; only one that follows the poison was not."""
    runs = []
    for turn in (0, 1):
        arena = _arena(poisons[turn])
        view = arena.reserve("y", (2, 2), dtype)
        lying = bits(view)
        lying[0, 0] = _filled(dtype, poisons[0])
        lying[0, 1] = _filled(dtype, poisons[1])
        lying[1, 0] = 0
        runs.append(view)
    expected = [[False, False], [False, True]]
    assert find_unwritten(runs[0], runs[1], poisons).tolist() == expected
    turned = find_unwritten(runs[0].t(), runs[1].t(), poisons)
    assert turned.tolist() == [list(row) for row in zip(*expected, strict=True)]


def _filled(dtype: torch.dtype, byte: int) -> Tensor:
    return bits(torch.full((dtype.itemsize,), byte, dtype=torch.uint8).view(dtype))[0]


LAYOUTS = {
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "every second element": lambda: torch.arange(12.0).reshape(2, 6)[:, ::2],
    "padded rows": lambda: torch.arange(10.0).reshape(2, 5)[:, :3],
    "padded outer axes": lambda: torch.arange(48.0).reshape(2, 4, 6)[:, :3],
    "expanded rows": lambda: torch.arange(3.0).expand(2, 3),
    "expanded columns": lambda: torch.arange(2.0)[:, None].expand(2, 3),
    "overlapping windows": lambda: torch.arange(5.0).unfold(0, 3, 1),
    "nothing": lambda: torch.zeros(0, 3).t(),
    "one row of columns": lambda: torch.arange(3.0).as_strided((1, 3), (1, 1)),
    "one column of rows": lambda: torch.arange(3.0).as_strided((3, 1), (1, 3)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_keeps_the_strides_it_is_given(layout: str) -> None:
    """Its values and strides arrive, its guards stand, and a write into a gap between its elements shows."""
    given = LAYOUTS[layout]()
    arena = _arena()
    placed = arena.place("x", given, misalign=1)
    assert placed.stride() == given.stride() or not given.numel()
    assert torch.equal(placed, given)
    assert list(arena.trespasses()) == []
    offsets = set(_offsets(placed))
    gaps = [place for place in range(max(offsets, default=0)) if place not in offsets]
    for place in gaps[:1]:
        torch.as_strided(placed, (1,), (1,), placed.storage_offset() + place).fill_(1.0)
        assert [name for name, _ in arena.trespasses()] == ["x"]
