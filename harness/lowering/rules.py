"""The hazards, as data: what each is called, what it means, where to read on, and how it is found.

To add one: a name in `harness.spec.HAZARDS`, an entry here, and in `tests/lowering` a kernel that shows it
and one that does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.lowering.code import Instruction
from harness.lowering.conversions import Conversion, Verdict, Wrong, widens
from harness.lowering.memory import NotModelled
from harness.lowering.subject import Evidence, Subject
from harness.lowering.ttir import Op
from harness.spec import HAZARDS


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One hazard. `explanation` is a sentence, `link` where it is documented or was reported."""

    name: str
    explanation: str
    link: str
    find: Callable[[Subject], Iterator[Evidence]]


def _conversions(subject: Subject) -> Iterator[tuple[Op, Conversion, Verdict]]:
    """Every conversion of floats that is asked for and has a verdict."""
    for op in subject.asked:
        conversion = op.conversion
        if conversion is not None and conversion.source != conversion.target:
            verdict = subject.verdict(conversion)
            if isinstance(verdict, Verdict):
                yield op, conversion, verdict


def _judged(kinds: tuple[str, ...]) -> Callable[[Subject], Iterator[Evidence]]:
    """A hazard of conversions: what a verdict counts under any of these kinds."""

    def find(subject: Subject) -> Iterator[Evidence]:
        for op, conversion, verdict in _conversions(subject):
            wrong: list[Wrong] = [
                getattr(verdict, kind) for kind in kinds if getattr(verdict, kind)
            ]
            if wrong:
                count = sum(each.count for each in wrong)
                yield Evidence(
                    where=op.where,
                    instruction=verdict.chain,
                    detail=f"{conversion}: {wrong[0]} ({count} of {verdict.tried} inputs that decide)",
                    outputs=subject.reached_from(op.place),
                )

    return find


def _rounds_twice(subject: Subject) -> Iterator[Evidence]:
    yield from _judged(("beside",))(subject)
    made = {name: op for op in subject.asked for name in op.results}
    for op in subject.asked:
        second = op.conversion
        earlier = made.get(op.operands[0]) if second is not None and op.operands else None
        first = earlier.conversion if earlier is not None else None
        if second is None or first is None or widens(first) or widens(second):
            continue
        yield Evidence(
            where=op.where,
            instruction=" then ".join(o.name for o in (earlier, op) if o is not None),
            detail=f"the kernel itself asks for {first}, then {second}",
            outputs=subject.reached_from(op.place),
        )


_BEYOND = {
    "saturate": "the largest value",
    "inf": "infinity",
    "nan": "NaN",
    "mixed": "now one thing, now another",
}


def _overflow(subject: Subject) -> Iterator[Evidence]:
    declared = subject.spec.elementwise
    for op, conversion, verdict in _conversions(subject):
        concerned = declared is not None and declared.format == conversion.target
        wanted = declared.overflow if declared is not None and concerned else verdict.overflow
        if verdict.overflow == "mixed" or (verdict.overflow and verdict.overflow != wanted):
            example = f": {verdict.strayed}" if verdict.strayed else ""
            policy = f", declared is {wanted}" if concerned else ""
            yield Evidence(
                where=op.where,
                instruction=verdict.chain,
                detail=f"{conversion}: beyond the largest value comes {_BEYOND[verdict.overflow]}"
                f"{example}{policy}",
                outputs=subject.reached_from(op.place),
            )


_SUMS = re.compile(
    r"(atom|red)\..*\badd(\.noftz)?\.(f16|bf16|f32|f64|f16x2|bf16x2)$"
    r"|atomicrmw fadd|.*buffer\.atomic\.(fadd|pk\.add)|.*global\.atomic\.fadd"
)
_SWAPS = re.compile(r"atom\..*\bcas\.|cmpxchg")
_FLOAT_SUM = re.compile(r"(add|sub|fma)\..*(f16|f32|f64)|f(add|sub)$")


