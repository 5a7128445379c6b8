"""By which instructions a launch's matrix products would be made, asked of a target's compiler.

Triton's compiler decides from tile, warps, types and layout; the same worker that says what does not compile
(see `compiler`) is asked for the IR that it lays out for the target, before code is made of it. Answers are
kept in memory and under `.bitproof/compiled`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from bitproof.harness.compiling import compiler
from bitproof.harness.compiling.launch import KernelLaunch
from bitproof.harness.processes.serve import stage


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product as a target's compiler lays it out; `ttgir.read_products` says what the fields are."""

    unit: str
    operands: tuple[tuple[int, ...], ...]
    element: str
    result: str
    width: int
    imprecise: int
    stack: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, kw_only=True)
class Products:
    """All of a launch's products, or `unknown`: why nothing is known of them, in words."""

    products: tuple[Product, ...] = ()
    unknown: str = ""


_answers: dict[tuple[str, str], Products] = {}


def find_products(target: str, launch: KernelLaunch) -> Products:
    """The products of a launch as `target`'s compiler makes them. EnvironmentUnfit where no worker starts."""
    # Triton is imported by the lane that was chosen, never before.
    from bitproof.harness.compiling.description import Undescribable, describe

    try:
        described = describe(launch)
    except Undescribable as error:
        return Products(unknown=f"the compiler cannot be asked about {error}")
    key = target, described.digest
    if key not in _answers:
        _answers[key] = _answer(target, described.digest, described.request)
    return _answers[key]


def _answer(target: str, digest: str, request: dict[str, object]) -> Products:
    path = compiler.FOLDER / f"{digest}-{compiler.versions()}-{target}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return _read(json.loads(path.read_bytes()))
    with stage("compiling"):
        told = compiler.ask(target, json.dumps({**request, "products": True}))
    if told is None:
        return Products(unknown=f"the compiler gave no answer in {compiler.LIMIT:g} s")
    if told["refused"] or told["unknown"]:
        return Products(unknown=told["refused"] or told["unknown"])
    compiler.save(path, json.dumps(told))
    return _read(told)


def _read(told: Mapping[str, object]) -> Products:
    found = json.loads(str(told["products"]))
    return Products(
        products=tuple(
            Product(
                unit=one["unit"],
                operands=tuple(tuple(shape) for shape in one["operands"]),
                element=one["element"],
                result=one["result"],
                width=one["width"],
                imprecise=one["imprecise"],
                stack=None
                if one["stack"] is None
                else tuple((file, line) for file, line in one["stack"]),
            )
            for one in found
        )
    )
