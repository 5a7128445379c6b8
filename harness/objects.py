"""Objects as subjects: built once for a shape, called many times, with whatever they keep between calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from bitproof.harness.bits import bits
from bitproof.harness.case import Launch

Tensors = Mapping[str, Tensor]
Params = Mapping[str, Any]
Launcher = Callable[[Tensors, Params], dict[str, Tensor]]


class Made(Protocol):
    """A launcher that was built."""

    def __call__(self, tensors: Tensors, params: Params) -> dict[str, Tensor]:
        """The outputs by name."""
        ...


def of_object(make: Callable[[Tensors, Params], Made]) -> Launcher:
    """A spec's `run` of an object that is built once for a shape: `make(tensors, params)` builds it.

    `make` may look at shapes, types, devices and parameters; a class with such an `__init__` will do. The
    object is built anew for each run that a check makes. It is called `launch.warm` times on other values
    before the call that is judged, in storages of their own or, where `launch.reuse` is set, in those of that
    call, whose values are put back without a version counter having moved. So what it keeps between calls
    must not be seen in an answer, and each case replays alone. Integers and booleans are the same in all
    calls.
    """

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        launch = params.get("launch", Launch())
        made = make(tensors, params)
        for turn in range(launch.warm):
            with _other_values(tensors, turn + 1, reuse=launch.reuse) as given:
                made(given, params)
        return made(tensors, params)

    run.is_of_object = True  # type: ignore[attr-defined]
    return run


def is_of_object(run: Any) -> bool:
    """Whether a launcher is that of an object, so that warm calls are a part of its cases."""
    return bool(getattr(run, "is_of_object", False))


@contextmanager
def _other_values(tensors: Tensors, turn: int, *, reuse: bool) -> Iterator[dict[str, Tensor]]:
    """The same tensors with floats moved round by `turn` places."""
    held = {name: tensor.clone() for name, tensor in tensors.items()}
    if not reuse:
        yield {name: _move(tensor, turn) for name, tensor in held.items()}
        return
    for name, tensor in tensors.items():
        _write(tensor, _move(held[name], turn))
    try:
        yield dict(tensors)
    finally:
        for name, tensor in tensors.items():
            _write(tensor, held[name])


def _move(tensor: Tensor, turn: int) -> Tensor:
    if not tensor.is_floating_point():
        return tensor.clone()
    return bits(tensor).flatten().roll(turn).reshape(tensor.shape).view(tensor.dtype)


def _write(tensor: Tensor, values: Tensor) -> None:
    """Bit for bit and unnoticed; where elements share memory, nothing is written."""
    if not torch._debug_has_internal_overlap(tensor):
        bits(tensor.data).copy_(bits(values))
