"""Reads the code of one kernel for the target of this process."""

from __future__ import annotations

import dataclasses
import time

import triton

from bitproof.harness.lowering.emulator.memory import NotModelled
from bitproof.harness.lowering.findings import Hazard, Reading
from bitproof.harness.lowering.probe import verdict
from bitproof.harness.lowering.readers import amdgcn, llir, ptx, sass, ttir
from bitproof.harness.lowering.rules import computing
from bitproof.harness.lowering.rules import table as rules
from bitproof.harness.lowering.rules.evidence import Evidence, Subject
from bitproof.harness.lowering.specialisations import Compiled, compile_reached
from bitproof.harness.spec import KernelSpec
from bitproof.harness.targets.architectures import Target


def read(spec: KernelSpec, target: Target, *, examples: int) -> Reading:
    """Compile `spec`'s kernels for what up to `examples` drawn cases reach, and apply every rule."""
    began = time.perf_counter()
    reached = compile_reached(spec, target, examples=examples)
    hazards: dict[tuple[str, ...], Hazard] = {}
    conversions, atomics = set[str](), set[str]()
    functions: dict[str, list[tuple[Subject, Compiled]]] = {}
    for compiled in reached.compiled:
        subject = subject_of(spec, target, compiled)
        functions.setdefault(compiled.function, []).append((subject, compiled))
        conversions.update(_conversions(subject))
        atomics.update(
            name for store in computing.sums(subject) for name in subject.find_stored(store)
        )
        for key, hazard in _hazards(subject, compiled).items():
            earlier = hazards.get(key)
            hazards[key] = hazard if earlier is None else _count_again(earlier, hazard)
    for function, made in functions.items():
        for name, number, evidence in rules.find_across([subject for subject, _ in made]):
            key = (name, function, evidence.source, evidence.detail)
            hazards[key] = _hazard(name, evidence, made[number][1])
    return Reading(
        kernel=spec.name,
        target=target.name,
        triton=triton.__version__,
        reached=len(reached.specialisations),
        compiled=len(reached.compiled),
        unseen=reached.unseen,
        hazards=tuple(hazards[key] for key in sorted(hazards)),
        refusals=tuple(reached.refusals.values()),
        uncompiled=reached.uncompiled,
        unlaunched=reached.unlaunched,
        conversions=tuple(sorted(conversions)),
        atomics=tuple(sorted(atomics)),
        seconds=round(time.perf_counter() - began, 3),
    )


def subject_of(spec: KernelSpec, target: Target, compiled: Compiled) -> Subject:
    """One compiled kernel as the rules see it."""
    nvidia = target.backend == "cuda"
    texts = compiled.texts
    return Subject(
        spec=spec,
        nvidia=nvidia,
        asked=ttir.parse(texts["ttir"]),
        code=ptx.parse(texts["ptx"]) if nvidia else llir.parse(texts["llir"]),
        written=compiled.written,
        fused={} if nvidia else amdgcn.find_fused(texts["amdgcn"]),
        unwritten=_find_unwritten(target, compiled),
        verdict=verdict,
    )


def _find_unwritten(target: Target, compiled: Compiled) -> tuple[sass.Unwritten, ...] | None:
    """What sm_90's machine code reads of registers never written, where it multiplies matrices by wgmma."""
    if target.arch != 90 or "wgmma" not in compiled.texts["ptx"]:
        return ()
    text = sass.disassemble(compiled.cubin) if compiled.cubin else None
    return None if text is None else sass.find_unwritten(text)


def _hazards(subject: Subject, compiled: Compiled) -> dict[tuple[str, ...], Hazard]:
    """What the rules find in one specialisation, once for each name, place and detail."""
    found: dict[tuple[str, ...], Hazard] = {}
    for name, evidence in rules.find(subject):
        key = (name, compiled.function, evidence.source, evidence.detail)
        hazard = _hazard(name, evidence, compiled)
        earlier = found.get(key)
        found[key] = hazard if earlier is None else _unite(earlier, hazard)
    return found


def _hazard(name: str, evidence: Evidence, compiled: Compiled) -> Hazard:
    return Hazard(
        name=name,
        function=compiled.function,
        source=evidence.source,
        instruction=evidence.instruction,
        detail=evidence.detail,
        outputs=tuple(sorted(evidence.outputs)),
        conversion=evidence.conversion,
        wrong=evidence.wrong,
        first=compiled.variant,
    )


def _unite(earlier: Hazard, later: Hazard) -> Hazard:
    outputs = tuple(sorted({*earlier.outputs, *later.outputs}))
    return dataclasses.replace(earlier, outputs=outputs)


def _count_again(earlier: Hazard, later: Hazard) -> Hazard:
    both = _unite(earlier, later)
    return dataclasses.replace(both, variants=earlier.variants + 1)


def _conversions(subject: Subject) -> list[str]:
    """Each conversion that is asked for, with what is known of it."""
    told = []
    for op in subject.asked:
        conversion = op.conversion
        if conversion is None or conversion.source == conversion.target:
            continue
        answer = subject.verdict(conversion)
        if isinstance(answer, NotModelled):
            told.append(f"{conversion}: not analysed, no model of {answer}")
        else:
            wrong = f"wrong on {answer.wrong} of {answer.tried} inputs that decide"
            right = f"right on all {answer.tried} inputs that decide"
            policy = f", {answer.overflow} on overflow" if answer.overflow else ""
            found = wrong if answer.wrong else right
            told.append(f"{conversion}: {answer.chain}, {found}{policy}")
    return told
