"""The arrows between packages, and the size of their modules, are as the design says."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGES = ("harness", "kernels", "oracles", "properties")
LINES = 450

# What each package may import beside itself and the standard library. `oracles` is the ground floor,
# `harness` knows no kernel, and `properties` meets kernels through `harness` alone.
MAY_IMPORT = {
    "oracles": {"ml_dtypes", "numpy", "torch"},
    "harness": {
        "click",
        "hypothesis",
        "matplotlib",
        "ml_dtypes",
        "msgspec",
        "numpy",
        "oracles",
        "pytest",
        "rich",
        "safetensors",
        "torch",
        "triton",
        "xdist",
    },
    "kernels": {"harness", "hypothesis", "numpy", "oracles", "torch", "triton"},
    "properties": {"harness", "pytest"},
}

# Modules that a foreign test run loads, or that fix the lane before triton is imported: what they
# import when they are loaded, beside the standard library.
LIGHT: dict[str, tuple[str, ...]] = {
    "harness/__init__.py": (),
    "harness/errors.py": (),
    "bitproof/plugin.py": ("pytest",),
    "harness/lanes/__init__.py": ("bitproof.harness.errors", "bitproof.harness.targets.families"),
    "harness/targets/__init__.py": (),
    "harness/targets/families.py": (),
}

MODULES = sorted(
    path.relative_to(CHECKOUT).as_posix()
    for package in PACKAGES
    for path in (CHECKOUT / package).rglob("*.py")
)


def _tree(module: str) -> ast.Module:
    return ast.parse((CHECKOUT / module).read_text(encoding="utf-8"))


def _imported(nodes: Iterable[ast.AST]) -> set[str]:
    """Full names of what statements import from outside the standard library: modules, or names in them."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: import by the full name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if _root(name) not in sys.stdlib_module_names}


def _everywhere(module: str) -> set[str]:
    return _imported(ast.walk(_tree(module)))


def _root(name: str) -> str:
    return name.partition(".")[0]


@pytest.mark.parametrize("module", MODULES)
def test_arrows_point_one_way(module: str) -> None:
    """A module imports its own package, what the package may use, and nothing else, anywhere in it."""
    package = module.partition("/")[0]
    roots = {_root(name) for name in _everywhere(module)}
    assert roots - {package} <= MAY_IMPORT[package]


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("harness/")])
def test_only_lanes_know_how_a_kernel_is_run(module: str) -> None:
    """Triton is imported by the lanes, and by what reads the compiler's output."""
    named = {name for name in _everywhere(module) if _root(name) == "triton"}
    assert not named or module.startswith(("harness/lanes/", "harness/lowering/")), named


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("harness/lanes/")])
def test_lanes_share_no_rounding_with_the_oracles(module: str) -> None:
    """A lane that rounded as its judge does would be judged by itself: only formats are shared."""
    shared = {name for name in _everywhere(module) if _root(name) == "oracles"}
    assert {".".join(name.split(".")[:2]) for name in shared} <= {"bitproof.oracles.formats"}


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("oracles/")])
def test_oracles_round_without_a_lane(module: str) -> None:
    """Nor does an oracle ever run Triton."""
    assert not {_root(name) for name in _everywhere(module)} & {"triton", "harness"}


@pytest.mark.parametrize("module", sorted(LIGHT))
def test_light_modules_load_nothing_heavy(module: str) -> None:
    """What runs that do not concern us load must cost them nothing."""
    loaded = _imported(_tree(module).body)
    assert {name for name in loaded if not name.startswith(LIGHT[module])} == set()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_one_room(module: str) -> None:
    """One subject, about 400 lines at most; nobody's drawer."""
    lines = (CHECKOUT / module).read_text(encoding="utf-8").count("\n")
    assert lines <= LINES
    assert Path(module).stem not in {"utils", "util", "helpers", "common", "misc"}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is(module: str) -> None:
    """Its first lines say what is in it and why."""
    assert ast.get_docstring(_tree(module))
