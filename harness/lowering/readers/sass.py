"""Reads NVIDIA's machine code, as nvdisasm prints it, for uniform registers that nothing has written.

Everything else that is told of NVIDIA's targets shows in PTX. This does not: the assembler itself may lose
the instruction that makes a value. On sm_90 the addresses of a matrix product's operands lie in uniform
registers, and an unwritten one sends the product to whatever memory it names.

A register is told only where no path from the kernel's start writes it: text order and every jump count as
paths, conditions are not looked at. An instruction that reads the register which it writes, as a counter
does, defines it only where it was defined before.

Source: NVIDIA, "CUDA Binary Utilities", section "Instruction Set Reference", Hopper.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from triton import knobs

from bitproof.harness.lowering.readers.code import Place, Where

_PLACE = re.compile(r'//## File "([^"]*)", line (\d+)')
_LABEL = re.compile(r"(\S+):")
_STEP = re.compile(r"/\*[0-9a-f]{4,}\*/\s+((?:@!?U?P\w+\s+)?)(\S+)\s*([^;]*?)\s*;")
_JUMP = re.compile(r"`\(([^)]+)\)")
_PREDICATE = re.compile(r"!?U?P(?:\d|T)")
_UNIFORM = re.compile(r"\bUR(\d+)\b")
_DESCRIPTORS = re.compile(r"gdesc\[UR(\d+)\]")
_ENTRY = "STO_CUDA_ENTRY"


class Unwritten(NamedTuple):
    """An instruction, as written, that reads uniform registers which nothing has written before it."""

    where: Where
    instruction: str


@dataclass(frozen=True, kw_only=True)
class _Step:
    """One instruction: which uniform registers it reads and writes, which labels it may jump to.

    `falls` says that the next instruction may follow it.
    """

    opcode: str
    text: str
    where: Where
    reads: frozenset[int]
    writes: frozenset[int]
    jumps: tuple[str, ...]
    falls: bool


def disassemble(binary: Path) -> str | None:
    """The machine code in a cubin with the source's lines, by Triton's nvdisasm; None where it fails."""
    try:
        tool = knobs.nvidia.nvdisasm.path
    except RuntimeError:  # there is none beside Triton
        return None
    command = [tool, "-c", "-gi", str(binary)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def find_unwritten(text: str) -> tuple[Unwritten, ...]:
    """The instructions of a kernel that read unwritten uniform registers, each register's first one."""
    steps, labels, entry = _parse(text)
    found, told = [], set[int]()
    for step, before in zip(steps, _find_written_before(steps, labels, entry), strict=True):
        missing = frozenset[int]() if before is None else step.reads - before - told
        if missing:
            told |= missing
            found.append(Unwritten(step.where, step.text))
    return tuple(found)


def _parse(text: str) -> tuple[list[_Step], dict[str, int], int]:
    """(instructions in order, the number of the instruction at each label, that of the kernel's first)."""
    steps: list[_Step] = []
    labels: dict[str, int] = {}
    places: list[Place] = []
    entry, before_places = 0, True
    for line in text.split("\n"):
        if place := _PLACE.search(line):
            # A run of such lines is the innermost function's first, then whoever inlined it.
            places = [] if before_places else places
            places.append(Place(place[1], int(place[2]), 0))
            before_places = False
        elif step := _STEP.search(line):
            steps.append(_step(*step.groups(), where=tuple(places)))
            before_places = True
        elif label := _LABEL.fullmatch(line.strip()):
            labels[label[1]] = len(steps)
        elif _ENTRY in line:
            entry = len(steps)
    return steps, labels, entry


def _step(guard: str, opcode: str, rest: str, *, where: Where) -> _Step:
    operands = [operand.strip() for operand in rest.split(",")]
    target, writes = _target(opcode, operands)
    reads = set[int]()
    for number, operand in enumerate(operands):
        if number == target:
            continue
        for first in _DESCRIPTORS.findall(operand):
            # Four registers hold both operands' descriptors; a left one in registers has none.
            start = 2 if re.match(r"R\d", operands[1]) else 0
            reads.update(range(int(first) + start, int(first) + 4))
        reads.update(int(name) for name in _UNIFORM.findall(_DESCRIPTORS.sub("", operand)))
    kind = opcode.split(".")[0]
    leaves = kind in ("RET", "BRX", "BRXU", "JMX", "JMXU", "EXIT", "JMP")
    leaves = (leaves or opcode == "BRA") and not guard and not _PREDICATE.fullmatch(operands[0])
    return _Step(
        opcode=kind,
        text=" ".join(f"{guard}{opcode} {rest}".split()),
        where=where,
        reads=frozenset(reads),
        writes=writes,
        jumps=tuple(_JUMP.findall(rest)),
        falls=not leaves,
    )


def _target(opcode: str, operands: list[str]) -> tuple[int, frozenset[int]]:
    """(number of the operand that is written, the uniform registers written), (-1, none) for other ones.

    What is written comes first, predicates before the register. Comparisons write predicates alone, and
    branches nothing.
    """
    kinds = opcode.split(".")
    number = next((i for i, o in enumerate(operands) if not _PREDICATE.fullmatch(o)), 0)
    register = _UNIFORM.fullmatch(operands[number])
    if register is None or "SETP" in kinds[0] or kinds[0].startswith("BR"):
        return -1, frozenset()
    width = 4 if "128" in kinds else 2 if {"64", "WIDE"} & {*kinds} or kinds[0] == "CS2UR" else 1
    return number, frozenset(range(int(register[1]), int(register[1]) + width))


def _find_written_before(
    steps: list[_Step], labels: dict[str, int], entry: int
) -> list[frozenset[int] | None]:
    """What may have been written when each instruction starts; None for those that nothing leads to."""
    before: list[frozenset[int] | None] = [None] * len(steps)
    returns = [i + 1 for i, step in enumerate(steps) if step.opcode == "CALL"]
    inner = [i for label, i in labels.items() if label.startswith(".L")]
    pending = [(entry, frozenset[int]())]
    while pending:
        i, arriving = pending.pop()
        if i >= len(steps):
            continue
        earlier = before[i]
        if earlier is not None and arriving <= earlier:
            continue
        now = arriving | (earlier or frozenset())
        before[i] = now
        step = steps[i]
        after = now | {r for r in step.writes if r not in step.reads or r in now}
        targets = [labels[name] for name in step.jumps if name in labels]
        if step.opcode == "RET":
            targets = returns  # its label is the function that it returns to, not the place
        elif step.opcode in ("BRX", "BRXU", "JMX", "JMXU"):
            targets = inner  # where to is not in the text
        pending += [(target, after) for target in targets]
        if step.falls:
            pending.append((i + 1, after))
    return before
