"""Reads PTX as Triton's NVIDIA backend prints it.

Source: PTX ISA 9.0, "Syntax" and "Directives". What the reader does not know it takes for an ordinary
instruction that writes its first operand and depends on all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bitproof.harness.lowering.readers.code import Code, Instruction, Place, Where

SHARED = "(shared memory)"
LOCAL = "(local memory)"
TENSOR = "(tensor memory)"

_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_NAME = re.compile(r"%?[A-Za-z_$][\w$.]*")
# Opcodes that write no register; all their operands are read.
_WRITES_NOTHING = re.compile(
    r"st|red|stmatrix|bra|ret|exit|trap|bar|barrier|membar|fence|prefetch|prefetchu|cp|nanosleep"
    r"|griddepcontrol|setmaxnreg|discard|applypriority|brkpt|pmevent|multimem"
)
_SPACES = {"shared": SHARED, "local": LOCAL}


def parse(text: str) -> Code:
    """The code of the one entry function in `text`."""
    reader = _Reader(files=_files(text))
    for statement in _statements(text, reader):
        reader.read(statement)
    return Code(
        instructions=tuple(reader.instructions),
        parameters=reader.parameters,
        loads=frozenset(
            i.index
            for i in reader.instructions
            if re.match(r"ld\.(?!shared|local|param)", i.opcode)
        ),
    )


def _files(text: str) -> dict[int, str]:
    found = {}
    for number, first, second in _FILE.findall(text):
        found[int(number)] = f"{first}/{second}" if second else first
    return found


def _statements(text: str, reader: _Reader) -> Iterator[str]:
    """The statements of the body, scopes as "{" and "}"; `.loc` goes to the reader on the way.

    A location inside an inline assembly block is LLVM's counting of the block's own lines, so that the
    one before it stays in force.
    """
    body = text[text.index("\n{") + 1 :]
    pending, depth, inline = "", 0, False
    for raw in body.split("\n"):
        marker = raw.strip()
        if marker.startswith(("// begin inline asm", "// end inline asm")):
            inline = marker.startswith("// begin")
            continue
        line = raw.split("//")[0].strip()
        if line.startswith(".loc"):
            if not inline:
                reader.locate(line)
            continue
        if re.fullmatch(r"[$\w]+:", line):
            continue
        pending += line + " "
        while True:
            pending = pending.lstrip()
            if pending[:1] in ("{", "}"):
                depth += 1 if pending[0] == "{" else -1
                yield pending[0]
                pending = pending[1:]
                if depth == 0:
                    return
            elif ";" in pending:
                statement, pending = pending.split(";", 1)
                yield statement.strip()
            else:
                break


@dataclass(kw_only=True)
class _Reader:
    files: dict[int, str]
    instructions: list[Instruction] = field(default_factory=list)
    parameters: dict[str, int] = field(default_factory=dict)
    # Names declared in blocks of inline assembly, innermost last: the same name is another register
    # in another block.
    scopes: list[dict[str, str]] = field(default_factory=list)
    blocks: int = 0
    where: Where = ()
    callers: dict[Place, Place] = field(default_factory=dict)

    def locate(self, line: str) -> None:
        found = _LOC.match(line)
        if found is None:
            return
        place = self._place(*found.groups()[:3])
        if found[4]:
            self.callers[place] = self._place(*found.groups()[3:])
        elif place in self.callers:
            del self.callers[place]
        chain = [place]
        while chain[-1] in self.callers and self.callers[chain[-1]] not in chain:
            chain.append(self.callers[chain[-1]])
        self.where = tuple(chain)

    def _place(self, file: str, line: str, column: str) -> Place:
        return Place(self.files.get(int(file), ""), int(line), int(column))

    def read(self, statement: str) -> None:
        if statement == "{":
            self.blocks += 1
            self.scopes.append({})
        elif statement == "}":
            self.scopes.pop()
        elif statement.startswith(".reg"):
            self._declare(statement)
        elif statement and not statement.startswith("."):
            self._instruction(statement)

    def _declare(self, statement: str) -> None:
        for item in statement.split(None, 2)[2].split(","):
            name, _, count = item.strip().rstrip(">").partition("<")
            names = [f"{name}{i}" for i in range(int(count))] if count else [name]
            if len(self.scopes) > 1:
                self.scopes[-1].update({name: f"{name}#{self.blocks}" for name in names})

    def _instruction(self, statement: str) -> None:
        guards: tuple[str, ...] = ()
        text = " ".join(statement.split())
        rest = text
        if rest.startswith("@"):
            guard, rest = rest[1:].split(None, 1)
            guards = self._names(guard.lstrip("!"))
        opcode, _, rest = rest.partition(" ")
        operands = _split(rest)
        root = opcode.split(".")[0]
        names = [self._names(operand) for operand in operands]
        writes = not _WRITES_NOTHING.fullmatch(root) and bool(operands)
        if root in ("wgmma", "tcgen05", "mbarrier", "clusterlaunchcontrol"):
            writes = ".mma_async" in opcode or opcode.startswith(("tcgen05.ld", "mbarrier.t"))
        outs = names[0] if writes else ()
        if root == "call":
            outs = names[0]
        ins = [name for group in (names[1:] if writes else names) for name in group]
        if opcode.startswith("wgmma.mma_async"):
            ins += names[0]
        address = tuple(
            name
            for operand, group in zip(operands, names, strict=True)
            if operand.startswith("[")
            for name in group
        )
        hidden_outs, hidden_ins = _memory(opcode, root)
        if opcode.startswith("ld.param"):
            number = re.search(r"_param_(\d+)", operands[1])
            if number is not None:
                self.parameters[f"(parameter {number[1]})"] = int(number[1])
                ins.append(f"(parameter {number[1]})")
        self.instructions.append(
            Instruction(
                index=len(self.instructions),
                opcode=opcode,
                text=text,
                operands=tuple(self._rename(operand) for operand in operands),
                outs=(*outs, *hidden_outs),
                ins=(*ins, *hidden_ins),
                address=address,
                guards=guards,
                stores=_stores(opcode, root),
                where=self.where,
            )
        )

    def _names(self, operand: str) -> tuple[str, ...]:
        """The registers in an operand: those with a %, and those an enclosing block declares."""
        found = []
        for name in _NAME.findall(re.sub(r"0[fd][0-9A-Fa-f]+|\b\d\w*", "", operand)):
            known = self._look_up(name)
            if known is not None:
                found.append(known)
        return tuple(found)

    def _look_up(self, name: str) -> str | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name if name.startswith("%") else None

    def _rename(self, operand: str) -> str:
        return _NAME.sub(lambda match: self._look_up(match[0]) or match[0], operand)


def _split(text: str) -> list[str]:
    """Operands, at the commas outside of braces and brackets."""
    found, depth, current = [], 0, ""
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        if character == "," and depth == 0:
            found.append(current.strip())
            current = ""
        else:
            current += character
    if current.strip():
        found.append(current.strip())
    return found


def _memory(opcode: str, root: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The memory spaces an instruction writes and reads, each taken for one value."""
    spaces = [value for name, value in _SPACES.items() if f".{name}" in opcode]
    if root in ("ld", "ldmatrix"):
        return (), tuple(spaces)
    if root in ("st", "stmatrix"):
        return tuple(spaces), ()
    if root in ("atom", "red"):
        return tuple(spaces), tuple(spaces)
    if root == "cp":
        to_global = ".global.shared" in opcode
        return ((), (SHARED,)) if to_global else ((SHARED,), ())
    if root == "wgmma":
        return (), (SHARED,)
    if root == "tcgen05":
        reads = (TENSOR,) if ".ld" in opcode else (SHARED, TENSOR)
        return ((TENSOR,) if ".ld" not in opcode else ()), reads
    return (), ()


def _stores(opcode: str, root: str) -> bool:
    if root == "cp":
        return ".global.shared" in opcode
    if root not in ("st", "red", "atom"):
        return False
    return not re.search(r"\.(shared|local|param)", opcode)
