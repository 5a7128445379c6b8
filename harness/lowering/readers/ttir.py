"""Reads Triton's own IR: what a kernel asks for, before a target's compiler decides how it is done."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bitproof.harness.lowering.conversions import Conversion
from bitproof.harness.lowering.readers.code import Place, Where

# Element types as MLIR writes them, and as `oracles.formats` calls them.
_FORMATS = {
    "f32": "fp32",
    "f16": "fp16",
    "bf16": "bf16",
    "f8E4M3FN": "e4m3",
    "f8E5M2": "e5m2",
    "f8E4M3FNUZ": "e4m3fnuz",
    "f8E5M2FNUZ": "e5m2fnuz",
}
_CONVERTS = ("tt.fp_to_fp", "arith.truncf", "arith.extf")

_OP = re.compile(r'(?:(%[\w#:, %]+?) = )?"?((?:[a-z_]+\.)+[\w.]+)"?')
_LOC = re.compile(r"loc\((#\w+|\"[^\"]*\".*|callsite.*|fused.*|unknown)\)\s*\{?$")


@dataclass(frozen=True, kw_only=True)
class Op:
    """One operation: its name, the values it makes and takes, its text, and where it was written."""

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    text: str
    where: Where

    @property
    def place(self) -> Place | None:
        """The innermost place."""
        return self.where[0] if self.where else None

    @property
    def conversion(self) -> Conversion | None:
        """What a conversion of floats converts; None for other operations and for unknown formats."""
        types = self.converted
        if types is None:
            return None
        source, target = (_FORMATS.get(kind) for kind in types)
        if source is None or target is None:
            return None
        toward_zero = re.search(r"rounding = rtz|\btoward_zero\b", self.text)
        return Conversion(source=source, target=target, rounding="rz" if toward_zero else "rne")

    @property
    def converted(self) -> tuple[str, str] | None:
        """The element types that a conversion of floats goes between, as written."""
        if self.name not in _CONVERTS:
            return None
        source, target = re.split(r" -> | to ", self.text.rsplit(" : ", 1)[1], maxsplit=1)
        return _element(source), _element(target)

    @property
    def dot(self) -> tuple[str, str] | None:
        """(element type, input precision) of a product's first operand; None for other operations."""
        if self.name != "tt.dot":
            return None
        precision = re.search(r"inputPrecision = (\w+)", self.text)
        operand = self.text.rsplit(" : ", 1)[1].split(" * ")[0]
        return _element(operand), precision[1] if precision else "ieee"


def _element(kind: str) -> str:
    """The element type of `tensor<128x64xf32>` or of `f32`."""
    inner = re.search(r"tensor<(?:\d+x)*([^,>]+)", kind)
    return inner[1].strip() if inner else kind.strip()


def parse(text: str) -> tuple[Op, ...]:
    """The operations in `text`, in order."""
    definitions = dict(re.findall(r"^(#loc\w*) = loc\((.*)\)$", text, re.MULTILINE))
    found = []
    for line in text.split("\n"):
        match = _OP.match(line.strip())
        if match is None or line.startswith("#"):
            continue
        location = _LOC.search(line)
        code = (line[: location.start()] if location else line).strip()
        operands = code.split("=", 1)[1] if match[1] else code
        found.append(
            Op(
                name=match[2],
                results=tuple(re.findall(r"%\w+", match[1] or "")),
                operands=tuple(re.findall(r"%\w+", operands)),
                text=" ".join(code.split()),
                where=_where(location[1], definitions) if location else (),
            )
        )
    return tuple(found)


def _where(text: str, definitions: dict[str, str], depth: int = 0) -> Where:
    """The places a location stands for, innermost first."""
    if depth > 50:
        return ()
    if text.startswith("#"):
        return _where(definitions.get(text, "unknown"), definitions, depth + 1)
    plain = re.fullmatch(r'"([^"]*)":(\d+):(\d+)(?: to .*)?', text)
    if plain is not None:
        return (Place(plain[1], int(plain[2]), int(plain[3])),)
    named = re.fullmatch(r'"[^"]*"\((.*)\)', text)
    if named is not None:
        return _where(named[1], definitions, depth + 1)
    called = re.fullmatch(r"callsite\((.*) at (.*)\)", text)
    if called is not None:
        inner = _where(called[1], definitions, depth + 1)
        return (*inner, *_where(called[2], definitions, depth + 1))
    fused = re.fullmatch(r"fused(?:<.*?>)?\[(.*)\]", text)
    if fused is not None:
        return _where(fused[1].split(", ")[0], definitions, depth + 1)
    return ()
