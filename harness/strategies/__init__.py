"""Hypothesis strategies for the inputs that kernels meet, a module for each kind of input."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitproof.harness.strategies import (
        content,
        correlated,
        encoding,
        floats,
        gates,
        launches,
        packed,
        partitions,
        ragged,
        sizes,
        values,
    )

__all__ = [
    "content",
    "correlated",
    "encoding",
    "floats",
    "gates",
    "launches",
    "packed",
    "partitions",
    "ragged",
    "sizes",
    "values",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
