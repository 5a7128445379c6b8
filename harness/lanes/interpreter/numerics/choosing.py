"""By which instruction a `tl.dot` at hand would be made on the lane's target, and how that is known.

The bits of a product depend on it in few cases only: fp8, which one unit sums in 14 bits and another widens
to fp16, and operands that were loaded narrower than they are multiplied, which one unit takes in another
order of k. Where all that a target could choose adds alike, nothing is asked. Elsewhere the target's compiler
is asked, if the session says so; and where it is not or does not know, the usual choice is taken, and said to
be assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from bitproof.harness.compiling.launch import KernelLaunch
from bitproof.harness.compiling.products import Product, find_products
from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.machinery import stack
from bitproof.oracles.instructions import INSTRUCTIONS, Instruction

FP8 = ("e4m3", "e5m2")
_BITS = {"tf32": 32, "bf16": 16, "fp16": 16, "e4m3": 8, "e5m2": 8}
# Operand types as MLIR names them.
_ELEMENTS = {"f32": "tf32", "bf16": "bf16", "f16": "fp16", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}

Known = Literal["alike", "read", "assumed"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """`kind` is the type that operands are multiplied in, a name of `instructions`.

    `known` says how: every choice adds "alike", the compiler's was "read", or it is "assumed", `because` of
    what is not known.
    """

    kind: str
    instruction: Instruction
    known: Known
    because: str = ""


def choose(kind: str, rows: int, columns: int, depth: int, imprecise: int) -> Choice | None:
    """The instruction for [rows, depth] times [depth, columns] operands of `kind`; None where none is known.

    `imprecise` is what `tl.dot` was told of fp8 sums, 0 for other operands. The session notes what was chosen
    where, with how it is known.
    """
    session = state.current
    assert session is not None
    launch = session.launches[-1] if session.launches else None
    chosen = _choose(session, launch, kind, (rows, columns, depth), imprecise)
    if chosen is not None:
        place = next(stack(), ("", 0))
        told = f"{chosen.known}: {chosen.because}" if chosen.because else chosen.known
        session.products.setdefault(place, told)
    return chosen


def _choose(
    session: state.Session,
    launch: KernelLaunch | None,
    kind: str,
    shape: tuple[int, int, int],
    imprecise: int,
) -> Choice | None:
    table = INSTRUCTIONS[session.target]
    able = {one for (operand, _), one in table.items() if operand == kind}
    if kind not in FP8 and len(able) == 1 and _narrowest(launch) >= _BITS[kind]:
        return Choice(kind=kind, instruction=able.pop(), known="alike")
    because = "no compiler was asked"
    if session.asking and launch is not None:
        told = find_products(session.target, launch)
        fitting = list(_matching(told.products, shape)) if not told.unknown else []
        choices = {_instruct(session.target, one, shape[2]) for one in fitting}
        if len(choices) == 1:
            return choices.pop()
        because = told.unknown or (
            "the compiler's IR does not show it"
            if not fitting
            else "the compiler made several of it"
        )
    return _assume(session.target, launch, kind, shape, imprecise, because)


def _matching(products: tuple[Product, ...], shape: tuple[int, int, int]) -> Iterator[Product]:
    """Those made of the lines that are being run, on tiles of these rows and columns."""
    lines = tuple(stack())
    for one in products:
        sizes = tuple(operand[-2:] for operand in one.operands)
        # A loop over k may have been cut into shorter products.
        if one.stack == lines and (sizes[0][0], sizes[1][1]) == shape[:2]:
            yield one


def _instruct(target: str, made: Product, depth: int) -> Choice | None:
    """What the compiler made of a product of `depth`; None where the table has no such instruction."""
    kind = _ELEMENTS.get(made.element, "")
    one = INSTRUCTIONS[target].get((kind, made.unit))
    if one is None or made.result != "f32":
        return None
    if made.unit == "mma" and made.width:
        # A register has 32 bits: a thread that holds w of them side by side feeds w instructions.
        one = replace(one, interleaved=max(made.width * _BITS[kind] // 32, 1))
    if made.unit == "wgmma" and kind in FP8 and 0 < made.imprecise <= depth:
        one = replace(one, promoted=-(-made.imprecise // one.terms) * one.terms)
    if depth % (one.span * one.interleaved):
        return None
    return Choice(kind=kind, instruction=one, known="read")


def _assume(
    target: str,
    launch: KernelLaunch | None,
    kind: str,
    shape: tuple[int, int, int],
    imprecise: int,
    because: str,
) -> Choice | None:
    """The compiler's usual choice: the large units take tiles of 64 rows, in four warps."""
    table = INSTRUCTIONS[target]
    options: Mapping[str, Any] = launch.options if launch is not None else {}
    rows, columns, depth = shape
    large = rows % 64 == 0 and columns % 8 == 0 and options.get("num_warps", 4) % 4 == 0
    unit = {"sm_90": "wgmma", "sm_100": "tcgen05"}.get(target, "mma")
    if unit != "mma" and large and not (kind in FP8 and unit == "wgmma" and imprecise == 0):
        one = table.get((kind, unit))
        if one is not None and kind in FP8 and unit == "wgmma" and 0 < imprecise <= depth:
            one = replace(one, promoted=-(-imprecise // one.terms) * one.terms)
    else:
        one = table.get((kind, "mma"))
    if one is None and kind in FP8:
        kind = "fp16"
        one = table.get((kind, "mma"))
        one = None if one is None else replace(one, interleaved=2)
    if one is None:
        return None
    return Choice(kind=kind, instruction=one, known="assumed", because=because)


def _narrowest(launch: KernelLaunch | None) -> int:
    """Bits of the narrowest elements that a launch's tensors hold; 8 where nothing is known."""
    if launch is None:
        return 8
    widths = [
        8 * dtype.itemsize
        for value in launch.arguments.values()
        if (dtype := _dtype(value)) is not None
    ]
    return min(widths, default=64)


def _dtype(value: Any) -> torch.dtype | None:
    if isinstance(value, TensorDescriptor):
        value = value.base
    if isinstance(value, TensorWrapper):
        value = value.base
    return value.dtype if isinstance(value, torch.Tensor) else None
