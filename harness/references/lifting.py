"""Tensors that declare one type and compute in another, and the mode that runs torch on them.

A reference says `.to(torch.bfloat16)`, `dtype=torch.float16`, `torch.zeros(..., dtype=...)`; what its author
means by it is a program, and what the answer is does not depend on it. A `Declared` tensor has the type that
the program gave it, so that `x.dtype`, `torch.finfo(x.dtype)` and promotion behave as written, but it holds
float64. `Interposition` runs every operation on those float64 values, below autograd, so that gradients are
lifted with everything else. What is done to a result (nothing for an oracle, a rounding for a sample of
Monte Carlo arithmetic) is left to the arithmetic that the mode is given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bitproof.harness.errors import UsageError
from bitproof.harness.references.operations import MOVEMENTS
from bitproof.oracles import formats

_COMPLEX = {torch.complex32: torch.float16, torch.complex64: torch.float32}
_TO_COMPLEX = {torch.float64: torch.complex128, torch.float16: torch.complex32}


class Declared(Tensor):
    """A tensor of the declared `dtype` whose numbers are float64 (complex128 for a complex type).

    value  what a program would read: rounded as the arithmetic says
    raw    the same before its last rounding, moved along with it; an output is judged by it, because the
           rounding of an output is accounted for apart. The oracle's arithmetic rounds nothing and has none.
    """

    value: Tensor
    raw: Tensor | None

    @staticmethod
    def __new__(
        cls: type[Declared], value: Tensor, dtype: torch.dtype, raw: Tensor | None = None
    ) -> Declared:
        """Wrap `value`, with its shape, strides and device."""
        made: Declared = torch.Tensor._make_wrapper_subclass(
            cls,
            value.shape,
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=dtype,
            device=value.device,
            requires_grad=False,
        )
        made.value, made.raw = value, raw
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """No operation runs on it outside of an `Interposition`."""
        raise UsageError(
            f"{func} was called on a tensor that a reference made in an earlier run: make a reference "
            "that keeps nothing between calls"
        )


class Arithmetic(Protocol):
    """What becomes of results."""

    def begin(self, func: Any, args: Any, kwargs: Any, dtype: torch.dtype) -> tuple[Any, Any]:
        """(arguments to run the operation on, a note for `finish`), from its float64 arguments."""
        ...

    def finish(self, func: Any, noted: Any, result: Tensor, dtype: torch.dtype) -> Tensor:
        """The number of `dtype`, as float64, that `result` of that operation becomes, in fresh memory.

        `result` itself becomes what the evaluation gives before that rounding.
        """
        ...

    def decomposition(self, func: Any) -> Callable[..., Any] | None:
        """How the operation is written in simpler ones, where each of them is to be met alone."""
        ...

    @property
    def rounds(self) -> bool:
        """Whether `finish` changes numbers, so that what was before it must be kept."""
        ...


class Interposition(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operations on the float64 values of `Declared` tensors; plain floating tensors are lifted."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        """`arithmetic` says what becomes of results."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._arithmetic = arithmetic

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: what it would spare is compiling, which references do not, and it costs seconds to load."""
        return False

    def lift(self, tensor: Tensor) -> Tensor:
        """`tensor` as a `Declared` of its type with its exact values; integers and booleans as they are."""
        if isinstance(tensor, Declared) or not _is_float(tensor.dtype):
            return tensor
        value = decode(tensor)
        return Declared(value, tensor.dtype, value.clone() if self._arithmetic.rounds else None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """One operation of the reference, or of its backward pass."""
        kwargs = dict(kwargs or {})
        simpler = func.decompose if _is_composite(func) else self._arithmetic.decomposition(func)
        if simpler is not None:
            with self:
                answered = simpler(*args, **kwargs)
            if answered is not NotImplemented:
                return answered
        written = _find_written(func, args, kwargs)
        for tensor in written:
            if not isinstance(tensor, Declared) and _is_float(tensor.dtype):
                raise UsageError(
                    f"the reference writes with {func} into a tensor that it did not make: return new tensors"
                )
        args, kwargs = map_leaves(self._lift_leaf, (args, kwargs))
        declared = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Declared)]
        if torch.Tag.inplace_view in func.tags:
            return _reshape(func, args, kwargs)
        if func in _REINTERPRETED:
            return self._reinterpret(func, args, kwargs)
        if self._arithmetic.rounds and _moves(func) and _of_one_type(func, args, kwargs, declared):
            return self._move(func, args, kwargs, declared[0].dtype, written)
        plain = _widened((args, kwargs), lambda t: t.value)
        dtype = _declare(func, args, kwargs, declared)
        arguments, noted = self._arithmetic.begin(func, plain[0], plain[1], dtype)
        result = _call(func, arguments, plain[1])
        if written:
            self._write(func, noted, written)
            return _returned(result, written)
        return map_leaves(lambda leaf: self._finish(func, noted, leaf, dtype), result)

    def _lift_leaf(self, leaf: Any) -> Any:
        return self.lift(leaf) if isinstance(leaf, Tensor) else leaf

    def _finish(self, func: Any, noted: Any, result: Any, dtype: torch.dtype) -> Any:
        if not isinstance(result, Tensor) or not _is_float(result.dtype):
            return result
        dtype = _match_kind(dtype, result)
        if not self._arithmetic.rounds:
            return Declared(result, dtype)
        return Declared(self._arithmetic.finish(func, noted, result, dtype), dtype, result)

    def _write(self, func: Any, noted: Any, written: Iterable[Tensor]) -> None:
        """Round what an operation wrote in place, and keep what it was before."""
        for tensor in written:
            if not isinstance(tensor, Declared):
                continue
            if tensor.raw is not None:
                rounded = self._arithmetic.finish(func, noted, tensor.value, tensor.dtype)
                tensor.raw.copy_(tensor.value)
                tensor.value.copy_(rounded)

    def _move(
        self, func: Any, args: Any, kwargs: Any, dtype: torch.dtype, written: list[Tensor]
    ) -> Any:
        """Move elements, and what they were before their rounding; a constant among them is rounded."""
        raws, values = (
            func(*_widened(args, take), **_widened(kwargs, take))
            for take in (lambda t: t.raw, lambda t: t.value)
        )
        constant = any(isinstance(leaf, float) for leaf in leaves((args, kwargs)))

        def settle(value: Tensor) -> Tensor:
            return self._arithmetic.finish(func, None, value, dtype) if constant else value

        if written:
            for tensor in written:
                if constant and isinstance(tensor, Declared):
                    tensor.value.copy_(settle(tensor.value))
            return _returned(values, written)
        before = iter(leaves(raws))

        def wrap(value: Any) -> Any:
            raw = next(before)
            if not isinstance(value, Tensor) or not _is_float(value.dtype):
                return value
            return Declared(settle(value), _match_kind(dtype, value), raw)

        return map_leaves(wrap, values)

    def _reinterpret(self, func: Any, args: Any, kwargs: Any) -> Any:
        """`x.view(dtype)`: the bits that the declared type has, where the value is one of its numbers."""
        tensor, dtype = args[0], args[1]
        bits = tensor
        if isinstance(tensor, Declared):
            bits = tensor.value.to(tensor.dtype)
            exact = (decode(bits) == tensor.value) | tensor.value.isnan()
            if not bool(exact.all()):
                raise UsageError(
                    "the reference reads the bits of numbers that it rounds itself (x.view(dtype)): "
                    "float64 has no such bits, so write it with arithmetic"
                )
        return self.lift(func(bits, dtype))


def decode(tensor: Tensor) -> Tensor:
    """The exact values of a floating tensor in float64 (complex128 for complex), in fresh dense memory.

    Types of up to 16 bits are decoded by `oracles.formats`, whatever the device.
    """
    tensor = tensor.detach()
    if tensor.is_complex():
        return tensor.to(torch.complex128, copy=True)
    if tensor.element_size() > 2:
        return tensor.to(torch.float64, copy=True, memory_format=torch.preserve_format)
    fmt = formats.of_dtype(tensor.dtype)
    integers = tensor.contiguous().view(torch.uint8 if fmt.bits == 8 else torch.int16)
    codes = integers.to(torch.int64) & ((1 << fmt.bits) - 1)
    return _table(fmt, tensor.device)[codes]


@functools.lru_cache(maxsize=32)
def _table(fmt: formats.Format, device: torch.device) -> Tensor:
    codes = torch.arange(1 << fmt.bits, dtype=torch.int64).numpy().astype(fmt.storage)
    return torch.from_numpy(formats.decode(codes, fmt).copy()).to(device)


def map_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` with `change` of every leaf; it consists of the tuples, lists and dicts that operations take."""
    if isinstance(tree, (tuple, list)):
        return type(tree)([map_leaves(change, part) for part in tree])
    if isinstance(tree, dict):
        return {name: map_leaves(change, part) for name, part in tree.items()}
    return change(tree)


