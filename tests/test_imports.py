"""What import-linter's contracts in pyproject.toml cannot say: foreign packages, weight, size and types."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
LINES = 450

# What each package may import beside ours and the standard library.
FOREIGN = {
    "bitproof": {"hypothesis", "pytest", "torch", "xdist"},
    "harness": {
        "click",
        "hypothesis",
        "jinja2",
        "matplotlib",
        "ml_dtypes",
        "msgspec",
        "numpy",
        "packaging",
        "rich",
        "safetensors",
        "torch",
        "triton",
        "vl_convert",
    },
    "kernels": {"hypothesis", "numpy", "torch", "triton"},
    "oracles": {"ml_dtypes", "numpy", "torch"},
    "properties": {"pytest"},
}

# Modules that a foreign test run loads, or that fix the lane before triton is imported: what they
# import when they are loaded, beside the standard library.
LIGHT: dict[str, tuple[str, ...]] = {
    "bitproof/__init__.py": (),
    "bitproof/options.py": (),
    "bitproof/plugin.py": ("pytest", "bitproof.options"),
    "harness/__init__.py": (),
    "harness/errors.py": (),
    "harness/lanes/__init__.py": ("bitproof.harness.errors", "bitproof.harness.targets.families"),
    "harness/targets/__init__.py": (),
    "harness/targets/families.py": (),
}

# Links are not followed: `bitproof` is its own few files, the other packages lie beside it.
FILES = sorted(
    path.relative_to(CHECKOUT).as_posix()
    for package in FOREIGN
    for path in (CHECKOUT / package).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
)
MODULES = [name for name in FILES if name.endswith(".py")]


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


def _root(name: str) -> str:
    return name.partition(".")[0]


def test_every_package_is_looked_at() -> None:
    """A package that moves away would leave the tests below without a subject."""
    assert {_root(module.replace("/", ".")) for module in MODULES} == set(FOREIGN)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_ours_and_what_its_package_may_use(module: str) -> None:
    """Ours by the one name that is installed; others' as the package's row says, anywhere in the module."""
    foreign = {_root(name) for name in _imported(ast.walk(_tree(module)))} - {"bitproof"}
    assert foreign <= FOREIGN[module.partition("/")[0]]


@pytest.mark.parametrize("module", sorted(LIGHT))
def test_light_modules_load_nothing_heavy(module: str) -> None:
    """What runs that do not concern us load must cost them nothing."""
    loaded = _imported(_tree(module).body)
    assert {name for name in loaded if not name.startswith(LIGHT[module])} == set()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_one_room(module: str) -> None:
    """One subject, about 400 lines at most, and a name that says which."""
    lines = (CHECKOUT / module).read_text(encoding="utf-8").count("\n")
    assert lines <= LINES
    assert Path(module).stem not in {"utils", "util", "helpers", "common", "misc"}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is(module: str) -> None:
    """Its first lines say what is in it and why."""
    assert ast.get_docstring(_tree(module))


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("kernels/")])
def test_functions_that_triton_does_not_compile_are_typed(module: str) -> None:
    """mypy lets untyped ones pass in kernels, since compiled ones have no types that Python knows."""
    functions = [node for node in ast.walk(_tree(module)) if isinstance(node, ast.FunctionDef)]
    assert [f.name for f in functions if not _is_compiled(f) and not _is_typed(f)] == []


def _is_compiled(function: ast.FunctionDef) -> bool:
    return any(
        ast.unparse(each).startswith(("triton.jit", "gluon.jit"))
        for each in function.decorator_list
    )


def _is_typed(function: ast.FunctionDef) -> bool:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    others = [argument for argument in (given.vararg, given.kwarg) if argument is not None]
    typed = [argument.annotation is not None for argument in (*named, *others)]
    own = bool(named) and named[0].arg in ("self", "cls")
    return function.returns is not None and all(typed[1:] if own else typed)


def test_nothing_but_code_ships() -> None:
    """And two pages to fill in: evidence that was taken on a card lies with the tests that use it."""
    others = [name for name in FILES if not name.endswith((".py", "/py.typed"))]
    assert others == ["harness/acceptance/evidence.html", "harness/report/page.html"]
