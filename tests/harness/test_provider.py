"""Derandomised searches draw the same cases whatever else a process has loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from harness import falsify
from harness.provider import STEADY, Steady
from tests.harness.plain import SPEC, PlainLane

CONSTANTS = "\n".join(f"X{i} = {10**12 + 7 * i}" for i in range(200))
DRAW = """
import sys
from hypothesis import given, settings, strategies as st
import harness.provider
if sys.argv[2:]:
    import constants
settings.register_profile("here", derandomize=True, database=None, backend=sys.argv[1], max_examples=50)
settings.load_profile("here")
drawn = []
@given(st.lists(st.integers(0, 2**42), min_size=8, max_size=8), st.floats())
def judge(numbers, x):
    drawn.append((numbers, x))
judge()
print(drawn)
"""


@pytest.fixture
def drawn(tmp_path: Path):
    """`drawn(backend, *more)`: what a process draws, one with a module of constants if there is more."""
    (tmp_path / "constants.py").write_text(CONSTANTS)

    def run(backend: str, *more: str) -> str:
        checkout = str(Path(__file__).resolve().parents[2])
        script = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {checkout!r}]\n{DRAW}"
        return subprocess.run(
            [sys.executable, "-c", script, backend, *more],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    return run


def test_constants_of_loaded_modules_change_nothing(drawn) -> None:
    """Where they do change what Hypothesis' own provider draws."""
    assert drawn("hypothesis") != drawn("hypothesis", "constants")
    assert drawn(STEADY) == drawn(STEADY, "constants") != "[]\n"


@pytest.mark.parametrize("derandomize", [False, True])
def test_only_derandomised_searches_are_steady(
    derandomize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random one keeps the provider that its settings name."""
    asked = []
    monkeypatch.setattr(Steady, "_maybe_draw_constant", lambda *a, **k: asked.append(a))
    base = settings(derandomize=derandomize, database=None)
    falsify.search(SPEC, "agreement", PlainLane(), max_examples=5, base=base)
    assert bool(asked) == derandomize
