"""Installs the overlay: every change to the interpreter is a `Patch` of the module that owns it.

Nothing here forks Triton. A patch wraps one attribute of the installed interpreter; the wrapper
hands over to the original whenever no session is active (`state.current is None`), so that other
users of the interpreter in the same process see the stock behaviour.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bitproof.harness.lanes.interpreter import state

# One module a subject; each has `patches() -> list[Patch]`. Where two wrap the same attribute, the
# later one is outside.
SUBJECTS = (
    "numerics.conversions",
    "numerics.arithmetic",
    "numerics.approximations",
    "numerics.fusion",
    "numerics.clamping",
    "booleans",
    "numerics.reductions",
    "numerics.dots",
    "numerics.atomics_and_padding",
    "access",
    "definedness",
    "hints",
    "launches",
    "supplements",
    "passages",
    "speed",
    "offsets",
)

_installed = False


@dataclass(frozen=True)
class Patch:
    """Replace `owner.name` by `make(original)`."""

    owner: Any
    name: str
    make: Callable[[Any], Any]


def in_session(replacement: Callable[..., Any]) -> Callable[[Any], Any]:
    """A `make` whose wrapper calls `replacement` during a session, the original outside of one."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if state.current is None:
                return original(*args, **kwargs)
            return replacement(*args, **kwargs)

        return wrapper

    return make


def _missing(name: str) -> Callable[..., Any]:
    def absent(*_args: Any, **_kwargs: Any) -> Any:
        raise AttributeError(f"this triton's interpreter has no {name}")

    return absent


def install() -> None:
    """Apply every patch once in this process; needs triton imported under TRITON_INTERPRET=1."""
    global _installed
    if _installed:
        return
    for subject in SUBJECTS:
        module = importlib.import_module(f"{__package__}.{subject}")
        for patch in module.patches():
            original = getattr(patch.owner, patch.name, None) or _missing(patch.name)
            setattr(patch.owner, patch.name, patch.make(original))
    _installed = True
