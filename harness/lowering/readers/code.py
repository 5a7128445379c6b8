"""A target's code as data: instructions, where in the source they come from, how values flow.

Both kinds of code that are read here, PTX and LLVM IR, name every value. A *slice* is the set of
instructions that some values depend on; it errs on the large side: registers that are assigned more than
once, and shared memory as a whole, depend on everything that is ever put there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class Place(NamedTuple):
    """A position in a source file."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        """As an editor takes it."""
        return f"{self.file}:{self.line}"


Where = tuple[Place, ...]
"""Where an instruction comes from: the innermost function first, then whoever inlined it."""


def own(where: Where) -> Place | None:
    """The innermost place outside Triton's own language, where somebody can change something."""
    outside = [place for place in where if "/triton/language/" not in place.file and place.line]
    return outside[0] if outside else (where[-1] if where else None)


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction. `outs` and `ins` are names of values; `stores` says it writes global memory.

    `address` are those of `ins` that say where a load, store or atomic goes. `text` is as written.
    """

    index: int
    opcode: str
    text: str
    operands: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    ins: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    stores: bool = False
    where: Where = ()


@dataclass(frozen=True, kw_only=True)
class Code:
    """A function's instructions in order.

    `parameters` maps the name of a value that holds a parameter to the parameter's number; `loads` are
    the indices of instructions that read global memory, through which an address is not followed.
    """

    instructions: tuple[Instruction, ...]
    parameters: dict[str, int] = field(default_factory=dict)
    loads: frozenset[int] = frozenset()

    @cached_property
    def writers(self) -> dict[str, list[int]]:
        """For each value, the instructions that assign it."""
        found: dict[str, list[int]] = defaultdict(list)
        for instruction in self.instructions:
            for name in instruction.outs:
                found[name].append(instruction.index)
        return dict(found)

    @cached_property
    def branches(self) -> tuple[str, ...]:
        """The values that decide branches: everything depends on them."""
        return tuple(
            name
            for instruction in self.instructions
            if instruction.opcode.split(".")[0] in ("bra", "brx", "br", "switch")
            for name in (*instruction.ins, *instruction.guards)
        )

    @cached_property
    def stores(self) -> tuple[Instruction, ...]:
        """What writes global memory: stores, reductions, atomics."""
        return tuple(i for i in self.instructions if i.stores)

    def slice(self, values: Iterable[str], *, through_loads: bool = True) -> frozenset[int]:
        """The instructions that `values` depend on."""
        pending, seen, found = list(values), set[str](), set[int]()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            for index in self.writers.get(name, ()):
                if index in found:
                    continue
                found.add(index)
                instruction = self.instructions[index]
                if through_loads or index not in self.loads:
                    pending += (*instruction.ins, *instruction.guards)
        return frozenset(found)

    def behind(self, store: Instruction) -> frozenset[int]:
        """The instructions that decide what, and whether, `store` stores; not where to."""
        values = [name for name in store.ins if name not in store.address]
        return self.slice((*values, *store.guards, *self.branches)) | {store.index}

    def targets(self, store: Instruction) -> frozenset[int]:
        """The numbers of the parameters that `store`'s address is made from."""
        reached = self.slice(store.address, through_loads=False)
        names = {name for index in reached for name in self.instructions[index].ins}
        return frozenset(
            number
            for name, number in self.parameters.items()
            if name in names or name in store.address
        )

    def at(self, place: Place) -> Iterator[Instruction]:
        """The instructions that come from one place."""
        return (i for i in self.instructions if i.where and i.where[0] == place)
