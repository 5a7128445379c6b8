"""How products of fp8 are summed, which tile and warps decide: other specialisations may sum otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bitproof.harness.lowering.readers.code import Instruction
from bitproof.harness.lowering.rules.evidence import Evidence, Subject

# By the opcode of a product, how its terms are summed (docs/tensor-cores.md).
_SUMS = {
    re.compile(r"(wgmma\.mma_async|mma\.sync).*\.(e4m3|e5m2)"): "in 14 bits",
    re.compile(r"(wgmma\.mma_async|mma\.sync).*\.(f16|bf16)"): "in 24 bits, widened first",
}

FALLS_SHORT = (
    "at K = 4096 a sum of terms from 0 to 1 falls short by 6.6 %, by 0.05 % if promoted each 128"
)
"""Of fp8 sums in 14 bits; `tests.harness.lowering.test_summing` computes both numbers."""


def find_changes(subjects: Sequence[Subject]) -> Iterator[tuple[int, Evidence]]:
    """(number of a subject, evidence) where specialisations of one function sum fp8 products differently.

    One for each product, of the first specialisation that differs from those before it.
    """
    manners: dict[str, set[str]] = {}
    for number, subject in enumerate(subjects):
        for source, manner, instruction in _find_sums(subject):
            earlier = manners.setdefault(source, set())
            if earlier and manner not in earlier:
                yield (
                    number,
                    Evidence(
                        where=instruction.where,
                        instruction=instruction.opcode,
                        detail=f"products of fp8 are summed {manner} here and {min(earlier)} in another "
                        f"specialisation, so that tile and warps change bits; in 14 bits, {FALLS_SHORT}",
                        outputs=subject.find_reached(instruction) or subject.every,
                    ),
                )
            earlier.add(manner)


def _find_sums(subject: Subject) -> Iterator[tuple[str, str, Instruction]]:
    """(place in the source, how it is summed, instruction) of each product of fp8."""
    for op in subject.asked:
        if op.dot is None or not op.dot[0].startswith("f8") or op.place is None:
            continue
        for instruction in subject.code.at(op.place):
            for opcode, manner in _SUMS.items():
                if opcode.match(instruction.opcode):
                    yield str(op.place), manner, instruction
                    break
