"""Memory accesses of an interpreted kernel, shown to the session's sanitizer before they happen."""

from __future__ import annotations

from harness.lanes.interpreter.overlay import Patch


def patches() -> list[Patch]:
    """No access is watched yet."""
    return []
