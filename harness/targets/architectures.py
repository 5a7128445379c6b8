"""The targets whose code can be read, and how Triton calls them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bitproof.harness.errors import UsageError

# Bytes of shared memory that one program may have, by target: CUDA C++ Programming Guide 13, table
# "Technical Specifications per Compute Capability"; AMD's local data share, CDNA 3 and 4 white papers.
_SHARED = {
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_89": 99 * 1024,
    "sm_90": 227 * 1024,
    "sm_100": 227 * 1024,
    "sm_120": 99 * 1024,
    "gfx942": 64 * 1024,
    "gfx950": 160 * 1024,
}
ALL = tuple(_SHARED)
# What `pytest properties/` reads everywhere; `ci/matrix.py` and the nightly run read all of them.
USUAL = ("sm_80", "sm_89", "sm_90")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A target by name, as on the command line: `backend`, `arch` and `warp` are Triton's own."""

    name: str
    backend: str
    arch: int | str
    warp: int
    shared_memory: int


def target(name: str) -> Target:
    """The target called `name`; UsageError for one that is not known."""
    if name not in _SHARED:
        raise UsageError(f"unknown target {name!r}: choose from {', '.join(ALL)}")
    nvidia = re.fullmatch(r"sm_(\d+)", name)
    return Target(
        name=name,
        backend="cuda" if nvidia else "hip",
        arch=int(nvidia[1]) if nvidia else name,
        warp=32 if nvidia else 64,
        shared_memory=_SHARED[name],
    )


def parse_targets(names: str) -> tuple[str, ...]:
    """The targets in a comma-separated list, in its order and once each; UsageError for unknown ones."""
    chosen = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not chosen:
        raise UsageError(f"no target named: choose from {', '.join(ALL)}")
    return tuple(target(name).name for name in chosen)
