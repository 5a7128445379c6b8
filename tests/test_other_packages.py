"""Kernels of public packages are held to a contract or a reference in a few lines each."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path

import pytest

from bitproof.harness import lanes
from bitproof.harness.case import build
from bitproof.harness.checks import run
from bitproof.harness.inputs.cases import DeclaredCase
from bitproof.harness.outcomes import Outcome
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.kernels.delta.cases import DeltaCase
from tests.first_specs.judging import judge

lanes.choose()
HERE = lanes.present()
FOLDER = Path(__file__).parent / "other_packages"
FILES = {"fla": FOLDER / "fla_specs.py", "liger_kernel": FOLDER / "liger_specs.py"}


@cache
def _specs(package: str) -> dict[str, FoundSpec]:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return {
        found.spec.name: found for found in find([f"tests.other_packages.{FILES[package].stem}"])
    }


@pytest.mark.parametrize("package", FILES)
def test_a_subject_has_fewer_than_fifteen_lines(package: str) -> None:
    """Launcher and spec together, as they are formatted; all of it from the facade and contracts."""
    tree = ast.parse(FILES[package].read_text())
    made = [one for one in tree.body if isinstance(one, (ast.Assign, ast.FunctionDef))]
    lengths = {ast.unparse(one)[:30]: (one.end_lineno or 0) - one.lineno + 1 for one in made}
    assert max(lengths.values()) < 15, lengths
    ours = [
        one.module
        for one in ast.walk(tree)
        if isinstance(one, ast.ImportFrom) and str(one.module).startswith("bitproof")
    ]
    assert set(ours) <= {"bitproof", "bitproof.kernels.delta"}


@pytest.mark.parametrize(
    "name", ["liger_rms_norm", "liger_swiglu", "liger_rope", "liger_cross_entropy"]
)
def test_liger_agrees_forward_and_backward(name: str) -> None:
    """A few cases each; `docs/other-packages.md` tells of many."""
    result = judge(_specs("liger_kernel")[name], "agreement", 6)
    assert result.findings is None, result.findings
    assert result.outcomes[Outcome.PASSED] >= 4


def test_liger_turns_a_dense_batch_of_single_tokens_wrongly() -> None:
    """A step between tokens is taken for one between sequences, where an axis of length 1 has any step."""
    from tests.other_packages.liger_specs import ROPE_DENSE

    for batch, outcome in ((1, Outcome.PASSED), (2, Outcome.FAILED)):
        assert issubclass(ROPE_DENSE.case, DeclaredCase)
        case = ROPE_DENSE.case(batch=batch, heads=2, groups=2, tokens=1)  # type: ignore[call-arg]
        result = run("agreement", ROPE_DENSE, build(case, HERE.device), HERE)
        assert result.outcome is outcome, result.text


@pytest.mark.parametrize("kind", ["kda", "gdn2"])
def test_flash_linear_attention_agrees(kind: str) -> None:
    """Two sequences and an empty one, with initial states, by chunks."""
    spec = _specs("fla")[f"fla_{kind}"].spec
    case = DeltaCase(kind=kind, lengths=(5, 0, 18), keys=32, values=24, initial=True)
    result = run("agreement", spec, build(case, HERE.device), HERE)
    assert result.outcome is Outcome.PASSED, result.text
