"""Installs the overlay: every change to Triton's interpreter is a `Patch`, listed by the module that owns its subject.

Nothing here forks Triton. A patch wraps one attribute of the installed interpreter; the wrapper hands
over to the original whenever no session is active (`state.current is None`), so that other users of the
interpreter in the same process see the stock behaviour.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# One module a subject; each has `patches() -> list[Patch]`. Order matters where two wrap the same attribute.
SUBJECTS = ("conversions", "arithmetic", "reductions", "dots", "access", "launches")

_installed = False


@dataclass(frozen=True)
class Patch:
    """Replace `owner.name` by `make(original)`."""

    owner: Any
    name: str
    make: Callable[[Any], Any]


def install() -> None:
    """Apply every patch once in this process; needs triton imported under TRITON_INTERPRET=1."""
    global _installed
    if _installed:
        return
    for subject in SUBJECTS:
        module = importlib.import_module(f"{__package__}.{subject}")
        for patch in module.patches():
            setattr(patch.owner, patch.name, patch.make(getattr(patch.owner, patch.name)))
    _installed = True
