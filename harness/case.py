"""Cases: the small, JSON-able description of one input, and the inputs that are a pure function of it.

A kernel's own case is a frozen, keyword-only dataclass of plain values (integers, strings, booleans,
tuples of those, nested dataclasses of the same kind) that satisfies `Case`. Floats that matter are
carried as bit patterns. `encode` and `decode` are the only road between a case and JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec
import torch

from bitproof.harness.errors import BitproofError, SpecError, UsageError, describe
from bitproof.harness.randomness import from_the_start


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """What the caller does not choose but the compiler specialises on.

    `num_warps` and `num_stages` are Triton's; `block` is the kernel's main tile size (its launcher says
    of what); `misalign` shifts every tensor's start by that many elements from a 256-byte boundary;
    `row_padding` puts that many foreign elements between the rows of tensors a spec calls strided;
    `config` picks, modulo their number, one of an autotuned kernel's configurations, which are never
    chosen by timing; `layout` picks one of those that a spec allows for each tensor (`harness.layouts`),
    0 leaves all dense. `warm` is how often an object that was built once is called on other values before,
    and `reuse` whether in the same storages (`harness.objects`).
    """

    num_warps: int = 4
    num_stages: int = 2
    block: int = 128
    misalign: int = 0
    row_padding: int = 0
    config: int = 0
    layout: int = 0
    warm: int = 0
    reuse: bool = False

    def __post_init__(self) -> None:
        """ValueError for a configuration that no kernel can be launched with."""
        least = {"num_warps": 1, "block": 1}
        for name, value in vars(self).items():
            if value < least.get(name, 0):
                raise ValueError(
                    f"{name} of a launch must be at least {least.get(name, 0)}, got {value}"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """How large cases may be: whether a card runs them, and whether a night is there for them."""

    on_card: bool = False
    nightly: bool = False


@runtime_checkable
class Case(Protocol):
    """What the harness asks of a case, whatever its kernel."""

    @property
    def launch(self) -> Launch:
        """The launch configuration, part of the case."""
        ...

    def tensors(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The kernel's input tensors by name: the same bits on every device and torch version.

        The launcher gets copies with the strides of these (transposed, expanded, every second element ...);
        dense ones lie as `launch` says.
        """
        ...

    def params(self) -> dict[str, Any]:
        """The kernel's plain parameters by name."""
        ...

    def features(self) -> Iterable[str]:
        """What this case covers, in words the run's summary counts: "tail", "zero rows", ..."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a check works on: named tensors, plain parameters, a launch, and the case they came from.

    `case` is None for tensors that a user captured; `seed` is what a check may derive choices from.
    """

    tensors: Mapping[str, torch.Tensor]
    params: Mapping[str, Any]
    launch: Launch = Launch()
    case: Case | None = None
    seed: int = 0

    def replace(self, **changes: torch.Tensor) -> Inputs:
        """These inputs with some tensors exchanged; the case no longer describes them."""
        return dataclasses.replace(self, tensors={**self.tensors, **changes}, case=None)


def build(case: Case, device: torch.device) -> Inputs:
    """The inputs of `case` on `device`; SpecError when the case cannot make them."""
    with _blame_case(case), from_the_start():
        tensors, params, launch = case.tensors(device), case.params(), case.launch
    named: Any = tensors
    if not isinstance(named, Mapping) or not all(
        isinstance(tensor, torch.Tensor) for tensor in named.values()
    ):
        raise SpecError(f"the case {type(case).__name__} must make a dict of tensors by name")
    return Inputs(
        tensors=tensors, params=params, launch=launch, case=case, seed=getattr(case, "seed", 0)
    )


def features_of(case: Case) -> set[str]:
    """What `case` covers, each feature once; SpecError when the case cannot say."""
    with _blame_case(case):
        return set(case.features())


