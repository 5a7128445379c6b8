"""Which kernels a call starts, and what it does where none of them runs."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime import interpreter, jit

_KINDS = (jit.JITFunction, interpreter.InterpretedFunction)


@contextmanager
def noting_starts(*, void: bool = False) -> Iterator[collections.Counter[str]]:
    """How often each kernel is started within, by its name; where `void`, nothing of it runs."""
    counted: collections.Counter[str] = collections.Counter()
    earlier = {kind: kind.run for kind in _KINDS}

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("warmup"):
                counted[self.fn.__name__] += 1
            return None if void else original(self, *args, **kwargs)

        return run

    for kind, original in earlier.items():
        kind.run = noting(original)
    try:
        yield counted
    finally:
        for kind, original in earlier.items():
            kind.run = original


@contextmanager
def noting_variants() -> Iterator[set[str]]:
    """The hashes of the compiled kernels that are started within: the same whatever was compiled before."""
    started: set[str] = set()
    original = jit.JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = original(self, *args, **kwargs)
        identity = getattr(kernel, "hash", None)
        if identity is not None and not kwargs.get("warmup"):
            started.add(identity)
        return kernel

    jit.JITFunction.run = run
    try:
        yield started
    finally:
        jit.JITFunction.run = original
