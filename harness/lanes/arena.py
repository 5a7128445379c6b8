"""Guarded, poisoned memory: every tensor of a launch lies between two bands of known bytes.

An `Arena` places copies of the inputs and, through `Allocations`, whatever the launcher allocates with
torch's factory functions. Fresh memory holds a poison byte, so that an element nobody wrote and a read
past an end show; gaps between padded rows are guarded like the bands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

GUARD = 16384
_ALIGN = 256

# Bytes whose repetition is a NaN, a tiny number and a huge or negative one in the usual formats: two
# runs that agree under different poisons cannot have read what nobody wrote.
POISONS = (0xFF, 0xA5, 0x7B, 0x00, 0x3C, 0xC7, 0x80, 0x55)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One guarded tensor: `view` is what the kernel gets, `buffer` the bytes around and under it."""

    name: str
    buffer: Tensor
    view: Tensor
    poisoned: bool


@dataclass(kw_only=True)
class Arena:
    """The memory of one launch on `device`, filled with the byte `poison`."""

    device: torch.device
    poison: int
    blocks: list[Block] = field(default_factory=list)

    def reserve(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        *,
        strides: tuple[int, ...] | None = None,
        misalign: int = 0,
        poisoned: bool = True,
    ) -> Tensor:
        """A tensor in fresh poison; `strides` in elements (dense by default), start off by `misalign`."""
        size = dtype.itemsize
        strides = _dense(shape) if strides is None else strides
        extent = (
            0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        )
        start = GUARD + misalign * size
        total = -(-(start + extent * size + GUARD) // _ALIGN) * _ALIGN
        buffer = torch.full((total,), self.poison, dtype=torch.uint8, device=self.device)
        flat = buffer[start : start + extent * size].view(dtype)
        view = flat.as_strided(shape, strides)
        self.blocks.append(Block(name=name, buffer=buffer, view=view, poisoned=poisoned))
        return view

    def place(
        self, name: str, tensor: Tensor, *, misalign: int = 0, row_padding: int = 0
    ) -> Tensor:
        """A copy of `tensor` between guard bands, its rows `row_padding` elements further apart."""
        shape = tuple(tensor.shape)
        strides = _padded(shape, row_padding)
        view = self.reserve(
            name, shape, tensor.dtype, strides=strides, misalign=misalign, poisoned=False
        )
        bits(view).copy_(bits(tensor))
        return view

    def unwritten(self) -> list[Tensor]:
        """The tensors handed out as fresh memory so far."""
        return [block.view for block in self.blocks if block.poisoned]

    def trespasses(self) -> Iterator[tuple[str, int]]:
        """(tensor name, byte offset from its first element) of the first changed guard byte of each block."""
        for block in self.blocks:
            changed = block.buffer != self.poison
            own = changed.view(torch.uint8)[_byte_offset(block) :]
            _own_bytes(own, block.view).zero_()
            if bool(changed.any()):
                first = int(torch.nonzero(changed)[0])
                yield block.name, first - _byte_offset(block)


class Allocations(TorchFunctionMode):
    """While active, torch's factory functions hand out guarded memory of `arena`."""

    def __init__(self, arena: Arena) -> None:
        """Serve allocations on the arena's device; others pass through."""
        super().__init__()
        self._arena = arena

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Let torch make the tensor, then move it into the arena: poisoned if torch left it empty."""
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name not in _EMPTY and name not in _FILLED:
            return result
        if not isinstance(result, Tensor) or result.device.type != self._arena.device.type:
            return result
        with torch._C.DisableTorchFunction():
            label = f"allocation {sum(b.name.startswith('allocation') for b in self._arena.blocks)}"
            poisoned = name in _EMPTY
            shape, strides = tuple(result.shape), tuple(result.stride())
            view = self._arena.reserve(
                label, shape, result.dtype, strides=strides, poisoned=poisoned
            )
            if not poisoned:
                bits(view).copy_(bits(result))
        return view


_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_FILLED = frozenset(
    {
        "zeros",
        "zeros_like",
        "new_zeros",
        "ones",
        "ones_like",
        "new_ones",
        "full",
        "full_like",
        "new_full",
    }
)


def unwritten(first: Tensor, second: Tensor, poisons: tuple[int, int]) -> Tensor:
    """Mask of the elements still poison in both of two runs under two poisons: nobody wrote them."""
    one, two = _element_bytes(first), _element_bytes(second)
    return ((one == poisons[0]).all(-1)) & ((two == poisons[1]).all(-1))


_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: Tensor) -> Tensor:
    """`tensor`'s bit patterns as integers of its width; same shape and memory."""
    return tensor.view(_INTEGER[tensor.element_size()])


def _element_bytes(tensor: Tensor) -> Tensor:
    flat = tensor.contiguous()
    return flat.view(torch.uint8).reshape(*tensor.shape, tensor.element_size())


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _padded(shape: tuple[int, ...], row_padding: int) -> tuple[int, ...]:
    if row_padding == 0 or len(shape) < 2:
        return _dense(shape)
    return (*(s // max(shape[-1], 1) * (shape[-1] + row_padding) for s in _dense(shape)[:-1]), 1)


def _byte_offset(block: Block) -> int:
    return block.view.data_ptr() - block.buffer.data_ptr() if block.view.numel() else GUARD


def _own_bytes(after: Tensor, view: Tensor) -> Tensor:
    """The bytes of `after` (which starts at the view's first element) that belong to the view's elements."""
    size = view.element_size()
    strides = tuple(s * size for s in view.stride())
    return after.as_strided((*view.shape, size), (*strides, 1), after.storage_offset())
