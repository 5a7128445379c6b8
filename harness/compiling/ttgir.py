"""Reads from Triton's GPU IR by which instruction each matrix product is made, and in which order of k.

The IR has been laid out for one target: its text names, for every product, the layout of operands and result,
from which unit and order follow, and the lines of the source that it comes from.
"""

from __future__ import annotations

import re
from typing import Any

_PRODUCT = re.compile(r"\b(tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma)\s(?P<rest>.*)")
_TYPE = re.compile(r"(?:tensor|memdesc)<((?:\d+x)+)(\w+)")
_WIDTH = re.compile(r"opIdx = 0,.*?kWidth = (\d+)")
_RESULT = re.compile(r"-> tensor<(?:\d+x)+(\w+), (#\w+)>")
_LAYOUT = re.compile(r"^(#\w+) = #ttg\.(\w+)<(?:\{versionMajor = (\d+))?", re.MULTILINE)
_IMPRECISE = re.compile(r"maxNumImpreciseAcc = (\d+)")
_LOCATION = re.compile(r"^(#loc\w*) = (loc\(.*\))$", re.MULTILINE)
_FILE = re.compile(r'"([^"]*)":(\d+):\d+')
# A building process reads a function's source under such a name (see `building`).
_BUILT = re.compile(r"<(.*)#\d+>")


def read_products(text: str) -> list[dict[str, Any]]:
    """The matrix products of a module, in its order, as plain values.

    unit       "wgmma", "mma" (version 2), "tcgen05", or "fma" where no tensor core multiplies
    operands   shapes of both; `element` is the first one's type as MLIR names it, `result` the result's
    width      elements of a row that one thread holds side by side in the first operand; 0 if not said
    imprecise  the products after which fp8 sums are to be promoted, 0 if not said
    stack      (file, line) of the source, the innermost first; None where the IR does not say
    """
    kinds = {name: _name_unit(kind, version) for name, kind, version in _LAYOUT.findall(text)}
    places = dict(_LOCATION.findall(text))
    found = []
    for line in text.splitlines():
        match = _PRODUCT.search(line)
        if match is None:
            continue
        operation, rest = match[1], match["rest"]
        shapes = _TYPE.findall(rest.partition(" : ")[2])
        result = _RESULT.search(rest)
        width, imprecise = _WIDTH.search(rest), _IMPRECISE.search(rest)
        if operation == "ttng.tc_gen5_mma":
            unit, out = "tcgen05", shapes[2][1] if len(shapes) > 2 else ""
        elif operation == "ttng.warp_group_dot":
            unit, out = "wgmma", result[1] if result else ""
        else:
            unit, out = (kinds.get(result[2], ""), result[1]) if result else ("", "")
        found.append(
            {
                "unit": unit,
                "operands": [[int(n) for n in sizes[:-1].split("x")] for sizes, _ in shapes[:2]],
                "element": shapes[0][1] if shapes else "",
                "result": out,
                "width": int(width[1]) if width else 0,
                "imprecise": int(imprecise[1]) if imprecise else 0,
                "stack": _stack(line[line.rindex("loc(") :] if "loc(" in line else "", places),
            }
        )
    return found


def _name_unit(kind: str, version: str) -> str:
    if kind == "nvidia_mma":
        return {"2": "mma", "3": "wgmma"}.get(version, "")
    return "fma" if kind == "blocked" else ""


def _stack(location: str, places: dict[str, str]) -> list[list[Any]] | None:
    """What a location says: a place, a name for one, or a place that was called at another."""
    text = location.strip()
    while text.startswith("loc(") and text.endswith(")"):
        text = text[4:-1]
    if text.startswith("#"):
        return _stack(places.get(text, ""), places)
    called = re.fullmatch(r"callsite\((.*) at (.*)\)", text)
    if called:
        inner, outer = _stack(called[1], places), _stack(called[2], places)
        return None if inner is None or outer is None else inner + outer
    named = re.fullmatch(r'"[^"]*"\((.*)\)', text)
    if named:
        return _stack(named[1], places)
    place = _FILE.match(text)
    if place is None:
        return None
    built = _BUILT.fullmatch(place[1])
    # Functions that Triton ships are not built here, and no frame of a kernel.
    return [[built[1], int(place[2])]] if built else []