def measure(case: Any) -> dict[str, int]:
    """The whole numbers in `case` by name, "launch.block" for a field within a field; of a list its sum too.

    For pictures of what depends on which: seeds and whatever is no number are left out.
    """
    found: dict[str, int] = {}

    def visit(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for part, inner in value.items():
                visit(f"{name}.{part}".lstrip("."), inner)
        elif isinstance(value, int) and not isinstance(value, bool):
            if name.rpartition(".")[2] != "seed":
                found[name] = value
        elif isinstance(value, (list, tuple)) and all(type(one) is int for one in value):
            found[f"{name}, how many"], found[f"{name}, in all"] = len(value), sum(value)

    visit("", encode(case))
    return found


def with_launch(case: Any, launch: Launch) -> Any:
    """The same case launched so, None where no field holds its launch; that may lie in a case within it."""
    for field in dataclasses.fields(case):
        value = getattr(case, field.name)
        if isinstance(value, Launch):
            return dataclasses.replace(case, **{field.name: launch})
        if dataclasses.is_dataclass(value) and isinstance(getattr(value, "launch", None), Launch):
            return dataclasses.replace(case, **{field.name: with_launch(value, launch)})
    return None


@contextmanager
def _blame_case(case: Case) -> Iterator[None]:
    """What a case raises is its spec's mistake, unless the device ran out of memory or broke."""
    try:
        yield
    except (BitproofError, torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except Exception as error:
        raise SpecError(f"the case {type(case).__name__} raised {describe(error)}") from error


CaseT = TypeVar("CaseT")


def encode(case: Any) -> dict[str, Any]:
    """`case` as plain JSON values."""
    if not dataclasses.is_dataclass(case) or isinstance(case, type):
        raise UsageError(f"a case must be a dataclass, got {type(case).__name__}")
    # Not msgspec alone, which passes over what it left at its default when it decoded.
    try:
        plain: dict[str, Any] = msgspec.to_builtins(dataclasses.asdict(case))
    except TypeError as error:
        raise UsageError(
            f"the case {type(case).__name__} must hold plain values that JSON has: {error}"
        ) from error
    return plain


def decode(kind: type[CaseT], plain: Any) -> CaseT:
    """The case of type `kind` described by `plain`; strict, so that a damaged record never half-loads.

    A launch may lack what records of earlier versions do not tell (`_LATER`). Raises UsageError naming the
    field that is missing, foreign or of the wrong type.
    """
    try:
        case = msgspec.convert(plain, type=kind, strict=True)
    except (msgspec.ValidationError, ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(f"not a {kind.__name__}: {error}") from error
    strayed = _difference(encode(case), plain, "")
    if strayed:
        raise UsageError(f"not a {kind.__name__}: {strayed}")
    return case


# What launches have, and the fields that were added after records were first kept: a record without one of
# these has its default.
_LAUNCH = frozenset(field.name for field in dataclasses.fields(Launch))
_LATER = frozenset({"layout", "warm", "reuse"})


def _difference(known: Any, plain: Any, path: str) -> str:
    """How `plain` differs from what it was read as, naming the first field; "" when it does not."""
    if isinstance(known, dict) and isinstance(plain, dict):
        for name in sorted({*known, *plain}):
            where = f"{path}.{name}".lstrip(".")
            if name not in known:
                return f"field {where!r} is unknown to this version"
            if name not in plain and name in _LATER and known.keys() == _LAUNCH:
                continue
            if name not in plain:
                return f"field {where!r} is missing"
            found = _difference(known[name], plain[name], where)
            if found:
                return found
        return ""
    if isinstance(known, (list, tuple)) and isinstance(plain, (list, tuple)):
        pairs = enumerate(zip(known, plain, strict=True))
        return next(filter(None, (_difference(a, b, f"{path}[{i}]") for i, (a, b) in pairs)), "")
    if json.dumps(known) != json.dumps(plain):
        return f"field {path!r} reads {json.dumps(plain)} where a case has {json.dumps(known)}"
    return ""
