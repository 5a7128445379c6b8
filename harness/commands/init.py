"""`bitproof init FILE:function`: a spec for a launcher, written from its signature."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from bitproof.harness.errors import EnvironmentUnfit, UsageError

# Names that tell how a tensor lies beside the others, where a signature cannot.
_OFFSETS = ("cu_seqlens", "offsets", "seqlens", "indptr")
_INDICES = ("index", "indices", "idx", "expert", "experts", "expert_ids", "positions")
_VECTORS = ("w", "weight", "bias", "scale", "gamma", "beta", "b")
_REFERENCES = ("{}_reference", "{}_ref", "reference_{}", "ref_{}", "{}_torch", "torch_{}")


@dataclass(frozen=True, kw_only=True)
class _Parameter:
    """A parameter of the launcher: `declared` is how the spec says it, "" where its default serves."""

    name: str
    declared: str
    tensor: bool
    comment: str = ""
    given: bool = True


def run(function: str, *, output: Path | None) -> int:
    """Write the spec beside the file, or to `output`; refuse to replace one."""
    path, _, name = function.partition(":")
    if not name:
        raise UsageError(f"init takes FILE:function, such as {path or 'kernel.py'}:launch")
    source = Path(path)
    tree = _parse(source)
    found = _find(tree, source, name)
    at = output or source.with_name(f"{source.stem}_spec.py")
    text = _write(source, tree, found)
    try:
        with at.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{at} exists already: name another file by --output") from None
    except OSError as error:
        raise EnvironmentUnfit(f"{at} cannot be written: {error.strerror}") from error
    click.echo(f"wrote {at}: go through the lines that say DECIDE, then run")
    click.echo(f"  bitproof check {name.lower()} --spec {at}")
    return 0


def _parse(source: Path) -> ast.Module:
    """The file's syntax: nothing of it runs, and what it imports need not be installed."""
    try:
        return ast.parse(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{source}: it is no Python file: {error}") from error


def _find(tree: ast.Module, source: Path, name: str) -> ast.FunctionDef:
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    if name not in functions:
        known = ", ".join(one for one, node in functions.items() if not _is_kernel(node)) or "none"
        raise UsageError(f"{source} defines no function {name!r}: there are {known}")
    if _is_kernel(functions[name]):
        raise UsageError(
            f"{name!r} is a kernel: name the Python function that launches it, with tensors in and out"
        )
    return functions[name]


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _list_parameters(function: ast.FunctionDef) -> Iterator[_Parameter]:
    taken = function.args
    places = [*taken.posonlyargs, *taken.args]
    defaults: list[ast.expr | None] = [None] * (len(places) - len(taken.defaults))
    defaults += taken.defaults
    named = [*zip(places, defaults, strict=True)]
    named += [*zip(taken.kwonlyargs, taken.kw_defaults, strict=True)]
    for argument, default in named:
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        yield _declare(argument.arg, annotation, default)


def _declare(name: str, annotation: str, default: ast.expr | None) -> _Parameter:
    value = default.value if isinstance(default, ast.Constant) else None
    if default is not None and "Tensor" in annotation:
        comment = "left out: DECIDE whether callers give it"
        return _Parameter(name=name, declared="", tensor=True, comment=comment, given=False)
    if "Tensor" in annotation or (not annotation and default is None):
        return _declare_tensor(name)
    if annotation == "bool" or isinstance(value, bool):
        return _Parameter(name=name, declared="Choice(False, True)", tensor=False)
    if isinstance(value, (int, float, str)):
        comment = "DECIDE which others callers give"
        return _Parameter(name=name, declared=f"Choice({value!r})", tensor=False, comment=comment)
    if annotation == "float":
        comment = "DECIDE its range"
        return _Parameter(name=name, declared="Real(0.0, 1.0)", tensor=False, comment=comment)
    if annotation == "int":
        comment = "DECIDE its range"
        return _Parameter(name=name, declared="Integer(1, 8)", tensor=False, comment=comment)
    comment = "left out: DECIDE whether callers give it"
    return _Parameter(name=name, declared="", tensor=False, comment=comment, given=default is None)


def _declare_tensor(name: str) -> _Parameter:
    plain = name.lower().removesuffix("_ptr")
    if plain in _OFFSETS:
        declared = 'Offsets(of="rows")'
    elif plain in _INDICES:
        declared = 'Index("rows", into="rows")'
    else:
        axes = '"n"' if plain in _VECTORS else '"rows", "n"'
        declared = f"Tensor({axes}, dtypes=(torch.float32, torch.bfloat16))"
    comment = "DECIDE its dimensions, types and layouts"
    return _Parameter(name=name, declared=declared, tensor=True, comment=comment)


def _count_outputs(function: ast.FunctionDef) -> int:
    """How many values the last `return` gives."""
    returns = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value is not None
    ]
    last = returns[-1] if returns else None
    return len(last.elts) if isinstance(last, ast.Tuple) else 1


