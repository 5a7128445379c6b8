"""Reads LLVM IR as Triton's AMD backend prints it: the last form in which every value has a name.

Source: LLVM Language Reference Manual, "Instruction Reference". Machine code for AMD reuses registers,
so that flow is read one step before it.
"""

from __future__ import annotations

import re

from bitproof.harness.lowering.readers.code import Code, Instruction, Place, Where

SHARED = "(shared memory)"
LOCAL = "(local memory)"

_VALUE = re.compile(r'%(?:"[^"]+"|[\w.$-]+)')
_LABEL = re.compile(r'label %(?:"[^"]+"|[\w.$-]+)|, %[\w.$-]+ \](?=[,\s]|$)')
_META = re.compile(r"!(\d+) = (?:distinct )?!(\w+)\((.*)\)")
_CALLEE = re.compile(r"@([\w.$]+)\(")
_BUFFER = re.compile(r"llvm\.amdgcn\.(raw|struct)\.(ptr\.)?buffer\.")


def parse(text: str) -> Code:
    """The code of the one kernel in `text`."""
    places = _Places(text)
    header, body = _kernel(text)
    instructions: list[Instruction] = []
    for line in body:
        instructions.append(_instruction(line, len(instructions), places))
    return Code(
        instructions=tuple(instructions),
        parameters={name: number for number, name in enumerate(_parameters(header))},
        loads=frozenset(i.index for i in instructions if _loads(i)),
    )


def _kernel(text: str) -> tuple[str, list[str]]:
    start = re.search(r"^define amdgpu_kernel .*\{$", text, re.MULTILINE)
    assert start is not None
    end = text.index("\n}", start.end())
    lines = [line.strip() for line in text[start.end() : end].split("\n")]
    kept = [line for line in lines if line and not re.match(r"([\w.$-]+|\"[^\"]+\"):|;", line)]
    return start[0], kept


def _parameters(header: str) -> list[str]:
    return re.findall(r"(%[\w.$-]+)(?=[,)])", header[header.index("(") :])


def _instruction(line: str, index: int, places: _Places) -> Instruction:
    code = line
    where: Where = ()
    found = re.search(r", !dbg !(\d+)", line)
    if found is not None:
        code, where = line[: found.start()], places.chain(found[1])
    out, _, right = code.partition(" = ")
    if not right or not out.startswith("%"):
        out, right = "", code
    words = right.split()
    while words[0] in ("tail", "musttail", "notail"):
        words = words[1:]
    opcode = words[0]
    if opcode == "call":
        callee = _CALLEE.search(right)
        opcode = "asm" if re.search(r"\basm\b", right) else (callee[1] if callee else "call")
    elif opcode == "atomicrmw":
        opcode = f"atomicrmw {words[2] if words[1] == 'volatile' else words[1]}"
    names = _VALUE.findall(_LABEL.sub("", right))
    address = _address(opcode, right, names)
    hidden_outs, hidden_ins = _memory(opcode, right)
    return Instruction(
        index=index,
        opcode=opcode,
        text=" ".join(code.split()),
        outs=(*([out] if out else []), *hidden_outs),
        ins=(*names, *hidden_ins),
        address=address,
        stores=_stores(opcode, right),
        where=where,
    )


def _address(opcode: str, text: str, names: list[str]) -> tuple[str, ...]:
    """The values of an access that say where: pointers, and a buffer's descriptor and offsets."""
    pointers = re.findall(r"ptr(?: addrspace\(\d+\))?(?: \w+)* (%[\w.$-]+)", text)
    if _BUFFER.match(opcode) and pointers:
        return tuple(names[names.index(pointers[0]) :])
    if opcode in ("load", "store") or opcode.startswith(("atomicrmw", "cmpxchg")):
        return tuple(pointers)
    return ()


def _memory(opcode: str, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    spaces = [
        value for number, value in ((3, SHARED), (5, LOCAL)) if f"addrspace({number})" in text
    ]
    if ", ptr %" in text and opcode in ("load", "store"):
        spaces.append(LOCAL)  # an alloca of an inlined library function
    if opcode == "load" or ".ds.read" in opcode:
        return (), tuple(spaces)
    if opcode == "store" or opcode.startswith("llvm.amdgcn.raw.ptr.buffer.load.lds"):
        return tuple(spaces), ()
    if opcode.startswith(("atomicrmw", "cmpxchg")):
        return tuple(spaces), tuple(spaces)
    return (), ()


def _stores(opcode: str, text: str) -> bool:
    if _BUFFER.match(opcode):
        return ".store" in opcode or ".atomic" in opcode
    if opcode in ("store", "cmpxchg") or opcode.startswith("atomicrmw"):
        return "ptr addrspace(1)" in text
    return False


def _loads(instruction: Instruction) -> bool:
    if _BUFFER.match(instruction.opcode):
        return ".load" in instruction.opcode
    return instruction.opcode == "load"


class _Places:
    """The source positions that `!dbg` metadata stands for."""

    def __init__(self, text: str) -> None:
        self._nodes = {number: (kind, fields) for number, kind, fields in _META.findall(text)}
        self._chains: dict[str, Where] = {}

    def chain(self, number: str) -> Where:
        """The position `!number` and those it was inlined at, outwards."""
        if number not in self._chains:
            self._chains[number] = self._walk(number)
        return self._chains[number]

    def _walk(self, number: str) -> Where:
        kind, fields = self._nodes.get(number, ("", ""))
        if kind != "DILocation":
            return ()
        line, column = self._field(fields, "line"), self._field(fields, "column")
        place = Place(self._file(self._field(fields, "scope")), int(line or 0), int(column or 0))
        outer = self._field(fields, "inlinedAt")
        return (place, *(self.chain(outer) if outer else ()))

    def _file(self, scope: str) -> str:
        kind, fields = self._nodes.get(scope, ("", ""))
        if kind == "DIFile":
            name, folder = (
                re.search(rf'{key}: "([^"]*)"', fields) for key in ("filename", "directory")
            )
            name_text = name[1] if name else ""
            return f"{folder[1]}/{name_text}" if folder and folder[1] else name_text
        outer = self._field(fields, "file") or self._field(fields, "scope")
        return self._file(outer) if outer else ""

    @staticmethod
    def _field(fields: str, name: str) -> str:
        found = re.search(rf"\b{name}: (?:distinct )?!?(\d+)", fields)
        return found[1] if found else ""
