"""Tensors that a user captured from a real run: loaded from safetensors, held against the spec, recorded.

A contract that declares its inputs says what they are. A case written by hand has no schema, but its strategy
draws inputs: captured tensors must be like those of some drawn case, with the same names, dtypes and
dimensions, and with sizes equal wherever they are equal in every drawn case. Parameters and launch are those
of the simplest case unless given.

A safetensors file holds dense tensors. Strides that they had are text in its metadata, under "strides:NAME":

    save_file({name: x.contiguous() for name, x in dump.items()}, "dump.safetensors",
              metadata={f"strides:{name}": str(list(x.stride())) for name, x in dump.items()})
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from bitproof.harness import case as cases
from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs, Launch
from bitproof.harness.errors import UsageError, one_line
from bitproof.harness.inputs import Declaration, DeclaredCase
from bitproof.harness.inputs.declaration import axes_of
from bitproof.harness.inputs.fitting import find_misfits, types_of
from bitproof.harness.lanes.arena import fill
from bitproof.harness.lanes.base import parameters
from bitproof.harness.report import files
from bitproof.harness.report.records import Captured
from bitproof.harness.search import falsify
from bitproof.harness.spec import KernelSpec

_DRAWN = 64
_LAUNCH = "launch"
_STRIDES = "strides:"
# Bytes that a tensor may span where its strides leave gaps.
_MOST = 64 << 30
# What an oracle raises of tensors and parameters that no caller may pass, checked or not.
_UNFIT = (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError)

Axis = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Schema:
    """What a spec's cases look like: tensors in every case and in any, their kinds, equal sizes.

    `declaration` says more where the inputs were declared.
    """

    required: frozenset[str]
    dtypes: Mapping[str, frozenset[torch.dtype]]
    dimensions: Mapping[str, frozenset[int]]
    equal: tuple[tuple[Axis, Axis], ...]
    params: Mapping[str, Any]
    launch: Launch
    declaration: Declaration | None = None


def load(
    path: Path,
    spec: KernelSpec,
    device: torch.device,
    params: Mapping[str, Any],
    renamed: Mapping[str, str] | None = None,
) -> tuple[Inputs, Captured]:
    """The tensors in the safetensors file at `path` as inputs of `spec`, and what a record says of them.

    `renamed` gives the spec's names of tensors by those in the file.

    `params` overrides parameters of the simplest case by name, `{"launch": {...}}` fields of its launch.
    Raises UsageError naming the tensor or parameter that does not fit and what would.
    """
    names = dict(renamed or {})
    tensors, strides = _rename(path, names, *_read(path))
    like = schema(spec)
    _hold(tensors, like, f"{path} does not fit kernel {spec.name!r}")
    plain = _params(params, like, spec)
    for misfit in find_misfits(like.declaration, tensors, plain) if like.declaration else ():
        raise UsageError(f"{path} does not fit kernel {spec.name!r}: {misfit}")
    launch = cases.decode(Launch, plain[_LAUNCH])
    inputs = Inputs(
        tensors={
            name: _laid(path, name, tensor.to(device), strides.get(name))
            for name, tensor in tensors.items()
        },
        params={name: value for name, value in plain.items() if name != _LAUNCH},
        launch=launch,
    )
    try:
        spec.oracle(inputs.tensors, parameters(inputs))
    except _UNFIT as error:
        said = one_line(error) or type(error).__name__
        raise UsageError(f"{path} does not fit kernel {spec.name!r}: {said}") from error
    return inputs, Captured(
        path=str(path.resolve()), sha256=digest(path), params=plain, renamed=names
    )


def parse_renames(given: Sequence[str]) -> dict[str, str]:
    """The spec's names by those in the file, from texts "file=spec"; UsageError for another text."""
    renamed = {}
    for text in given:
        theirs, equals, ours = text.partition("=")
        if not equals or not theirs or not ours:
            raise UsageError(f"--rename must be FILE_NAME=SPEC_NAME, got {text!r}")
        renamed[theirs] = ours
    return renamed


def present_in(path: Path, renamed: Mapping[str, str]) -> dict[str, str]:
    """Those of `renamed` that are about tensors in the file at `path`: others may be about outputs."""
    tensors, _ = _read(path)
    return {theirs: ours for theirs, ours in renamed.items() if theirs in tensors}