def _atomics(subject: Subject) -> Iterator[Evidence]:
    for store in subject.code.stores:
        swaps = _SWAPS.match(store.opcode) is not None
        if swaps:
            behind = (subject.code.instructions[i] for i in subject.code.behind(store))
            swaps = any(_FLOAT_SUM.match(instruction.opcode) for instruction in behind)
        outputs = subject.stored(store) & subject.claimed
        if outputs and (swaps or _SUMS.match(store.opcode)):
            yield Evidence(
                where=store.where,
                instruction=store.opcode,
                detail="sums depend on the order in which programs arrive",
                outputs=outputs,
            )


_APPROXIMATE = re.compile(
    r"(div|rcp|sqrt|rsqrt|sin|cos|lg2|ex2|tanh)\.(approx|full)"
    r"|llvm\.amdgcn\.(rcp|rsq|sqrt|exp2|log|sin|cos)\b"
    r"|llvm\.(exp|exp2|exp10|log|log2|log10|sin|cos|tan|pow)\."
)
_RELAXED_DIVISION = re.compile(r"fdiv .*\b(afn|arcp|fast)\b")
# What Triton's IR asks for and no target rounds correctly.
_INEXACT = re.compile(r"math\.(exp|exp2|log|log2|sin|cos|tan|tanh|erf|rsqrt|pow|cbrt)$")
_EXACT_LIBRARY = re.compile(
    r"_(?:_nv_f?|_ocml_)?(abs|floor|ceil|trunc|rint|round|nearbyint|fma|min|max|copysign|isnan|isinf"
    r"|signbit|div_r.|sqrt_r.|rcp_r.|add_r.|mul_r.|sub_r.|\w+_as_\w+)"
)


def _approximations(subject: Subject) -> Iterator[Evidence]:
    told = set()
    for instruction, outputs in subject.exactly(subject.code.instructions):
        if _APPROXIMATE.match(instruction.opcode) or _RELAXED_DIVISION.search(instruction.text):
            told.add(instruction.where[:1])
            yield Evidence(
                where=instruction.where,
                instruction=instruction.opcode,
                detail="an approximate result in an output that must have exact bits",
                outputs=outputs,
            )
    for op in subject.asked:
        symbol = re.search(r'symbol = "(\w+)"', op.text)
        inexact = _INEXACT.match(op.name) or (symbol and not _EXACT_LIBRARY.search(symbol[1]))
        outputs = subject.reached_from(op.place) & subject.exact
        if inexact and outputs and op.where[:1] not in told:
            yield Evidence(
                where=op.where,
                instruction=symbol[1] if symbol else op.name,
                detail="a library function that does not round correctly, in an exact output",
                outputs=outputs,
            )


def _flushes(subject: Subject) -> Iterator[Evidence]:
    for instruction, outputs in subject.exactly(subject.code.instructions):
        if ".ftz" in instruction.opcode:
            yield Evidence(
                where=instruction.where,
                instruction=instruction.opcode,
                detail="subnormal numbers count as zero in an output that must have exact bits",
                outputs=outputs,
            )


_PRODUCT = re.compile(r"mma|wgmma|tcgen05\.mma|llvm\.amdgcn\.\w*(mfma|wmma)")
_REDUCED = re.compile(r"\.(tf32|xf32|bf16|bf16x2|f16)\b|kind::(tf32|f16)")
_FP8_SUM = re.compile(r"(wgmma\.mma_async|mma\.sync).*\.(e4m3|e5m2)")


