"""A launch in plain JSON values, from which another process builds its kernel again (see `building`).

A process that interprets kernels cannot compile them, and the process that can does not have them: they may
lie in a file with a planted fault, or inside another function. So their source travels, with that of the
functions they call and with the global names they use. Arguments travel as what Triton specialises on.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import ConstexprFunction, TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from bitproof.harness.compiling.launch import KernelLaunch

# What of `triton.jit`'s options a compiler heeds.
_DECLARED = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")
_CODE_FLAGS = 0x1FF0000  # `from __future__ import ...`


class Undescribable(Exception):
    """A launch has a part that cannot be sent to another process."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """A launch in JSON values; `function` is a digest of its functions, `digest` of all of it."""

    request: dict[str, Any]
    function: str
    digest: str


@dataclass(kw_only=True)
class _Functions:
    """The functions that a kernel needs, each after those it uses, and the number of each."""

    sent: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)


_known: WeakKeyDictionary[Callable[..., Any], tuple[_Functions, str]] = WeakKeyDictionary()


def describe(launch: KernelLaunch) -> Description:
    """The launch in JSON values; Undescribable where a part of it cannot be sent."""
    known = _known.get(launch.function)
    if known is None:
        functions = _Functions()
        _add(functions, launch.function, "jit", launch.declared)
        known = functions, _digest(functions.sent)
        _known[launch.function] = known
    first, function = known
    functions = _Functions(sent=list(first.sent), numbers=dict(first.numbers))
    constants = _constants(launch.function)
    request = {
        "arguments": {
            name: _value(value, functions) if name in constants else _argument(value, functions)
            for name, value in launch.arguments.items()
        },
        "options": {name: _value(value, functions) for name, value in launch.options.items()},
        "kernel": first.numbers[launch.function],
        "functions": functions.sent,
    }
    return Description(request=request, function=function, digest=_digest(request))


def identify_variant(launch: KernelLaunch) -> str:
    """A digest of what Triton compiles for the launch: equal for launches of one compiled variant.

    Apart from what `describe` leaves out, an argument that is not specialised counts by its type alone, a
    pointer by whether it is aligned to 16 bytes, a descriptor by its blocks. Undescribable as in `describe`.
    """
    described = describe(launch)
    arguments = dict(described.request["arguments"])
    names = tuple(launch.arguments)
    untouched = {
        names[one] if isinstance(one, int) else one
        for one in launch.declared.get("do_not_specialize") or ()
    }
    unaligned = {
        names[one] if isinstance(one, int) else one
        for one in launch.declared.get("do_not_specialize_on_alignment") or ()
    }
    for name, argument in arguments.items():
        value = launch.arguments[name]
        one = isinstance(value, int) and value == 1
        if name in untouched or (name in unaligned and not one):
            arguments[name] = _kind(value, argument)
        else:
            arguments[name] = _specialised(argument)
    parts = (described.function, arguments, described.request["options"])
    return _digest(parts)


def _kind(value: Any, argument: Any) -> Any:
    """An argument that Triton does not look into: integers of a width, pointers of a type."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"bits": 32 if -(2**31) <= value < 2**31 else 64}
    return {name: part for name, part in argument.items() if name != "offset"}


def _specialised(argument: Any) -> Any:
    """An argument in `describe`'s words, less what compiles alike."""
    if not isinstance(argument, dict):
        return argument
    if "tuple" in argument:
        return {"tuple": [_specialised(one) for one in argument["tuple"]]}
    if "wrapped" in argument:
        return argument | {"wrapped": _specialised(argument["wrapped"])}
    if "descriptor" in argument:
        return {"descriptor": argument["descriptor"], "block": argument["block"]}
    if "tensor" in argument:
        return {"tensor": argument["tensor"], "aligned": argument["offset"] == 0}
    return argument


def _digest(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:24]


@cache
def _constants(function: Callable[..., Any]) -> frozenset[str]:
    """The names of the parameters annotated as constants."""
    annotated = inspect.get_annotations(function).items()
    return frozenset(name for name, kind in annotated if "constexpr" in str(kind))


