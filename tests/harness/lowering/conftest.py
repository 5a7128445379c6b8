"""Fixtures of the lowering tests: readings made by worker processes, kept for the length of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bitproof.harness.lowering import compile
from bitproof.harness.lowering.findings import Reading
from bitproof.harness.subjects.discovery import FoundSpec, find

KERNELS = Path(__file__).parent / "hazards.py"

Read = Callable[[str, str], Reading]


@pytest.fixture(scope="session")
def kernel() -> Callable[[str], FoundSpec]:
    """`kernel(name)`: a kernel of `hazards`."""
    return lambda name: find([str(KERNELS)], [name])[0]


@pytest.fixture(scope="session")
def read(kernel: Callable[[str], FoundSpec], tmp_path_factory: pytest.TempPathFactory) -> Read:
    """`read(name, target)`: the reading of a kernel of `hazards`, made afresh in this run."""
    folder = tmp_path_factory.mktemp("lowering")
    made: dict[tuple[str, str], Reading] = {}

    def read(name: str, target: str) -> Reading:
        if (name, target) not in made:
            kept, compile.FOLDER = compile.FOLDER, folder
            try:
                made[name, target] = compile.read_one(kernel(name), target)
            finally:
                compile.FOLDER = kept
        return made[name, target]

    return read
