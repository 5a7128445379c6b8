"""Which kernels a call starts, and what it does where none of them runs."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from triton.runtime import interpreter, jit

_KINDS = (jit.JITFunction, interpreter.InterpretedFunction)


@contextmanager
def noting_starts(*, void: bool = False) -> Iterator[collections.Counter[str]]:
    """How often each kernel is started within, by its name; where `void`, nothing of it runs."""
    counted: collections.Counter[str] = collections.Counter()

    def note(start: Callable[[], Any], kernel: Any, warming: bool) -> Any:
        counted.update([] if warming else [kernel.fn.__name__])
        return None if void else start()

    with _watching_starts(note):
        yield counted


@contextmanager
def noting_variants() -> Iterator[set[str]]:
    """The hashes of the compiled kernels that are started within: the same whatever was compiled before."""
    started: set[str] = set()

    def note(start: Callable[[], Any], kernel: Any, warming: bool) -> Any:
        compiled = start()
        if not warming and hasattr(compiled, "hash"):  # what is interpreted returns nothing
            started.add(compiled.hash)
        return compiled

    with _watching_starts(note):
        yield started


@contextmanager
def _watching_starts(note: Callable[[Callable[[], Any], Any, bool], Any]) -> Iterator[None]:
    """Have `note(start, kernel, whether it only warms up)` answer in place of every start of a kernel."""
    earlier = {kind: kind.run for kind in _KINDS}

    def watching(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            return note(partial(original, self, *args, **kwargs), self, bool(kwargs.get("warmup")))

        return run

    for kind, original in earlier.items():
        kind.run = watching(original)
    try:
        yield
    finally:
        for kind, original in earlier.items():
            kind.run = original