def _argument(value: Any, functions: _Functions) -> Any:
    """What Triton specialises on in an argument that is no constant: others of the kind compile alike."""
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return {"plain": value if not isinstance(value, float) else 1.5}
    if isinstance(value, int):
        return {"plain": _alike(value)}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {"tuple": [_argument(one, functions) for one in value]}
    if isinstance(value, TensorWrapper):
        return {
            "wrapped": _argument(value.base, functions),
            "dtype": _value(value.dtype, functions),
        }
    if isinstance(value, TensorDescriptor):
        if getattr(value, "padding", "zero") != "zero" or getattr(
            value, "round_f32_to_tf32", False
        ):
            raise Undescribable("a tensor descriptor with options")
        shape = {"shape": list(value.shape), "strides": list(value.strides)}
        return {"descriptor": _argument(value.base, functions), **shape, "block": value.block_shape}
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        return {"tensor": name, "offset": value.data_ptr() % 16}
    return _value(value, functions)


def _alike(value: int) -> int:
    """The one integer that stands for all that Triton specialises as it does `value`."""
    if value == 1:
        return 1
    least = 2 if -(2**31) <= value < 2**31 else 2**32 if -(2**63) <= value < 2**63 else 2**63
    return least + (14 if least == 2 else 0) if value % 16 == 0 else least + 1


def _value(value: Any, functions: _Functions) -> Any:
    """A constant, or what a global name stands for."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"plain": value}
    if isinstance(value, tl.constexpr):
        return {"constexpr": _value(value.value, functions)}
    if isinstance(value, tl.dtype):
        return {"type": value.name}
    if isinstance(value, torch.dtype):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return {"tuple": [_value(one, functions) for one in value]}
    if isinstance(value, ModuleType):
        if sys.modules.get(value.__name__) is not value or "bitproof_fault_" in value.__name__:
            raise Undescribable(f"module {value.__name__}")
        return {"module": value.__name__}
    if isinstance(value, InterpretedFunction) and not _shipped(value.fn):
        return {"function": _add(functions, value.fn, "jit", value.kwargs)}
    if isinstance(value, ConstexprFunction) and not _shipped(value.fn):
        return {"function": _add(functions, value.fn, "constexpr", {})}
    if isinstance(value, FunctionType) and not _shipped(value):
        return {"function": _add(functions, value, "plain", {})}
    return _name_import(getattr(value, "fn", value))


def _shipped(function: Any) -> bool:
    """Whether Triton itself has it."""
    return str(getattr(function, "__module__", "")).partition(".")[0] == "triton"


def _name_import(value: Any) -> Any:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        raise Undescribable(f"a value of type {type(value).__name__}")
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise Undescribable(f"module {module}") from error
    return {"import": [module, name]}


def _add(functions: _Functions, function: Any, kind: str, declared: Mapping[str, Any]) -> int:
    """The number of a function, whose source and names are among those sent from now on."""
    if function in functions.numbers:
        if functions.numbers[function] < 0:
            raise Undescribable("a function that calls itself")
        return functions.numbers[function]
    functions.numbers[function] = -1
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError) as error:
        raise Undescribable(f"the source of {function}") from error
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise Undescribable(f"the source of {function}")
    text = textwrap.dedent("".join(lines)).split("\n")[definition.lineno - 1 :]
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used -= {name.id for one in definition.decorator_list for name in _names(one)} - {
        name.id for one in (*definition.body, definition.args) for name in _names(one)
    }
    # A variable of the function hides a global of its name.
    used -= {*function.__code__.co_varnames, *function.__code__.co_cellvars}
    closed = inspect.getclosurevars(function).nonlocals
    names = {
        name: _value((function.__globals__ | closed)[name], functions)
        for name in sorted(used)
        if name in closed or (name in function.__globals__ and name != function.__name__)
    }
    functions.sent.append(
        {
            "name": function.__name__,
            "kind": kind,
            "declared": {one: declared[one] for one in _DECLARED if declared.get(one) is not None},
            "file": inspect.getsourcefile(function),
            "line": first + definition.lineno - 1,
            "source": "\n".join(text),
            "flags": function.__code__.co_flags & _CODE_FLAGS,
            "names": names,
        }
    )
    functions.numbers[function] = len(functions.sent) - 1
    return functions.numbers[function]


def _names(tree: ast.AST) -> list[ast.Name]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