def _products(subject: Subject) -> Iterator[Evidence]:
    allowed = subject.spec.lowering.products
    cores = [i for i in subject.code.instructions if _PRODUCT.match(i.opcode)]
    reduced = next((i.opcode for i in cores if _REDUCED.search(i.opcode)), "")
    for op in subject.asked:
        element, precision = op.dot or ("", "")
        if element == "f32" and precision not in ("ieee", *allowed) and reduced:
            yield Evidence(
                where=op.where,
                instruction=reduced,
                detail=f"products of fp32 operands in {precision}, which the spec does not declare",
                outputs=subject.reached_from(op.place),
            )
    for core in cores:
        if _FP8_SUM.match(core.opcode) and "fp8 sums" not in allowed:
            yield Evidence(
                where=core.where,
                instruction=core.opcode,
                detail='products of fp8 are summed with about 14 bits (declare "fp8 sums")',
                outputs=subject.reached(core) or subject.every,
            )


_FMA = re.compile(r"fma\.rn\.(f16|bf16|f32|f64|f16x2|bf16x2|f32x2)$")
_FREE_PRODUCT = re.compile(r"mul\.(f16|bf16|f32|f64|f16x2|bf16x2)$")
_FREE_SUM = re.compile(r"(add|sub)\.(f16|bf16|f32|f64|f16x2|bf16x2)$")
_ASKED_SUMS = {"arith.addf", "arith.subf"}


def _contractions(subject: Subject) -> Iterator[Evidence]:
    if not subject.nvidia:
        yield from _contracted_by_amd(subject)
        return
    code = subject.code
    for instruction, outputs in subject.exactly(code.instructions):
        fused = _FMA.match(instruction.opcode) and _only_sums(subject, instruction)
        products = [
            code.instructions[index].opcode
            for name in instruction.ins
            for index in code.writers.get(name, ())
            if _FREE_SUM.match(instruction.opcode)
            and _FREE_PRODUCT.match(code.instructions[index].opcode)
        ]
        if fused or products:
            yield Evidence(
                where=instruction.where,
                instruction=" then ".join([*products[:1], instruction.opcode]),
                detail="a product and a sum with one rounding, where the kernel asks for two",
                outputs=outputs,
            )


def _only_sums(subject: Subject, instruction: Instruction) -> bool:
    """Whether the kernel asks for a sum, and for nothing that has a fused one, where this stands."""
    if not instruction.where or not instruction.where[0].line:
        return any(op.name == "arith.mulf" for op in subject.asked)
    asked = subject.asked_at(instruction.where[0])
    others = {name for name in asked if name.startswith(("math.", "tt.dot", "tt.extern"))}
    return bool(asked & _ASKED_SUMS) and not others


def _contracted_by_amd(subject: Subject) -> Iterator[Evidence]:
    sums = [i for i in subject.code.instructions if i.opcode in ("fadd", "fsub") and i.where]
    for instruction, outputs in subject.exactly(sums):
        fused = subject.fused.get(instruction.where[0])
        if fused and _only_sums(subject, instruction):
            yield Evidence(
                where=instruction.where,
                instruction=fused.split()[0],
                detail="a product and a sum with one rounding, where the kernel asks for two",
                outputs=outputs,
            )