def leaves(tree: Any) -> list[Any]:
    """Every leaf of such a tree, in order."""
    if isinstance(tree, (tuple, list)):
        return [leaf for part in tree for leaf in leaves(part)]
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in leaves(part)]
    return [tree]


def _is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _widened(tree: Any, take: Callable[[Declared], Any]) -> Any:
    """Arguments for the operation in float64: values for tensors, and wide types for floating types."""

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, Declared):
            return take(leaf)
        if isinstance(leaf, torch.dtype) and _is_float(leaf):
            return torch.complex128 if leaf.is_complex else torch.float64
        return leaf

    return map_leaves(widen, tree)


def _call(func: Any, args: Any, kwargs: Any) -> Any:
    """The operation in float64. A factory that makes floats without being told a type is told this one."""
    result = func(*args, **kwargs)
    untold = isinstance(result, Tensor) and result.dtype in (torch.float32, torch.complex64)
    if untold and "dtype" in _names(func) and kwargs.get("dtype") is None:
        wide = torch.float64 if result.dtype == torch.float32 else torch.complex128
        return func(*args, **{**kwargs, "dtype": wide})
    if untold:  # integers that become floats: exact in this type as far as their own operation is
        integers = [
            t.to(torch.float64) if isinstance(t, Tensor) and not _is_float(t.dtype) else t
            for t in args
        ]
        try:
            return func(*integers, **kwargs)
        except RuntimeError:
            return result.to(torch.float64)
    return result


