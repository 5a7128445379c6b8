"""Reads, from AMD's machine code, the one thing LLVM IR does not show: which sums became fused.

Source: "AMD Instinct MI300" instruction set architecture, chapter "Vector ALU Operations".
"""

from __future__ import annotations

import re

from bitproof.harness.lowering.readers.code import Place

_FUSED = re.compile(r"v_(?:pk_)?(?:fma|fmac|mad|mac)(?:ak|mk|_mix\w*)?_(?:f16|f32|f64|bf16)\w*")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')


def find_fused(text: str) -> dict[Place, str]:
    """By place, the first instruction there that multiplies and adds with one rounding."""
    files = {int(n): f"{a}/{b}" if b else a for n, a, b in _FILE.findall(text)}
    found: dict[Place, str] = {}
    place = Place("", 0, 0)
    for line in text.split("\n"):
        location = _LOC.match(line.strip())
        if location is not None:
            file, number, column = (int(part) for part in location.groups())
            place = Place(files.get(file, ""), number, column)
        elif _FUSED.match(line.strip()):
            found.setdefault(place, " ".join(line.split()))
    return found
