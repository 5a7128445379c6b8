"""Guarded, poisoned memory: every tensor of a launch lies between two bands of known bytes.

An `Arena` places copies of the inputs and, through `Allocations`, whatever torch allocates for the
launcher. Fresh memory holds a poison byte, so that an element nobody wrote and a read past an end show;
gaps between padded rows are guarded like the bands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bitproof.harness.bits import INTEGER_OF_SIZE, bits
from bitproof.harness.layouts import dense_strides, padded_rows, side_by_side

GUARD = 16384
_ALIGN = 256
# From here on a buffer in host memory is left to the system to make page by page.
_LAZY = 1 << 28
# The most bytes of host memory that one tensor may span: above what a case with rows far apart needs, and
# below what a machine with much memory would grant to a record that asks for anything.
MOST = 1 << 36

# Bytes whose repetition is a NaN, a tiny number and a huge or negative one in the usual formats: two
# runs that agree under different poisons cannot have read what nobody wrote.
POISONS = (0xFF, 0xA5, 0x7B, 0x00, 0x3C, 0xC7, 0x80, 0x55)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One guarded tensor: `view` is where it lies, `buffer` the bytes around and under it.

    `beside` are other tensors in the same buffer.
    """

    name: str
    buffer: Tensor
    view: Tensor
    poisoned: bool
    beside: tuple[Tensor, ...] = ()


@dataclass(kw_only=True)
class Arena:
    """The memory of one launch on `device`, filled with the byte `poison`.

    `memories` are torch's own handles of the buffers.
    """

    device: torch.device
    poison: int
    blocks: list[Block] = field(default_factory=list)
    memories: set[int] = field(default_factory=set, init=False)
    _asked: int = field(default=0, init=False)
    _fresh: list[Tensor] = field(default_factory=list, init=False)

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
        """A tensor in fresh poison; `strides` in elements (dense by default), start off by `misalign`.

        MemoryError for one that spans more than MOST bytes on the CPU.
        """
        size = dtype.itemsize
        strides = dense_strides(shape) if strides is None else strides
        extent = (
            0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        )
        start = GUARD + misalign * size
        total = -(-(start + extent * size + GUARD) // _ALIGN) * _ALIGN
        if total > MOST and self.device.type == "cpu":
            raise MemoryError(f"{name} would span {total} bytes of memory, the most is {MOST}")
        buffer = self._fresh_bytes(total)
        self.memories.add(buffer.untyped_storage()._cdata)
        # Guard and alignment are multiples of any element's size, so that elements lie on a grid of them.
        whole, first = buffer.view(dtype), start // size
        # Two views: a launcher may turn, resize or re-seat the tensor it holds, not where it lay.
        own, given = (whole.as_strided(shape, strides, first) for _ in range(2))
        self.blocks.append(Block(name=name, buffer=buffer, view=own, poisoned=poisoned))
        return given

    def _fresh_bytes(self, total: int) -> Tensor:
        """`total` bytes of poison; more than fit in memory are zeros there, which take none until written."""
        if total > _LAZY and self.device.type == "cpu":
            return torch.from_numpy(np.zeros(total, dtype=np.uint8))
        return torch.full((total,), self.poison, dtype=torch.uint8, device=self.device)

    def place(
        self,
        name: str,
        tensor: Tensor,
        *,
        strides: tuple[int, ...] | None = None,
        misalign: int = 0,
        row_padding: int = 0,
    ) -> Tensor:
        """A copy of `tensor` between guard bands, with `strides` (in elements) or those it has.

        Rows of a dense one without are `row_padding` elements further apart.
        """
        shape = tuple(tensor.shape)
        if strides is None:
            padded = row_padding > 0 and tensor.is_contiguous()
            strides = padded_rows(shape, row_padding) if padded else tuple(tensor.stride())
        view = self.reserve(
            name, shape, tensor.dtype, strides=strides, misalign=misalign, poisoned=False
        )
        fill(bits(view), bits(tensor))
        return view

    def place_together(
        self, tensors: Mapping[str, Tensor], how: str, *, misalign: int = 0
    ) -> dict[str, Tensor]:
        """Copies of dense `tensors` in one buffer, as `harness.layouts.Sharing` says."""
        several = list(tensors.values())
        if how == "one tensor":
            total, places = several[0].numel(), [(0, several[0].stride())] * len(several)
        else:
            total, places = side_by_side(several)
        whole = self.reserve(
            ", ".join(tensors), (total,), several[0].dtype, misalign=misalign, poisoned=False
        )
        guarded = self.blocks.pop()
        given, first = {}, whole.storage_offset()
        own = [
            guarded.view.as_strided(tuple(tensor.shape), strides, first + start)
            for tensor, (start, strides) in zip(several, places, strict=True)
        ]
        for (name, tensor), view in zip(tensors.items(), own, strict=True):
            fill(bits(view), bits(tensor))
            block = dataclasses.replace(guarded, name=name, view=view, beside=tuple(own))
            self.blocks.append(block)
            given[name] = whole.as_strided(tuple(view.shape), view.stride(), view.storage_offset())
        return given

    def inputs(self) -> list[Tensor]:
        """The tensors placed here, and what a launcher allocated filled."""
        return [block.view for block in self.blocks if not block.poisoned]

    def list_unwritten(self) -> list[Tensor]:
        """The tensors handed out as fresh memory that held nothing but poison when first asked about.

        That is by its bytes: torch's own record of writes misses those in inference mode and through
        `.data` or numpy.
        """
        for block in self.blocks[self._asked :]:
            if block.poisoned and bool((_element_bytes(block.view) == self.poison).all()):
                self._fresh.append(block.view)
        self._asked = len(self.blocks)
        return list(self._fresh)

    def trespasses(self) -> Iterator[tuple[str, int]]:
        """(tensor name, byte offset from its first element) of the first changed guard byte of each block."""
        for block in self.blocks:
            changed = block.buffer != self.poison
            for view in (block.view, *block.beside):
                offset = view.data_ptr() - block.buffer.data_ptr() if view.numel() else GUARD
                _clear_own(changed.view(torch.uint8)[offset:], view)
            if bool(changed.any()):
                first = int(torch.nonzero(changed)[0])
                yield block.name, first - _byte_offset(block)


class Allocations(TorchFunctionMode):
    """While active, torch functions hand out guarded memory of `arena` instead of their own.

    That is: every tensor on the arena's device that is new, one that shares no memory with an argument.
    Functions that return several tensors keep theirs, and so do the legacy constructors such as
    `torch.Tensor(3)`, which torch does not let anyone see.
    """

    def __init__(self, arena: Arena) -> None:
        """Serve allocations on the arena's device; others pass through."""
        super().__init__()
        self._arena = arena
        self._served = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Let torch make the tensor, then move it into the arena: poisoned if torch left it empty."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        resizes = name.startswith("resize")
        if resizes or kwargs.get("out") is not None:
            with torch._C.DisableTorchFunction():
                for tensor in _tensors(args[:1] if resizes else kwargs["out"]):
                    if resizes or not tensor.numel():
                        # It is about to grow, and would do so into its guard: it leaves the arena.
                        tensor.set_(tensor.clone())  # type: ignore[call-overload]
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor) or name in _FOREIGN:
            return result
        with torch._C.DisableTorchFunction():
            if not self._is_new(result, (args, kwargs)):
                return result
            label = f"allocation {self._served}"
            self._served += 1
            poisoned = name.startswith(_EMPTY) or name == "new"
            shape, strides = tuple(result.shape), tuple(result.stride())
            view = self._arena.reserve(
                label, shape, result.dtype, strides=strides, poisoned=poisoned
            )
            if not poisoned:
                bits(view).copy_(bits(result))
            return view.requires_grad_(result.requires_grad)

    def _is_new(self, result: Tensor, arguments: Any) -> bool:
        """Whether torch allocated `result` just now, as plain memory that can lie in an arena.

        What lies in the arena already was served while this mode was on the stack twice.
        """
        if (
            result.device != self._arena.device
            or result.layout is not torch.strided
            or result.grad_fn is not None
            or result.element_size() not in INTEGER_OF_SIZE
        ):
            return False
        memory = result.untyped_storage()._cdata
        if memory in self._arena.memories:
            return False
        return all(memory != other.untyped_storage()._cdata for other in _tensors(arguments))