@functools.cache
def _names(func: Any) -> tuple[str, ...]:
    return tuple(argument.name for argument in func._schema.arguments)


@functools.cache
def _places_written(func: Any) -> tuple[tuple[int, str], ...]:
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _find_written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    found = (
        args[place] if place < len(args) else kwargs.get(name)
        for place, name in _places_written(func)
    )
    return [tensor for one in found for tensor in leaves(one) if isinstance(tensor, Tensor)]


def _returned(result: Any, written: list[Tensor]) -> Any:
    """What an operation that writes in place returns: the very tensors that it was given."""
    if result is None:
        return None
    if isinstance(result, Tensor):
        return written[0]
    return type(result)(written[: len(result)])


def _reshape(func: Any, args: Any, kwargs: Any) -> Tensor:
    """`x.squeeze_()` and its like: the tensor itself gets another shape, and so do its numbers."""
    tensor: Tensor = args[0]
    if isinstance(tensor, Declared):
        for numbers in (tensor.value, tensor.raw):
            if numbers is not None:
                func(numbers, *args[1:], **kwargs)
    with torch._C._DisableTorchDispatch():
        func(*args, **kwargs)
    return tensor


@functools.cache
def _is_composite(func: Any) -> bool:
    """Whether torch itself writes the operation in others, which a decomposition meets as it is."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(func.has_kernel_for_dispatch_key(composite))


@functools.cache
def _is_view(func: Any) -> bool:
    return any(
        returned.alias_info is not None and not returned.alias_info.is_write
        for returned in func._schema.returns
    )


@functools.cache
def name_of(func: Any) -> str:
    """An operation's name without its library, its overload, and the sign that it writes in place."""
    name: str = func._schema.name
    return name.rpartition("::")[2].removesuffix("_")


def _moves(func: Any) -> bool:
    if "reduce" in func._schema.overload_name:
        return False
    return _is_view(func) or name_of(func) in MOVEMENTS


def _of_one_type(func: Any, args: Any, kwargs: Any, declared: list[Declared]) -> bool:
    """Whether all its floating tensors, at least one, and what it makes of them have one type."""
    types = {tensor.dtype for tensor in declared}
    return len(types) == 1 and _dtype_in(func, args, kwargs) in (None, *types)


def _dtype_in(func: Any, args: Any, kwargs: Any) -> torch.dtype | None:
    """The floating type that the call names, such as `dtype=` or `out_dtype=`."""
    named = (leaf for leaf in (*args, *kwargs.values()) if isinstance(leaf, torch.dtype))
    return next((dtype for dtype in named if _is_float(dtype)), None)


def _declare(func: Any, args: Any, kwargs: Any, declared: list[Declared]) -> torch.dtype:
    """The type that torch would give the operation's floating results, by its rules of promotion."""
    named = _dtype_in(func, args, kwargs)
    if named is not None:
        return named
    # A softmax of halves in single precision, as torch fuses it on a card.
    if _names(func)[-1] == "half_to_float" and args[-1] is True:
        return torch.float32
    # A tensor without axes decides only where no other does.
    deciding = [t.dtype for t in declared if t.dim()] or [t.dtype for t in declared]
    return functools.reduce(torch.promote_types, deciding or [torch.get_default_dtype()])


def _match_kind(dtype: torch.dtype, result: Tensor) -> torch.dtype:
    """`dtype`, complex where the result is and real where it is not."""
    if result.is_complex() and not dtype.is_complex:
        return _TO_COMPLEX.get(dtype, torch.complex64)
    if dtype.is_complex and not result.is_complex():
        return _COMPLEX.get(dtype, torch.float64)
    return dtype


_REINTERPRETED = frozenset({torch.ops.aten.view.dtype})
