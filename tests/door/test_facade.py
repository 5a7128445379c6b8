"""`import bitproof` gives authors the names they need, and costs nothing until one is asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bitproof

FACADE = Path(str(bitproof.__file__))
EXAMPLE = Path(__file__).resolve().parents[1] / "example_package"


@pytest.mark.parametrize("name", bitproof.__all__)
def test_every_name_can_be_had(name: str) -> None:
    """The thing itself, not a copy of it."""
    value = getattr(bitproof, name)
    assert getattr(value, "__name__", name).rpartition(".")[2] == name
    assert dir(bitproof).count(name) == 1


def test_another_name_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="module 'bitproof' has no attribute 'Kernelspec'"):
        bitproof.Kernelspec  # noqa: B018


def test_importing_it_loads_nothing_heavy() -> None:
    """So that a lane can still be chosen before Triton is imported."""
    script = (
        "import sys, bitproof; dir(bitproof); "
        "print({'torch', 'triton', 'numpy', 'hypothesis', 'bitproof.harness'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


def test_type_checkers_see_the_same_names() -> None:
    """What is imported for them alone is what is loaded lazily, from the same modules."""
    seen: dict[str, str] = {}
    for node in ast.walk(ast.parse(FACADE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("bitproof"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                modules = bitproof._MODULES.values()
                seen[alias.name] = whole if whole in modules else str(node.module)
    assert seen == {**bitproof._HOMES, **bitproof._MODULES}
    assert sorted(seen) == sorted(bitproof.__all__)


def test_the_example_package_uses_nothing_else_of_ours() -> None:
    """What it cannot do with the facade, authors cannot."""
    for path in EXAMPLE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                ours = str(node.module).split(".")[0] == "bitproof"
                assert not ours or node.module == "bitproof", f"{path}:{node.lineno}"
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("bitproof.") for alias in node.names)