def _rename(
    path: Path, renamed: Mapping[str, str], tensors: dict[str, Tensor], strides: dict[str, str]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Both with the spec's names; UsageError for a name that the file has not, or would have twice."""
    for theirs, ours in renamed.items():
        if theirs not in tensors:
            raise UsageError(
                f"{path} has no tensor {theirs!r} to rename, only {_join_names(tensors)}"
            )
        if ours in tensors and ours not in renamed:
            raise UsageError(
                f"{path} has a tensor {ours!r} already: {theirs!r} cannot have its name"
            )
    return (
        {renamed.get(name, name): tensor for name, tensor in tensors.items()},
        {renamed.get(name, name): told for name, told in strides.items()},
    )


def load_outputs(
    path: Path, spec: KernelSpec, device: torch.device, renamed: Mapping[str, str] | None = None
) -> dict[str, Tensor]:
    """The outputs of a call in the safetensors file at `path`; UsageError for one that the spec has not.

    A file that holds inputs as well is fine where outputs have names of their own.
    """
    tensors, strides = _read(path)
    known = {theirs: ours for theirs, ours in (renamed or {}).items() if theirs in tensors}
    tensors, _ = _rename(path, known, tensors, strides)
    found = {name: tensor.to(device) for name, tensor in tensors.items() if name in spec.bounds}
    missing = sorted(set(spec.bounds) - set(found))
    if not found:
        raise UsageError(
            f"{path} has no output of kernel {spec.name!r}: it has {_join_names(tensors)}, the outputs are "
            f"{_join_names(missing)}"
        )
    return found


def object_of(params: str | None) -> dict[str, Any]:
    """The JSON object that `--params` gives, an empty one for None; UsageError for anything else."""
    plain: Any = files.parse(params or "{}", object, source="--params", what="set of parameters")
    if not isinstance(plain, dict):
        raise UsageError(f"--params must be a JSON object such as {{}}, got {params}")
    return plain


def restore(captured: Captured, spec: KernelSpec, device: torch.device, *, beside: Path) -> Inputs:
    """The inputs a record was made from; a file that moved is looked for in the folder `beside`.

    Raises UsageError when the file is gone or is not the one that was recorded.
    """
    path = Path(captured.path)
    if not _is_file(path):
        path = beside / path.name
    if not _is_file(path):
        told = captured.path if captured.path.isprintable() else repr(captured.path)
        raise UsageError(f"the captured tensors {told:.300} are gone: put that file back")
    if digest(path) != captured.sha256:
        raise UsageError(
            f"{path} is not the file that was recorded (its SHA-256 differs): put that file back"
        )
    return load(path, spec, device, captured.params, captured.renamed)[0]


def _is_file(path: Path) -> bool:
    """Whether an ordinary file is there; a device such as /dev/zero has no end."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a path that no file system takes
        return False


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def schema(spec: KernelSpec) -> Schema:
    """What `spec` declares, or else what its strategy draws: the same cases every time."""
    if issubclass(spec.case, DeclaredCase):
        return _declared(spec.case)
    found = falsify.draw_cases(spec, _DRAWN)
    simplest = found[0]
    drawn: list[dict[str, Tensor]] = [case.tensors(torch.device("cpu")) for case in found]
    names = sorted({name for tensors in drawn for name in tensors})
    return Schema(
        required=frozenset(name for name in names if all(name in tensors for tensors in drawn)),
        dtypes={name: frozenset(t[name].dtype for t in drawn if name in t) for name in names},
        dimensions={name: frozenset(t[name].ndim for t in drawn if name in t) for name in names},
        equal=tuple(_equal(drawn)),
        params=simplest.params(),
        launch=simplest.launch,
    )


def _declared(kind: type[DeclaredCase]) -> Schema:
    declaration, simplest = kind.declaration, kind()
    names = declaration.inputs
    return Schema(
        required=frozenset(names),
        dtypes=types_of(declaration),
        dimensions={name: frozenset({len(axes_of(names[name]))}) for name in names},
        equal=(),
        params=simplest.params(),
        launch=simplest.launch,
        declaration=declaration,
    )


def defaults(like: Schema) -> dict[str, Any]:
    """The parameters of the simplest case as plain JSON values, its launch among them."""
    return {**like.params, _LAUNCH: cases.encode(like.launch)}


def _equal(drawn: list[dict[str, Tensor]]) -> Iterator[tuple[Axis, Axis]]:
    """Pairs of axes of two tensors whose sizes agree in every case and are not always the same."""
    steady = {
        name: drawn[0][name].ndim
        for name in sorted(drawn[0])
        if all(name in t and t[name].ndim == drawn[0][name].ndim for t in drawn)
    }
    axes = [(name, axis) for name, count in steady.items() for axis in range(count)]
    sizes = {(name, axis): [t[name].shape[axis] for t in drawn] for name, axis in axes}
    for one, other in itertools.combinations(axes, 2):
        if one[0] != other[0] and sizes[one] == sizes[other] and len(set(sizes[one])) > 1:
            yield one, other


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors by name, and the strides that the file's metadata tells of some, as text."""
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
        with safetensors.safe_open(path, "pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise UsageError(f"{path} is not a safetensors file that torch reads: {error}") from error
    told = {
        key.removeprefix(_STRIDES): text
        for key, text in metadata.items()
        if key.startswith(_STRIDES)
    }
    for name in sorted(set(told) - set(tensors)):
        raise UsageError(
            f"{path} tells strides of {name!r}, but has no such tensor, only {_join_names(tensors)}"
        )
    return tensors, told


def _laid(path: Path, name: str, tensor: Tensor, told: str | None) -> Tensor:
    """`tensor` with the strides that `told` gives in elements, dense for None.

    UsageError for what is no list of strides, and where elements of different values would share memory.
    """
    if told is None:
        return tensor
    where = f"{path}: the strides of {name!r} are {told!r}"
    try:
        strides: Any = json.loads(told)
    except ValueError:
        strides = None
    if not isinstance(strides, list) or not all(
        type(step) is int and step >= 0 for step in strides
    ):
        raise UsageError(f'{where}, they must be a list of integers from 0 upwards, as "[4096, 1]"')
    if len(strides) != tensor.ndim:
        raise UsageError(f"{where}, but its shape is {list(tensor.shape)}: give one for each axis")
    if not tensor.numel():
        return tensor
    extent = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, strides, strict=True))
    if extent * tensor.element_size() > _MOST:
        raise UsageError(f"{where}: it would span {extent} elements, which no memory here can hold")
    laid = torch.empty(extent, dtype=tensor.dtype, device=tensor.device)
    laid = laid.as_strided(tensor.shape, strides)
    fill(bits(laid), bits(tensor))
    if not torch.equal(bits(laid), bits(tensor)):
        raise UsageError(f"{where}: elements of different values would share memory")
    return laid


