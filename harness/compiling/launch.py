"""A kernel that a launcher started: all that a compiler has to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """One kernel that was started, as `triton.jit` and the launcher described it.

    function  the Python function under `triton.jit`, with `declared`, what that was told besides
    arguments the kernel's arguments by name, constants and defaults included
    options   what else the launch was given, such as num_warps
    """

    function: Callable[..., Any]
    declared: Mapping[str, Any]
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
