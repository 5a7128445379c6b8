"""The hazards, as data: what each is called, what it means, where to read on, and how it is found.

To add one: a name in `harness.targets.hazards`, an entry here, and in `tests/harness/lowering` a kernel that
shows it and one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bitproof.harness.lowering.rules import computing, converting, summing
from bitproof.harness.lowering.rules.evidence import Evidence, Subject
from bitproof.harness.targets.hazards import HAZARDS


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One hazard. `explanation` is a sentence, `link` where it is documented or was reported.

    `find` looks at one specialisation; `compare`, where there is one, at all those of a function together.
    """

    name: str
    explanation: str
    link: str
    find: Callable[[Subject], Iterator[Evidence]] | None = None
    compare: Callable[[Sequence[Subject]], Iterator[tuple[int, Evidence]]] | None = None


_CVT = "https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt"
_FLOATS = "https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions"
_FP8 = "https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1"

RULES: tuple[Rule, ...] = (
    Rule(
        name="approximation",
        explanation="Division, roots, exponentials and the like come from units that are off by an "
        "ulp or two, so that an output which must have exact bits may not have them.",
        link=f"{_FLOATS}-div",
        find=computing.approximations,
    ),
    Rule(
        name="changed sums",
        explanation="A product is summed otherwise in one specialisation than in another, so that a tile or "
        "a number of warps changes its bits.",
        link="https://arxiv.org/abs/2511.10909",
        compare=summing.find_changes,
    ),
    Rule(
        name="contraction",
        explanation="A product and a sum became one fused operation, which rounds once where the "
        "kernel asks for two roundings.",
        link="https://docs.nvidia.com/cuda/floating-point/",
        find=computing.contractions,
    ),
    Rule(
        name="float atomics",
        explanation="Floats are summed by atomic operations in the order in which programs arrive, in "
        "an output that is claimed to be reproducible.",
        link="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#atomic-functions",
        find=computing.atomics,
    ),
    Rule(
        name="flushed subnormals",
        explanation="Subnormal inputs or results count as zero, so that an output which must have "
        "exact bits may not have them.",
        link=_FLOATS,
        find=computing.flushes,
    ),
    Rule(
        name="lost specials",
        explanation="A conversion turns infinity or NaN into a number, so that what went wrong before "
        "no longer shows.",
        link="https://github.com/triton-lang/triton/pull/11784",
        find=converting.make_finder(("nan", "infinity")),
    ),
    Rule(
        name="not analysed",
        explanation="Code that no rule understands: it may be right, nothing here says so.",
        link="",
        find=converting.find_not_analysed,
    ),
    Rule(
        name="overflow policy",
        explanation="What a conversion makes of values beyond the largest is not what the spec "
        "declares, or is not one thing.",
        link=_FP8,
        find=converting.overflow,
    ),
    Rule(
        name="reduced products",
        explanation="Products are formed or summed with fewer bits than their operands have, without "
        "the spec saying so.",
        link="https://triton-lang.org/main/python-api/generated/triton.language.dot.html",
        find=computing.products,
    ),
    Rule(
        name="rounding twice",
        explanation="A conversion rounds by way of another format: what lies close to halfway "
        "between two values may go to the farther one.",
        link="https://github.com/triton-lang/triton/pull/11753",
        find=converting.rounds_twice,
    ),
    Rule(
        name="ties away",
        explanation="A conversion takes what lies halfway between two values away from zero, or else "
        "to the odd one, where the even one is right.",
        link="https://github.com/triton-lang/triton/issues/5925",
        find=converting.make_finder(("ties",)),
    ),
    Rule(
        name="undefined register",
        explanation="The assembler lost what makes a value, such as the address of a matrix product's "
        "operand. ptxas 12.8 has been seen to, 12.9 has not: use Triton 3.8 or newer, or name a newer ptxas "
        "by TRITON_PTXAS_PATH.",
        link="https://github.com/fla-org/flash-linear-attention/pull/1262",
        find=computing.find_undefined,
    ),
    Rule(
        name="uninitialised store",
        explanation="What is stored was never written: it is whatever the register held.",
        link="https://llvm.org/docs/LangRef.html#undefined-values",
        find=computing.find_uninitialised,
    ),
    Rule(
        name="wrong conversion",
        explanation="A conversion gives another number than rounding does, and not only close to "
        "halfway between two.",
        link=_CVT,
        find=converting.make_finder(("far", "zero")),
    ),
)
assert tuple(rule.name for rule in RULES) == HAZARDS


def find(subject: Subject) -> Iterator[tuple[str, Evidence]]:
    """Every hazard in one compiled kernel, by name."""
    for rule in RULES:
        for evidence in rule.find(subject) if rule.find else ():
            yield rule.name, evidence


def find_across(subjects: Sequence[Subject]) -> Iterator[tuple[str, int, Evidence]]:
    """Every hazard, by name, that specialisations of one function show together; the number is of one."""
    for rule in RULES:
        for number, evidence in rule.compare(subjects) if rule.compare else ():
            yield rule.name, number, evidence