def _hold(tensors: Mapping[str, Tensor], like: Schema, where: str) -> None:
    """Raise UsageError for the first tensor that no drawn case has."""
    for name in sorted(like.required - set(tensors)):
        raise UsageError(
            f"{where}: tensor {name!r} is missing, it needs {_join_names(like.required)}"
        )
    for name in sorted(set(tensors) - set(like.dtypes)):
        raise UsageError(f"{where}: it has no tensor {name!r}, but {_join_names(like.dtypes)}")
    for name, tensor in sorted(tensors.items()):
        if tensor.dtype not in like.dtypes[name]:
            raise UsageError(
                f"{where}: tensor {name!r} is {tensor.dtype}, not {_either(like.dtypes[name])}"
            )
        if tensor.ndim not in like.dimensions[name]:
            raise UsageError(
                f"{where}: tensor {name!r} has shape {list(tensor.shape)}, "
                f"it must have {_either(like.dimensions[name])} dimensions"
            )
    for (one, axis), (other, along) in like.equal:
        if tensors[one].shape[axis] != tensors[other].shape[along]:
            raise UsageError(
                f"{where}: {one!r} is {list(tensors[one].shape)} and {other!r} "
                f"{list(tensors[other].shape)}, but {one}.shape[{axis}] and {other}.shape[{along}] "
                "must be equal"
            )


def _params(given: Mapping[str, Any], like: Schema, spec: KernelSpec) -> dict[str, Any]:
    """All parameters as plain JSON values, the launch among them."""
    plain = defaults(like)
    for name, value in given.items():
        if name not in plain:
            raise UsageError(
                f"kernel {spec.name!r} has no parameter {name!r}, but {_join_names(plain)}"
            )
        default = plain[name]
        if name == _LAUNCH and isinstance(value, dict):
            value = {**default, **value}
        fits = type(value) is type(default) or (type(default) is float and type(value) is int)
        if default is not None and not fits:
            raise UsageError(
                f"parameter {name!r} of kernel {spec.name!r} is {value!r}, "
                f"it must be of type {type(default).__name__}"
            )
        plain[name] = value
    return plain


def _join_names(names: Any) -> str:
    return ", ".join(repr(name) for name in sorted(names)) or "none"


def _either(kinds: Any) -> str:
    return " or ".join(sorted(str(kind) for kind in kinds))
