"""Autotuned kernels on a device: the configuration is the case's, never the fastest of the day."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime.autotuner import Autotuner


@contextmanager
def configured(number: int) -> Iterator[None]:
    """While active, an autotuned kernel runs in its configuration `number`, modulo how many it has."""
    original = Autotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        every = self.configs
        self.configs = [every[number % len(every)]]  # with one there is nothing to time
        try:
            return original(self, *args, **kwargs)
        finally:
            self.configs = every

    Autotuner.run = run
    try:
        yield
    finally:
        Autotuner.run = original