_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid|laneid|warpid|clock|SP|envreg)|\(")


def _uninitialised(subject: Subject) -> Iterator[Evidence]:
    for store in subject.code.stores:
        values = [name for name in store.ins if name not in store.address]
        if subject.nvidia:
            empty = any(_never_written(subject, name) for name in values)
        else:
            first = store.text[store.text.find("(") + 1 :] if "(" in store.text else store.text
            empty = re.match(r"(store )?[\w<> ]+ (undef|poison),", first) is not None
        if empty:
            yield Evidence(
                where=store.where,
                instruction=store.text,
                detail="the stored register is never written",
                outputs=subject.stored(store),
            )


def _never_written(subject: Subject, name: str) -> bool:
    """Whether a register has no writer, or only moves from such ones."""
    for _ in range(64):
        if _SPECIAL.match(name):
            return False
        writers = [subject.code.instructions[i] for i in subject.code.writers.get(name, ())]
        if not writers:
            return True
        only = writers[0]
        moved = re.match(r"mov\.[bu](16|32|64)$", only.opcode) and len(only.ins) == 1
        if len(writers) > 1 or not moved:
            return False
        name = only.ins[0]
    return False


def _not_analysed(subject: Subject) -> Iterator[Evidence]:
    for op in subject.asked:
        if op.name == "tt.elementwise_inline_asm":
            what, why = "inline assembly", "nothing reads what it computes"
        elif op.converted is None or op.name == "arith.extf":
            continue
        elif op.conversion is None:
            what, why = " to ".join(op.converted), "no format of that name is known"
        else:
            verdict = subject.verdict(op.conversion)
            if not isinstance(verdict, NotModelled):
                continue
            what, why = str(op.conversion), f"no model of {verdict}"
        yield Evidence(
            where=op.where,
            instruction=what,
            detail=f"{what}: {why}",
            outputs=subject.reached_from(op.place),
        )


_CVT = "https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt"
_FLOATS = "https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions"
_FP8 = "https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1"

RULES: tuple[Rule, ...] = (
    Rule(
        name="approximation",
        explanation="Division, roots, exponentials and the like come from units that are off by an "
        "ulp or two, so that an output which must have exact bits may not have them.",
        link=f"{_FLOATS}-div",
        find=_approximations,
    ),
    Rule(
        name="contraction",
        explanation="A product and a sum became one fused operation, which rounds once where the "
        "kernel asks for two roundings.",
        link="https://docs.nvidia.com/cuda/floating-point/",
        find=_contractions,
    ),
    Rule(
        name="float atomics",
        explanation="Floats are summed by atomic operations in the order in which programs arrive, in "
        "an output that is claimed to be reproducible.",
        link="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#atomic-functions",
        find=_atomics,
    ),
    Rule(
        name="flushed subnormals",
        explanation="Subnormal inputs or results count as zero, so that an output which must have "
        "exact bits may not have them.",
        link=_FLOATS,
        find=_flushes,
    ),
    Rule(
        name="lost specials",
        explanation="A conversion turns infinity or NaN into a number, so that what went wrong before "
        "no longer shows.",
        link="https://github.com/triton-lang/triton/pull/11784",
        find=_judged(("nan", "infinity")),
    ),
    Rule(
        name="not analysed",
        explanation="Code that no rule understands: it may be right, nothing here says so.",
        link="",
        find=_not_analysed,
    ),
    Rule(
        name="overflow policy",
        explanation="What a conversion makes of values beyond the largest is not what the spec "
        "declares, or is not one thing.",
        link=_FP8,
        find=_overflow,
    ),
    Rule(
        name="reduced products",
        explanation="Products are formed or summed with fewer bits than their operands have, without "
        "the spec saying so.",
        link="https://triton-lang.org/main/python-api/generated/triton.language.dot.html",
        find=_products,
    ),
    Rule(
        name="rounding twice",
        explanation="A conversion rounds by way of another format: what lies close to halfway "
        "between two values may go to the farther one.",
        link="https://github.com/triton-lang/triton/pull/11753",
        find=_rounds_twice,
    ),
    Rule(
        name="ties away",
        explanation="A conversion takes what lies halfway between two values away from zero, or else "
        "to the odd one, where the even one is right.",
        link="https://github.com/triton-lang/triton/issues/5925",
        find=_judged(("ties",)),
    ),
    Rule(
        name="uninitialised store",
        explanation="What is stored was never written: it is whatever the register held.",
        link="https://llvm.org/docs/LangRef.html#undefined-values",
        find=_uninitialised,
    ),
    Rule(
        name="wrong conversion",
        explanation="A conversion gives another number than rounding does, and not only close to "
        "halfway between two.",
        link=_CVT,
        find=_judged(("far", "zero")),
    ),
)
assert tuple(rule.name for rule in RULES) == HAZARDS


def find(subject: Subject) -> Iterator[tuple[str, Evidence]]:
    """Every hazard in one compiled kernel, by name."""
    for rule in RULES:
        for evidence in rule.find(subject):
            yield rule.name, evidence
