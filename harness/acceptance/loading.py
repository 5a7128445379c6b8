"""What a file offers: a function, or a model in the form that public kernel benchmarks use.

A reference `FILE` defines `Model`, `get_inputs()` and `get_init_inputs()`; a candidate `FILE` defines
`ModelNew` (or `Model`). `FILE:function` names a function; the reference's file then has `get_inputs()`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from bitproof.harness.errors import BitproofError, UsageError, describe

CANDIDATE = ("ModelNew", "Model")
REFERENCE = ("Model",)


class NoTensor(Exception):
    """A call returned something else than tensors."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A function or a model class in a file: `made` of it is what gets called with inputs."""

    reference: str
    module: ModuleType
    declared: Callable[..., Any]

    @property
    def is_model(self) -> bool:
        """Whether it is a class to build once, whose object is called."""
        return isinstance(self.declared, type)

    @property
    def signature(self) -> inspect.Signature:
        """What a call with inputs takes, by name."""
        if not self.is_model:
            return inspect.signature(self.declared)
        model: Any = self.declared
        forward = model.forward if hasattr(model, "forward") else model.__call__
        signature = inspect.signature(forward)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def build(self, arguments: list[Any], device: torch.device) -> Callable[..., Any]:
        """The function, or a model of those arguments, after the seed that every model here is built after.

        UsageError where building it raises.
        """
        if not self.is_model:
            return self.declared
        torch.manual_seed(0)
        try:
            made: Any = self.declared(*arguments)
        except Exception as error:
            raise UsageError(
                f"{self.reference}: building {self.declared.__name__} raised {describe(error)}"
            ) from error
        if isinstance(made, nn.Module):
            made = made.to(device)
        called: Callable[..., Any] = made
        return called


def load(reference: str, classes: tuple[str, ...]) -> Source:
    """The source that `FILE` or `FILE:name` names; UsageError where there is none."""
    path, _, name = reference.partition(":")
    module = import_file(Path(path))
    if name:
        found = getattr(module, name, None)
        if not callable(found):
            raise UsageError(f"{reference}: {path} defines no function {name!r}")
        return Source(reference=reference, module=module, declared=found)
    for name in classes:
        found = getattr(module, name, None)
        if isinstance(found, type):
            return Source(reference=reference, module=module, declared=found)
    raise UsageError(
        f"{reference}: it defines no class {' or '.join(classes)}: name a function, as {path}:function"
    )


def import_file(path: Path) -> ModuleType:
    """The module that a file holds, its folder importable after everything installed; UsageError."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = f"bitproof_accept_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, (BitproofError, KeyboardInterrupt)):
            raise
        raise UsageError(f"{path}: importing it raised {describe(error)}") from error
    return module


def example_of(source: Source) -> tuple[dict[str, Tensor], dict[str, Any], list[Any]]:
    """(tensors, parameters, arguments to build it) that a reference's file gives as an example.

    Inputs have the names under which the function or `forward` takes them.
    """
    given = getattr(source.module, "get_inputs", None)
    if given is None:
        raise UsageError(
            f"{source.reference}: its file defines no get_inputs(), which draws inputs"
        )
    torch.manual_seed(0)
    inputs = list(given())
    build = getattr(source.module, "get_init_inputs", None)
    arguments = list(build()) if source.is_model and build is not None else []
    names = [
        name
        for name, one in source.signature.parameters.items()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    if len(inputs) > len(names):
        raise UsageError(
            f"{source.reference}: get_inputs() gives {len(inputs)} inputs, it takes {len(names)}"
        )
    named = dict(zip(names, inputs, strict=False))
    tensors = {name: value.detach() for name, value in named.items() if isinstance(value, Tensor)}
    params = {name: value for name, value in named.items() if not isinstance(value, Tensor)}
    if not tensors:
        raise UsageError(f"{source.reference}: get_inputs() gives no tensor")
    return tensors, params, arguments


def digest_of(reference: str) -> str:
    """SHA-256 of a source's file."""
    return hashlib.sha256(Path(reference.partition(":")[0]).read_bytes()).hexdigest()


def name_outputs(returned: Any) -> dict[str, Tensor]:
    """What a call returned, by the names that `references` gives it; NoTensor for anything else."""
    if isinstance(returned, dict):
        named = returned
    elif isinstance(returned, (tuple, list)) and len(returned) != 1:
        named = {f"output{place}": one for place, one in enumerate(returned)}
    else:
        named = {"output": returned[0] if isinstance(returned, (tuple, list)) else returned}
    for name, one in named.items():
        if not isinstance(one, Tensor):
            raise NoTensor(f"its {name} is {type(one).__name__}, not a tensor")
    with torch._C.DisableTorchFunctionSubclass():  # a class of tensors may say anything of itself
        return {name: torch.Tensor.as_subclass(one, Tensor) for name, one in named.items()}
