"""What each field of a `KernelSpec` must hold by itself: a sentence on one that does not.

What fields say of each other is compared in `harness.spec`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from typing import Any

from bitproof.harness.case import Case
from bitproof.harness.contract import Contract
from bitproof.harness.declarations import (
    Bitwise,
    Elementwise,
    Equivalent,
    Fault,
    Invariance,
    Limit,
    Lowering,
    Refusal,
    Storage,
    Tolerated,
    Varies,
)
from bitproof.harness.fields import (
    inspect_choice,
    inspect_choices,
    inspect_count,
    inspect_function,
    inspect_names,
    inspect_tuple,
    show,
)
from bitproof.harness.layouts import LAYOUTS, SHARINGS
from bitproof.harness.targets.families import LANES


def _inspect_contract(field: str, value: object) -> Iterator[str]:
    if isinstance(value, Contract):
        yield from value.mistakes()
    elif value is not None:
        yield f"{field} must be Contract(...), got {show(value)}"


def _inspect_name(field: str, value: object) -> Iterator[str]:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", value):
        yield f"{field} must be lower-case words joined by underscores, got {show(value)}"


def _inspect_case(field: str, value: object) -> Iterator[str]:
    if value is None:
        yield "there is no contract with inputs, and no case: declare one of the two"
    elif not isinstance(value, type) or not is_dataclass(value):
        yield f"{field} must be the dataclass of the cases, got {show(value)}"


def _inspect_oracle(field: str, value: object) -> Iterator[str]:
    if value is None:
        yield "nothing says what the outputs must be: give an oracle, or a contract with a reference"
    else:
        yield from inspect_function(field, value, signature=_RUN)


def _inspect_bounds(field: str, value: object) -> Iterator[str]:
    if not isinstance(value, Mapping) or not value:
        yield f"{field} must be a dict with a bound for each output, got {show(value)}"
        return
    for output, bound in value.items():
        if isinstance(bound, type) or not hasattr(bound, "judge"):
            yield f"{field}[{output!r}] must be a bound, such as exact_bits(), got {show(bound)}"


def _inspect_refuses(field: str, value: object) -> Iterator[str]:
    if isinstance(value, type):
        yield f"{field} must be a tuple of exception types, got {value.__name__}: write a tuple of it"
    elif not isinstance(value, (tuple, list)) or not all(
        isinstance(kind, type) and issubclass(kind, Exception) for kind in value
    ):
        yield f"{field} must be a tuple of exception types, got {show(value)}"


def _inspect_part(
    field: str, value: object, kind: type, *, optional: bool = False
) -> Iterator[str]:
    if not isinstance(value, kind) and not (optional and value is None):
        yield f"{field} must be {kind.__name__}(...), got {show(value)}"


def _inspect_claim(field: str, value: object) -> Iterator[str]:
    if not isinstance(value, (Bitwise, Varies)):
        yield f"{field} must be Bitwise(...) or Varies(...), got {show(value)}"


def _inspect_flag(field: str, value: object) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{field} must be True or False, got {show(value)}"


def _inspect_launches(field: str, value: object) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{field} must be a dict of numbers by family of lanes, got {show(value)}"
        return
    for lane, count in value.items():
        yield from inspect_choice(field, lane, LANES)
        yield from inspect_count(f"{field}[{lane!r}]", count, 1)


def _inspect_blocks(field: str, value: Any) -> Iterator[str]:
    wrong = list(inspect_tuple(field, value, int))
    yield from wrong
    if not wrong and not value:
        yield f"{field} is empty: name at least the tile size that is the default"
    for block in () if wrong else value:
        yield from inspect_count(field, block, 1)


def _inspect_layouts(field: str, value: object) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{field} must be a dict of layouts by tensor, got {show(value)}"
        return
    for name, names in value.items():
        if not isinstance(name, str):
            yield f"{field} must be a dict of layouts by tensor, got {show(name)} for a tensor's name"
        yield from inspect_choices(f"{field}[{name!r}]", names, LAYOUTS)


def _inspect_shared(field: str, value: object) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{field} must be a dict of how tensors share memory by their names, got {show(value)}"
        return
    for names, how in value.items():
        if not isinstance(names, tuple) or len(set(names)) < 2:
            yield f"{field} must have a tuple of two tensors' names or more before each, got {show(names)}"
        else:
            yield from inspect_names(f"{field}: the names", frozenset(names), "names of tensors")
        yield from inspect_choices(f"{field}[{names!r}]", how, SHARINGS)


_RUN = "(tensors, params) -> outputs"
_maybe = partial(inspect_function, optional=True)
_names = partial(inspect_names, what="names of tensors")
# What each field must hold by itself.
FIELDS: dict[str, Callable[[str, Any], Iterator[str]]] = {
    "contract": _inspect_contract,
    "run": partial(inspect_function, signature=_RUN),
    "name": _inspect_name,
    "case": _inspect_case,
    "cases": partial(inspect_function, signature="() or (scale) -> strategy of cases"),
    "oracle": _inspect_oracle,
    "bounds": _inspect_bounds,
    "faults": partial(inspect_tuple, kind=Fault),
    "reproducible": _inspect_claim,
    "dtypes": partial(_maybe, signature="(tensors, params) -> the type of each output"),
    "invariances": partial(inspect_tuple, kind=Invariance),
    "strided": _names,
    "layouts": _inspect_layouts,
    "shared": _inspect_shared,
    "vast": _names,
    "inplace": _names,
    "corners": partial(inspect_tuple, kind=Case),
    "refuses": _inspect_refuses,
    "refusals": partial(inspect_tuple, kind=Refusal),
    "limits": partial(inspect_tuple, kind=Limit),
    "tolerates": partial(inspect_tuple, kind=Tolerated),
    "unwritten": partial(_maybe, signature="params -> names of outputs"),
    "capturable": _inspect_flag,
    "must_not_recompile": partial(_maybe, signature="inputs -> other inputs"),
    "launches": _inspect_launches,
    "must_fit": partial(_maybe, signature="(launch) -> bool"),
    "alone": _inspect_flag,
    "program": partial(_maybe, signature="(output, index, inputs) -> a program or tile in words"),
    "elementwise": partial(_inspect_part, kind=Elementwise, optional=True),
    "storage": partial(_inspect_part, kind=Storage, optional=True),
    "lowering": partial(_inspect_part, kind=Lowering),
    "blocks": _inspect_blocks,
    "equivalents": partial(inspect_tuple, kind=Equivalent),
}
