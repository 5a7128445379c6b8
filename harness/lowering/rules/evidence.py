"""One compiled kernel as the rules see it: what was asked, what the code does, which outputs it reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from bitproof.harness.bounds import ExactBits
from bitproof.harness.lowering.conversions import Conversion, Verdict
from bitproof.harness.lowering.emulator.memory import NotModelled
from bitproof.harness.lowering.readers.code import Code, Instruction, Place, Where, own
from bitproof.harness.lowering.readers.sass import Unwritten
from bitproof.harness.lowering.readers.ttir import Op
from bitproof.harness.spec import KernelSpec

Outputs = frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a rule found: where, the instruction that shows it, what happens, which outputs it reaches.

    `conversion` is the one that shows it, "" where none does, and `wrong` on how many inputs that decide.
    """

    where: Where
    instruction: str
    detail: str
    outputs: Outputs
    conversion: str = ""
    wrong: int = 0

    @property
    def source(self) -> str:
        """The place in a kernel's source, "" where the compiler kept none."""
        place = own(self.where)
        return str(place) if place else ""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """`asked` are the operations of Triton's IR; `code` is PTX for NVIDIA, LLVM IR for AMD.

    `fused` are AMD's machine instructions that multiply and add, by place, which LLVM IR does not show.
    `unwritten` are NVIDIA's that read a register which nothing wrote, None where nobody could look.
    `written` maps the number of a pointer parameter to the outputs it was seen to point to: none for
    memory of the launcher's own, which is taken to end up in every output.
    """

    spec: KernelSpec
    nvidia: bool
    asked: tuple[Op, ...]
    code: Code
    written: dict[int, set[str]]
    fused: dict[Place, str]
    unwritten: tuple[Unwritten, ...] | None
    verdict: Callable[[Conversion], Verdict | NotModelled]

    @property
    def every(self) -> Outputs:
        """All outputs."""
        return frozenset(self.spec.bounds)

    @cached_property
    def exact(self) -> Outputs:
        """The outputs that must have exact bits."""
        return frozenset(n for n, bound in self.spec.bounds.items() if isinstance(bound, ExactBits))

    @cached_property
    def claimed(self) -> Outputs:
        """The outputs whose bits must not vary from run to run."""
        claim = self.spec.bitwise
        return frozenset() if claim is None else claim.outputs or self.every

    @cached_property
    def _reached(self) -> dict[int, Outputs]:
        found: dict[int, Outputs] = {}
        for store in self.code.stores:
            outputs = self.find_stored(store)
            for index in self.code.behind(store):
                found[index] = found.get(index, frozenset()) | outputs
        return found

    def find_stored(self, store: Instruction) -> Outputs:
        """The outputs that a store, reduction or atomic writes."""
        pointers = [n for n in self.code.targets(store) if n in self.written]
        outputs = frozenset(name for n in pointers for name in self.written[n])
        return outputs if outputs and all(self.written[n] for n in pointers) else self.every

    def find_reached(self, instruction: Instruction) -> Outputs:
        """The outputs that depend on an instruction."""
        return self._reached.get(instruction.index, frozenset())

    def find_reached_from(self, place: Place | None) -> Outputs:
        """The outputs that depend on what stands at a place; all where the code shows nothing of it."""
        found = [self.find_reached(i) for i in self.code.at(place)] if place else []
        return frozenset[str]().union(*found) or self.every

    def list_asked_at(self, place: Place) -> set[str]:
        """The names of the operations asked for at a place."""
        return {op.name for op in self.asked if op.place == place}

    def exactly(self, instructions: Iterable[Instruction]) -> Iterator[tuple[Instruction, Outputs]]:
        """Those instructions that reach outputs which must have exact bits, with these outputs."""
        for instruction in instructions:
            outputs = self.find_reached(instruction) & self.exact
            if outputs:
                yield instruction, outputs
