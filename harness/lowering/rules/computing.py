"""How hazards of arithmetic, atomics and stores are found: by opcodes, and by what they reach."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bitproof.harness.lowering.readers.code import Code, Instruction, Where
from bitproof.harness.lowering.rules.evidence import Evidence, Subject
from bitproof.harness.lowering.rules.summing import FALLS_SHORT

_SUMS = re.compile(
    r"(atom|red)\..*\badd(\.noftz)?(\.v\d)?\.(f16|bf16|f32|f64|f16x2|bf16x2)$"
    r"|cp\.reduce\.async\.bulk.*\.add\b"
    r"|atomicrmw fadd|.*buffer\.atomic\.(fadd|pk\.add)|.*global\.atomic\.fadd"
)
_SWAPS = re.compile(r"atom\..*\bcas\.|cmpxchg")
_FLOAT_SUM = re.compile(r"(add|sub|fma)\..*(f16|f32|f64)|f(add|sub)$")


def sums(subject: Subject) -> Iterator[Instruction]:
    """The instructions that sum floats into global memory atomically, compare-and-swap loops included."""
    for store in subject.code.stores:
        swaps = _SWAPS.match(store.opcode) is not None
        if swaps:
            behind = (subject.code.instructions[i] for i in subject.code.behind(store))
            swaps = any(_FLOAT_SUM.match(instruction.opcode) for instruction in behind)
        if swaps or _SUMS.match(store.opcode):
            yield store


def atomics(subject: Subject) -> Iterator[Evidence]:
    """Floats summed atomically into outputs that are claimed to be reproducible."""
    for store in sums(subject):
        outputs = subject.find_stored(store) & subject.claimed
        if outputs:
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


def approximations(subject: Subject) -> Iterator[Evidence]:
    """Approximate units and library functions that do not round correctly, in exact outputs."""
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
        outputs = subject.find_reached_from(op.place) & subject.exact
        if inexact and outputs and op.where[:1] not in told:
            yield Evidence(
                where=op.where,
                instruction=symbol[1] if symbol else op.name,
                detail="a library function that does not round correctly, in an exact output",
                outputs=outputs,
            )


def flushes(subject: Subject) -> Iterator[Evidence]:
    """Arithmetic that takes subnormals for zero, in exact outputs."""
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


def products(subject: Subject) -> Iterator[Evidence]:
    """Products of fp32 in fewer bits than declared, and fp8 products summed in few bits."""
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
                outputs=subject.find_reached_from(op.place),
            )
    for core in cores:
        if _FP8_SUM.match(core.opcode) and "fp8 sums" not in allowed:
            yield Evidence(
                where=core.where,
                instruction=core.opcode,
                detail=f'products of fp8 are summed in 14 bits: {FALLS_SHORT} (declare "fp8 sums")',
                outputs=subject.find_reached(core) or subject.every,
            )


_FMA = re.compile(r"fma\.rn\.(f16|bf16|f32|f64|f16x2|bf16x2|f32x2)$")
_FREE_PRODUCT = re.compile(r"mul\.(f16|bf16|f32|f64|f16x2|bf16x2|f32x2)$")
_FREE_SUM = re.compile(r"(add|sub)\.(f16|bf16|f32|f64|f16x2|bf16x2|f32x2)$")
_ASKED_SUMS = {"arith.addf", "arith.subf"}


def contractions(subject: Subject) -> Iterator[Evidence]:
    """Products and sums fused into one operation, in exact outputs."""
    if not subject.nvidia:
        yield from _find_contracted_by_amd(subject)
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
    asked = subject.list_asked_at(instruction.where[0])
    others = {name for name in asked if name.startswith(("math.", "tt.dot", "tt.extern"))}
    return bool(asked & _ASKED_SUMS) and not others


def _find_contracted_by_amd(subject: Subject) -> Iterator[Evidence]:
    code = subject.code
    sums_of_products = [
        i
        for i in code.instructions
        if i.opcode in ("fadd", "fsub") and i.where and any(_product(code, n) for n in i.ins)
    ]
    for instruction, outputs in subject.exactly(sums_of_products):
        fused = subject.fused.get(instruction.where[0])
        if fused and _only_sums(subject, instruction):
            yield Evidence(
                where=instruction.where,
                instruction=fused.split()[0],
                detail="a product and a sum with one rounding, where the kernel asks for two",
                outputs=outputs,
            )


def _product(code: Code, name: str) -> bool:
    """Whether a value is a product of floats, or one taken apart, put together or negated."""
    for _ in range(8):
        writers = [code.instructions[i] for i in code.writers.get(name, ())]
        if len(writers) != 1:
            return False
        if writers[0].opcode == "fmul":
            return True
        if writers[0].opcode not in ("fneg", "extractelement", "bitcast") or not writers[0].ins:
            return False
        name = writers[0].ins[0]
    return False


_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid|laneid|warpid|clock|SP|envreg)|\(")


def find_uninitialised(subject: Subject) -> Iterator[Evidence]:
    """Stores of registers that nothing writes."""
    for store in subject.code.stores:
        values = [name for name in store.ins if name not in store.address]
        if subject.nvidia:
            empty = any(_is_never_written(subject, name) for name in values)
        else:
            first = store.text[store.text.find("(") + 1 :] if "(" in store.text else store.text
            empty = re.match(r"(store )?[\w<> ]+ (undef|poison),", first) is not None
        if empty:
            yield Evidence(
                where=store.where,
                instruction=store.text,
                detail="the stored register is never written",
                outputs=subject.find_stored(store),
            )


def find_undefined(subject: Subject) -> Iterator[Evidence]:
    """Machine instructions that read a register before anything can have written it.

    Not those from lines where PTX reads such a register already: compilers pad half a pair with one, and
    never look at that half.
    """
    left = set(_find_left_undefined(subject.code)) if subject.unwritten else set()
    for found in subject.unwritten or ():
        if _line(found.where) not in left:
            yield Evidence(
                where=found.where,
                instruction=found.instruction,
                detail="reads a uniform register that nothing has written",
                outputs=subject.every,
            )


def _find_left_undefined(code: Code) -> Iterator[tuple[str, int]]:
    """The lines from which PTX reads registers that nothing writes, or what was moved out of such ones."""
    moved = set[str]()
    for instruction in code.instructions:
        if any(
            name in moved
            or (name.startswith("%") and name not in code.writers and not _SPECIAL.match(name))
            for name in instruction.ins
        ):
            yield _line(instruction.where)
            if instruction.opcode.startswith("mov."):
                moved.update(instruction.outs)


def _line(where: Where) -> tuple[str, int]:
    return (where[0].file, where[0].line) if where else ("", 0)


def _is_never_written(subject: Subject, name: str) -> bool:
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
