"""Derandomised searches draw the same cases whatever else a process has loaded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from bitproof.harness import checks
from bitproof.harness.case import Case, Inputs, build
from bitproof.harness.outcomes import CheckResult
from bitproof.harness.search import falsify
from bitproof.harness.search.draws import STEADY, Steady
from bitproof.harness.spec import KernelSpec
from tests.harness.plain import SPEC, PlainLane, variant

CONSTANTS = "\n".join(f"X{i} = {10**12 + 7 * i}" for i in range(200))
DRAW = """
import sys
from hypothesis import given, settings, strategies as st
from bitproof.harness.search import draws
draws.register()
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
        checkout = str(Path(__file__).resolve().parents[3])
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


def test_the_text_of_the_search_changes_nothing(tmp_path: Path) -> None:
    """A comment more in what judges or takes cases leaves them; another kernel or check has others."""
    text = Path(falsify.__file__).read_text()
    edited = text.replace(
        "inputs, findings = execute(case)\n", "inputs, findings = execute(case)  # !\n", 1
    ).replace("found.append(case)\n", "found.append(case)  # !\n")
    assert edited.count("# !") == 2
    (tmp_path / "edited.py").write_text(edited)
    spec = importlib.util.spec_from_file_location("edited_falsify", tmp_path / "edited.py")
    assert spec is not None
    assert spec.loader is not None
    other = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = other
    try:
        spec.loader.exec_module(other)
        assert _cases(other.search, SPEC, "agreement") == _cases(falsify.search, SPEC, "agreement")
        assert other.draw_cases(SPEC, 20) == falsify.draw_cases(SPEC, 20)
    finally:
        del sys.modules[spec.name]
    renamed = variant(name="other")
    assert falsify.draw_cases(renamed, 20) != falsify.draw_cases(SPEC, 20)
    assert _cases(falsify.search, renamed, "agreement") != _cases(falsify.search, SPEC, "agreement")
    assert _cases(falsify.search, SPEC, "memory") != _cases(falsify.search, SPEC, "agreement")


def _cases(search: Callable[..., object], spec: KernelSpec, check: str) -> list[Case]:
    """What a derandomised search judges."""
    judged: list[Case] = []
    lane = PlainLane()

    def execute(case: Case) -> tuple[Inputs, CheckResult]:
        judged.append(case)
        inputs = build(case, lane.device)
        return inputs, checks.run(check, spec, inputs, lane)

    base = settings(derandomize=True, database=None)
    search(spec, check, lane, max_examples=20, base=base, execute=execute)
    return judged
