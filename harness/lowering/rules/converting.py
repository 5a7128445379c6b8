"""How hazards of conversions are found: by what is asked for and what each conversion really does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bitproof.harness.lowering.conversions import Conversion, Verdict, Wrong, widens
from bitproof.harness.lowering.emulator.memory import NotModelled
from bitproof.harness.lowering.readers.ttir import Op
from bitproof.harness.lowering.rules.evidence import Evidence, Subject


def _conversions(subject: Subject) -> Iterator[tuple[Op, Conversion, Verdict]]:
    """Every conversion of floats that is asked for and has a verdict."""
    for op in subject.asked:
        conversion = op.conversion
        if conversion is not None and conversion.source != conversion.target:
            verdict = subject.verdict(conversion)
            if isinstance(verdict, Verdict):
                yield op, conversion, verdict


def make_finder(kinds: tuple[str, ...]) -> Callable[[Subject], Iterator[Evidence]]:
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
                    outputs=subject.find_reached_from(op.place),
                    conversion=str(conversion),
                    wrong=count,
                )

    return find


def rounds_twice(subject: Subject) -> Iterator[Evidence]:
    """Conversions by way of another format: the target's own, and those that the kernel asks for."""
    yield from make_finder(("beside",))(subject)
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
            outputs=subject.find_reached_from(op.place),
            conversion=f"{first}, then {second}",
        )


_BEYOND = {
    "saturate": "the largest value",
    "inf": "infinity",
    "nan": "NaN",
    "mixed": "now one thing, now another",
}


def overflow(subject: Subject) -> Iterator[Evidence]:
    """Overflows that go elsewhere than declared, or now here, now there."""
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
                outputs=subject.find_reached_from(op.place),
                conversion=str(conversion),
                wrong=verdict.strayed.count if verdict.strayed else 0,
            )


def find_not_analysed(subject: Subject) -> Iterator[Evidence]:
    """Conversions of which nothing is known, assembly in the kernel, machine code that cannot be read."""
    if subject.unwritten is None:
        yield Evidence(
            where=(),
            instruction="wgmma",
            detail="machine code: no nvdisasm reads it, neither Triton's nor that at TRITON_NVDISASM_PATH",
            outputs=subject.every,
        )
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
            outputs=subject.find_reached_from(op.place),
            conversion=str(op.conversion or ""),
        )