def _write(source: Path, tree: ast.Module, function: ast.FunctionDef) -> str:
    name = function.name
    parameters = [one for one in _list_parameters(function) if one.given]
    outputs = [f"y{n}" for n in range(count)] if (count := _count_outputs(function)) > 1 else ["y"]
    defined = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
    reference = next((r.format(name) for r in _REFERENCES if r.format(name) in defined), "")
    passed = ", ".join(
        f'{one.name}={"tensors" if one.tensor else "params"}["{one.name}"]' for one in parameters
    )
    imported = ", ".join([name, *([reference] if reference else [])])
    kinds = sorted(
        {one.declared.partition("(")[0] for one in parameters if one.declared} | {"Contract"}
    )
    tensors = [one for one in parameters if one.tensor and one.declared]
    others = [one for one in parameters if not one.tensor and one.declared]
    lines = [
        f'"""The spec of {name}. Lines that say DECIDE are for a person; the rest follows from them."""',
        "",
        "import sys",
        "from pathlib import Path",
        "",
        "import torch",
        "",
        "from bitproof import KernelSpec",
        "from bitproof.harness.contract import Contract",
        f"from bitproof.harness.inputs import {', '.join(kind for kind in kinds if kind != 'Contract')}",
        "from bitproof.harness.references import Reference, declared_types, make_bound, make_oracle",
        "",
        "sys.path.append(str(Path(__file__).resolve().parent))",
        f"from {source.stem} import {imported}  # noqa: E402",
        "",
        "",
        *_write_reference(name, reference, parameters),
        "",
        "def run(tensors, params):",
        '    """What is tested: the launcher, its outputs by name."""',
        f"    returned = {name}({passed})",
        *(
            [f'    return {{"{outputs[0]}": returned}}']
            if len(outputs) == 1
            else [f"    return dict(zip({outputs!r}, returned, strict=True))"]
        ),
        "",
        "",
        f"REFERENCE = Reference(function=reference, outputs={tuple(outputs)!r})",
        'BOUND = make_bound(REFERENCE)  # DECIDE whether fp32 products read tf32: operands="tf32"',
        "SPEC = KernelSpec(",
        "    contract=Contract(",
        f'        name="{name.lower()}",',
        "        inputs={",
        *(f'            "{one.name}": {one.declared},{_remark(one)}' for one in tensors),
        "        },",
        "        params={",
        *(f'            "{one.name}": {one.declared},{_remark(one)}' for one in others),
        "        },",
        "        oracle=make_oracle(REFERENCE),",
        "        dtypes=declared_types(REFERENCE),",
        f"        outputs={{{', '.join(f'{one!r}: BOUND' for one in outputs)}}},",
        "        # DECIDE what it refuses, such as refuses=(ValueError,), and which relations hold.",
        "    ),",
        "    run=run,",
        "    # DECIDE which mistakes to plant: faults=(Fault(...),) shows that the checks can fail.",
        ")",
        "",
    ]
    return "\n".join(lines)


def _write_reference(name: str, reference: str, parameters: list[_Parameter]) -> list[str]:
    if reference:
        return [f"reference = {reference}  # DECIDE whether this is what is right", ""]
    return [
        f"def reference({', '.join(one.name for one in parameters)}):",
        f'    """What is right, in torch; casts to small types say what {name} may round."""',
        f'    raise NotImplementedError("DECIDE: say in {name}\'s spec, in torch, what it computes")',
        "",
    ]


def _remark(parameter: _Parameter) -> str:
    return f"  # {parameter.comment}" if parameter.comment else ""
