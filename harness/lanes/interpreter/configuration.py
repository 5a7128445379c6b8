"""What a card demands of a launch, and Triton of its keywords: what breaks it would never have started."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
from collections.abc import Collection, Mapping
from typing import Any

from triton.backends import backends

from bitproof.harness.errors import Unlaunchable

# Programs along each axis: CUDA C++ Programming Guide 13, table "Technical Specifications per Compute
# Capability", maximum x-, y- and z-dimension of a grid.
_GRID = {"x": 2**31 - 1, "y": 65535, "z": 65535}
# Warps of 32 threads, of which a program has at most 1024 (the same table).
_WARPS = 32


@functools.cache
def options() -> frozenset[str]:
    """The keywords that the installed Triton takes beside a kernel's own arguments, on any backend."""
    found: set[str] = set()
    for name in backends:
        module = importlib.import_module(f"triton.backends.{name}.compiler")
        for kind in vars(module).values():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                names = {field.name for field in dataclasses.fields(kind)}
                found |= names if "num_warps" in names else set()
    return frozenset(found)


def require_keywords(kernel: str, given: Collection[str], accepted: Collection[str]) -> None:
    """Raise Unlaunchable for a keyword that is neither an argument of the kernel nor an option of Triton."""
    known = {*accepted, *options()}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            meant = f": did you mean {near[0]}?" if near else ""
            raise Unlaunchable(
                f"{kernel} is launched with {name}, which is neither one of its arguments nor an "
                f"option of Triton{meant}"
            )


def require_launchable(kernel: str, grid: tuple[int, ...], given: Mapping[str, Any]) -> None:
    """Raise Unlaunchable for a grid or a number of warps that no card starts."""
    for (axis, most), programs in zip(_GRID.items(), grid, strict=True):
        if programs > most:
            raise Unlaunchable(
                f"{kernel} is launched on grid {grid}: a card takes at most {most} programs along "
                f"{axis}"
            )
    warps = given.get("num_warps")
    if warps is not None and not (0 < warps <= _WARPS and warps & (warps - 1) == 0):
        raise Unlaunchable(
            f"{kernel} is launched with num_warps={warps}: it has to be a power of two, at most "
            f"{_WARPS}"
        )
