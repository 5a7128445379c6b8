"""Where a sweep that was stopped had got to: one JSON file each, from which it goes on.

The file is named for everything that decides the answer (kernel, the sources beside it, planted fault, lane,
library versions, range of patterns), so that a census never mixes two kernels. It is replaced whole
after every look, so that even a killed sweep loses seconds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from bitproof.harness.errors import UsageError
from bitproof.harness.lanes.base import Lane
from bitproof.harness.report import files as saving
from bitproof.harness.subjects.discovery import Found
from bitproof.harness.sweep.census import Census

FORMAT = 1
FOLDER = Path(".bitproof") / "sweeps"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stopped:
    """What the file holds: whose census it is, and the census of the patterns in [low, position)."""

    format: int
    kernel: str
    fault: str | None
    source: str
    lane: str
    versions: dict[str, str]
    low: int
    high: int
    position: int
    census: Census


class Keeper:
    """Keeps one sweep's state in its file; `position` and `census` are where to go on."""

    def __init__(
        self,
        found: Found,
        lane: Lane,
        *,
        low: int,
        high: int,
        fault: str | None = None,
        fresh: bool = False,
        folder: Path = FOLDER,
    ) -> None:
        """Find the state of a stopped sweep of these patterns, or begin; `fresh` sets it aside.

        Raises UsageError, leaving the file as it is, when it is damaged or of another format.
        """
        begun = Stopped(
            format=FORMAT,
            kernel=found.spec.name,
            fault=fault,
            source=_digest(found),
            lane=lane.name,
            versions=lane.versions(),
            low=low,
            high=high,
            position=low,
            census=Census(),
        )
        key = hashlib.sha256(json.dumps(_identity(begun), sort_keys=True).encode()).hexdigest()
        self.path = folder / f"{begun.kernel}-{key[:12]}.stopped.json"
        if fresh and self.path.exists():
            self.path.replace(self.path.with_suffix(".earlier"))
        self._state = _load(self.path, begun) if self.path.exists() else begun

    @property
    def position(self) -> int:
        """The first pattern that has not been tried."""
        return self._state.position

    @property
    def census(self) -> Census:
        """The census of the patterns before `position`."""
        return self._state.census

    def keep(self, position: int, census: Census) -> None:
        """Replace the file by one that says so; it appears whole or not at all."""
        self._state = dataclasses.replace(self._state, position=position, census=census)
        saving.save(self.path, msgspec.json.format(msgspec.json.encode(self._state)) + b"\n")

    def finish(self, result: str) -> Path:
        """Leave the JSON text of the whole census beside, and remove the state; where it was left."""
        path = self.path.with_name(self.path.name.replace(".stopped.", ".census."))
        saving.save(path, result.encode() + b"\n")
        self.path.unlink(missing_ok=True)
        return path


def _identity(state: Stopped) -> dict[str, Any]:
    plain = msgspec.to_builtins(state)
    return {name: plain[name] for name in sorted(plain) if name not in ("position", "census")}


def _load(path: Path, begun: Stopped) -> Stopped:
    remedy = "move it away, or start over with --fresh"
    try:
        state = msgspec.json.decode(path.read_bytes(), type=Stopped, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no state of a stopped sweep ({error}): {remedy}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): {remedy}") from error
    tried = state.position - state.low
    if (
        _identity(state) != _identity(begun)
        or not begun.low <= state.position <= begun.high
        or state.census.tried != tried
        or not state.census.consistent
    ):
        raise UsageError(f"{path} contradicts itself, it was changed or damaged: {remedy}")
    return state


def _digest(found: Found) -> str:
    """SHA-256 of the Python files in the folder that declares the kernel: it may use any of them."""
    assert found.module.__file__ is not None
    digest = hashlib.sha256()
    for path in sorted(Path(found.module.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