# Names of what leaves its elements to whoever comes next, and of what may answer with somebody
# else's memory that is none of its arguments.
_EMPTY = ("empty", "new_empty")
_FOREIGN = frozenset({"__get__", "as_tensor", "asarray", "from_dlpack", "from_numpy", "frombuffer"})


def _tensors(argument: Any) -> Iterator[Tensor]:
    """The strided tensors in a function's arguments, however deep."""
    if isinstance(argument, Tensor):
        if argument.layout is torch.strided:
            yield argument
    elif isinstance(argument, (tuple, list)):
        for item in argument:
            yield from _tensors(item)
    elif isinstance(argument, dict):
        yield from _tensors(list(argument.values()))


def find_unwritten(first: Tensor, second: Tensor, poisons: tuple[int, int]) -> Tensor:
    """Mask of the elements still poison in both of two runs under two poisons: nobody wrote them."""
    one, two = _element_bytes(first), _element_bytes(second)
    return ((one == poisons[0]).all(-1)) & ((two == poisons[1]).all(-1))


def _element_bytes(tensor: Tensor) -> Tensor:
    dense = bits(tensor).contiguous()  # as integers: copying a boolean would make its byte 0 or 1
    # Spelled out: torch takes no bytes of a scalar, nor where one element has an odd stride.
    flat = dense.as_strided((dense.numel(),), (1,))
    return flat.view(torch.uint8).reshape(*tensor.shape, tensor.element_size())


def _byte_offset(block: Block) -> int:
    return block.view.data_ptr() - block.buffer.data_ptr() if block.view.numel() else GUARD


def _clear_own(after: Tensor, view: Tensor) -> None:
    """Zero the bytes of `after`, which starts at the view's first element, that are the view's own."""
    size = view.element_size()
    strides = tuple(s * size for s in view.stride())
    own = after.as_strided((*view.shape, size), (*strides, 1), after.storage_offset())
    fill(own, torch.zeros((), dtype=after.dtype, device=after.device).expand(own.shape))


def fill(view: Tensor, values: Tensor) -> None:
    """Copy `values` of the view's shape into it; elements that share memory hold the same value."""
    repeated = [axis for axis, step in enumerate(view.stride()) if step == 0 and view.shape[axis]]
    for axis in repeated:  # an expanded axis is one element in memory
        view, values = view.narrow(axis, 0, 1), values.narrow(axis, 0, 1)
    view.copy_(values)
