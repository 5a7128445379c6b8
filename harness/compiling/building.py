"""Builds a launch again from its description (see `description`), in the process that compiles."""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.jit import reinterpret
from triton.tools.tensor_descriptor import TensorDescriptor

# Bytes of a tensor that stands for any: enough for every alignment and type.
_BYTES = 64


def build(request: Mapping[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """(kernel, arguments by name, options) of the launch that `request` describes."""
    functions: list[Any] = []
    for sent in request["functions"]:
        functions.append(_function(sent, functions))
    arguments = {name: _value(one, functions) for name, one in request["arguments"].items()}
    options = {name: _value(one, functions) for name, one in request["options"].items()}
    return functions[request["kernel"]], arguments, options


def _function(sent: Mapping[str, Any], earlier: Sequence[Any]) -> Any:
    names = {name: _value(one, earlier) for name, one in sent["names"].items()}
    space = {"__name__": "__compiled__", **names}
    lines = [*[""] * (sent["line"] - 1), *sent["source"].split("\n")]
    text = "\n".join(lines)
    # Triton reads a function's source by its file's name: here a name that no file has.
    file = f"<{sent['file']}#{len(earlier)}>"
    linecache.cache[file] = (len(text), None, [f"{line}\n" for line in lines], file)
    code = compile(text, file, "exec", flags=sent["flags"], dont_inherit=True)
    exec(code, space)
    function = space[sent["name"]]
    if sent["kind"] == "jit":
        return triton.jit(function, **sent["declared"])
    if sent["kind"] == "constexpr":
        return triton.constexpr_function(function)
    return function


def _value(sent: Mapping[str, Any], functions: Sequence[Any]) -> Any:
    kind = next(iter(sent))
    held = sent[kind]
    if kind == "plain":
        return held
    if kind == "constexpr":
        return tl.constexpr(_value(held, functions))
    if kind == "type":
        return tl.dtype(held)
    if kind == "torch":
        return getattr(torch, held)
    if kind == "tuple":
        return tuple(_value(one, functions) for one in held)
    if kind == "module":
        return importlib.import_module(held)
    if kind == "function":
        return functions[held]
    if kind == "import":
        return attrgetter(held[1])(importlib.import_module(held[0]))
    if kind == "wrapped":
        return reinterpret(_value(held, functions), _value(sent["dtype"], functions))
    if kind == "descriptor":
        base = _value(held, functions)
        return TensorDescriptor(base, sent["shape"], sent["strides"], sent["block"])
    dtype, offset = getattr(torch, held), sent["offset"]
    memory = torch.empty(_BYTES, dtype=torch.uint8)
    return memory[offset : offset + 16].view(dtype)
