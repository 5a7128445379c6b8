"""One text for kernels that differ only in names, in places, and in the order of what has no effect.

Takes Triton's language of blocks as MLIR prints it. What computes a value out of others is told where it is
used; what reads or writes memory, and what has a body, is told in order.
"""

from __future__ import annotations

import hashlib
import itertools
import re

_PLACES = re.compile(r"^#loc.*$|\s*loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", re.MULTILINE)
_NAME = re.compile(r"%[A-Za-z0-9_$.\-]+")
_DEFINED = re.compile(r"(%[A-Za-z0-9_$.\-]+(?:, %[A-Za-z0-9_$.\-]+)*)(:\d+)? = (.*)", re.DOTALL)
# Operations that only compute, whatever comes before or after them.
_PURE = re.compile(
    r'"?(?:arith|math)\.|"?tt\.(?:splat|unsplat|broadcast|expand_dims|addptr|make_range|reshape|trans|join|'
    r"bitcast|int_to_ptr|ptr_to_int|fp_to_fp|clampf|precise_divf|precise_sqrt|mulhiui|dot|get_program_id|"
    r'get_num_programs|cat)\b"?'
)


# A name that a body gets a value under: an argument of a block or a function, a loop's variable.
_BOUND = re.compile(r"(%[A-Za-z0-9_$.\-]+)\s*(?:=\s|:)")


def canonical(text: str) -> str:
    """The lines that have an effect, each with digests of the whole computation of what it takes."""
    known: dict[str, str] = {}
    told: list[str] = []
    counter = itertools.count()

    def bind(name: str) -> None:
        known[name] = f"<{next(counter)}>"

    def replace(found: re.Match[str]) -> str:
        if found[0] not in known:
            bind(found[0])
        return known[found[0]]

    for raw in _PLACES.sub("", text).splitlines():
        line = raw.strip()
        found = _DEFINED.match(line)
        if found and _PURE.match(found[3]) and not line.endswith("{"):
            known[found[1]] = _digest(_NAME.sub(replace, found[3]))
            continue
        operation = found[3] if found else line
        if line.endswith(("{", ":")):
            for one in _BOUND.findall(operation):
                bind(one)
        operation = _NAME.sub(replace, operation)
        if found:
            names = found[1].split(", ")
            for one in names:
                bind(one)
            results = ", ".join(known[one] for one in names)
            operation = f"{results}{found[2] or ''} = {operation}"
        if operation:
            told.append(operation)
    return "\n".join(told)


def _digest(text: str) -> str:
    return f"<{hashlib.sha256(text.encode()).hexdigest()[:16]}>"
