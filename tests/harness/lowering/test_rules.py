"""Every hazard shows in a kernel that has it, and not in one that has not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from bitproof.harness.lowering import report
from bitproof.harness.lowering.emulator.memory import NotModelled
from bitproof.harness.lowering.findings import Reading
from bitproof.harness.lowering.readers import llir
from bitproof.harness.lowering.rules import table as rules
from bitproof.harness.lowering.rules.evidence import Subject
from bitproof.harness.outcomes import Outcome
from bitproof.harness.spec import Accepted, Lowering
from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.harness.targets.hazards import HAZARDS
from tests.harness.lowering.hazards import PAIRS

Read = Callable[[str, str], Reading]


@pytest.mark.parametrize(("hazard", "target", "shows", "lacks"), PAIRS)
def test_a_hazard_is_found_where_it_is_and_nowhere_else(
    read: Read, hazard: str, target: str, shows: str, lacks: str
) -> None:
    """The one kernel's reading names the hazard, the other's does not."""
    assert hazard in names(read(shows, target))
    assert hazard not in names(read(lacks, target))


def test_every_hazard_is_explained() -> None:
    """Each rule is a name that specs may use, a sentence, and a link where there is something to read."""
    assert [rule.name for rule in rules.RULES] == list(HAZARDS)
    for rule in rules.RULES:
        assert rule.explanation.endswith(".")
        assert rule.link.startswith("https://") or rule.name == "not analysed"


def test_a_conversion_says_on_how_many_inputs_it_is_wrong(read: Read) -> None:
    """Of those that were tried, and not the number of those tried alone; a right one is right on all."""
    by_kernel = {name: read(name, "sm_90").conversions for name in ("fp32_to_e4m3", "e5m2_to_bf16")}
    assert [line.split(", ")[1] for line in by_kernel["fp32_to_e4m3"]] == [
        "right on all 2070 inputs that decide"
    ]
    assert [line.split(", ")[-1] for line in by_kernel["e5m2_to_bf16"]] == [
        "wrong on 8 of 256 inputs that decide"
    ]


def test_a_hazard_names_its_line_and_instruction(read: Read) -> None:
    """The division's hazard points at the line that divides and at div.full."""
    (found,) = [h for h in read("divides", "sm_90").hazards if h.name == "approximation"]
    path, line = found.source.rsplit(":", 1)
    with open(path, encoding="utf-8") as source:
        assert "tl.load(x + i) / tl.load(w + i)" in source.readlines()[int(line) - 1]
    assert found.instruction == "div.full.f32"
    assert found.outputs == ("y",)


def test_only_the_output_that_is_reached_counts(read: Read) -> None:
    """An approximate division in an output with a looser bound is no hazard of the exact one beside it."""
    assert names(read("one_output_of_two_approximate", "sm_90")) == set()


def test_a_workspace_counts_as_every_output(read: Read) -> None:
    """What is summed atomically into memory of the launcher's own is held against the outputs."""
    (found,) = read("sums_into_a_workspace", "sm_90").hazards
    assert (found.function, found.outputs) == ("_sums_atomically", ("y",))


def test_a_refusal_is_one_sentence(read: Read) -> None:
    """sm_80 refuses e4m3, in the compiler's own words and without a hazard."""
    reading = read("fp32_to_e4m3", "sm_80")
    (refusal,) = reading.refusals
    assert refusal.sentence.startswith("type fp8e4nv not supported in this architecture")
    assert "\n" not in refusal.sentence
    assert (reading.compiled, reading.hazards) == (0, ())


def test_a_refusal_of_a_supported_target_falls_short(
    read: Read, kernel: Callable[[str], FoundSpec]
) -> None:
    """What a spec supports must compile; what it does not name may be refused."""
    reading, spec = read("fp32_to_e4m3", "sm_80"), kernel("fp32_to_e4m3").spec
    assert report.judge(reading, spec).outcome is Outcome.UNSUPPORTED
    supporting = dataclasses.replace(spec, lowering=Lowering(supports=("sm_80",)))
    assert report.judge(reading, supporting).outcome is Outcome.FAILED


def test_a_kernel_for_some_targets_alone_is_unsupported_on_others(
    kernel: Callable[[str], FoundSpec],
) -> None:
    """Nothing is read there, and the run's summary says why; elsewhere, and by default, it is read."""
    spec = kernel("adds").spec
    few = dataclasses.replace(spec, lowering=Lowering(supports=("sm_90",)))
    alone = dataclasses.replace(spec, lowering=Lowering(supports=("sm_90",), alone=True))
    assert report.find_excluded(few, "sm_80") is None
    assert report.find_excluded(alone, "sm_90") is None
    entry = report.find_excluded(alone, "sm_80")
    assert entry is not None
    assert (entry.check, entry.outcome) == ("lowering for sm_80", Outcome.UNSUPPORTED)
    assert entry.reasons == ["adds is for sm_90 alone"]


def test_an_accepted_hazard_no_longer_counts(
    read: Read, kernel: Callable[[str], FoundSpec]
) -> None:
    """A hazard that the spec accepts, for this target or for all, is told apart with its reason."""
    reading, spec = read("divides", "sm_90"), kernel("divides").spec
    assert report.judge(reading, spec).outcome is Outcome.FAILED
    for targets, outcome in (
        ((), Outcome.PASSED),
        (("sm_90",), Outcome.PASSED),
        (("sm_80",), Outcome.FAILED),
    ):
        known = Accepted(hazard="approximation", because="it is a test", targets=targets)
        accepting = dataclasses.replace(spec, lowering=Lowering(accepted=(known,)))
        judged = report.judge(reading, accepting)
        assert judged.outcome is outcome
        assert any("because it is a test" in line for line in report.lines(judged)) == (
            outcome is Outcome.PASSED
        )


def test_of_a_conversion_so_many_wrong_inputs_are_accepted_and_no_more(
    read: Read, kernel: Callable[[str], FoundSpec]
) -> None:
    """One wrong input more than declared, or another conversion, is not declared."""
    reading, spec = read("e5m2_to_bf16", "sm_90"), kernel("e5m2_to_bf16").spec
    for conversions, outcome in (
        ({"e5m2 to bf16": 8}, Outcome.PASSED),
        ({"e5m2 to bf16": 9, "fp32 to e4m3": 0}, Outcome.PASSED),
        ({"e5m2 to bf16": 7}, Outcome.FAILED),
        ({"e5m2 to fp16": 8}, Outcome.FAILED),
    ):
        known = Accepted(hazard="lost specials", because="it is a test", conversions=conversions)
        accepting = dataclasses.replace(spec, lowering=Lowering(accepted=(known,)))
        assert report.judge(reading, accepting).outcome is outcome


def test_what_no_rule_understands_is_never_clean(
    read: Read, kernel: Callable[[str], FoundSpec]
) -> None:
    """A kernel with assembly of its own is not analysed: neither clean nor a hazard."""
    judged = report.judge(read("has_assembly", "sm_90"), kernel("has_assembly").spec)
    assert judged.outcome is Outcome.NOT_DEMONSTRATED
    assert judged.word == "not analysed"
    known = Accepted(hazard="not analysed", because="it is a test")
    accepting = dataclasses.replace(
        kernel("has_assembly").spec, lowering=Lowering(accepted=(known,))
    )
    assert report.judge(read("has_assembly", "sm_90"), accepting).word == "1 accepted"


def test_every_configuration_of_an_autotuner_is_read(read: Read) -> None:
    """An autotuner that measures has all its configurations compiled, not one that it liked best."""
    reading = read("adds_tuned", "sm_90")
    assert (reading.reached, reading.compiled, reading.uncompiled) == (3, 3, 0)


def test_a_store_of_poison_is_uninitialised(kernel: Callable[[str], FoundSpec]) -> None:
    """In LLVM IR what was never written has a name of its own."""
    store = "call void @llvm.amdgcn.raw.ptr.buffer.store.f32(float {}, ptr addrspace(8) %1, i32 %2)"
    found = {}
    for value in ("poison", "%0"):
        text = f"define amdgpu_kernel void @_k(float %0) #0 {{\n  {store.format(value)}\n}}"
        subject = Subject(
            spec=kernel("adds").spec,
            nvidia=False,
            asked=(),
            code=llir.parse(text),
            written={},
            fused={},
            unwritten=(),
            verdict=lambda conversion: NotModelled("none"),
        )
        found[value] = [name for name, _ in rules.find(subject)]
    assert found == {"poison": ["uninitialised store"], "%0": []}


def test_what_comes_after_a_refused_kernel_is_read(read: Read) -> None:
    """A launcher of two kernels, the first refused: the second one's hazard is found all the same."""
    reading = read("refused_first", "sm_80")
    assert [refusal.variants for refusal in reading.refusals] == [1]
    assert (reading.compiled, reading.uncompiled) == (1, 0)
    assert names(reading) == {"approximation"}


def test_a_kernel_that_does_not_fit_is_refused(read: Read) -> None:
    """128 KiB of operands are too much for sm_86's shared memory, and not for sm_80's."""
    (refusal,) = read("needs_shared_memory", "sm_86").refusals
    assert "shared memory" in refusal.sentence
    assert refusal.variants == 1
    assert read("needs_shared_memory", "sm_80").refusals == ()


def test_a_kernel_that_compiled_nothing_is_not_clean(
    read: Read, kernel: Callable[[str], FoundSpec]
) -> None:
    """A launcher that launches nothing demonstrates nothing."""
    judged = report.judge(read("launches_nothing", "sm_90"), kernel("launches_nothing").spec)
    assert (judged.outcome, judged.word) == (Outcome.NOT_DEMONSTRATED, "nothing compiled")


def test_what_a_launcher_raises_over_its_missing_result_is_said(
    read: Read, kernel: Callable[[str], FoundSpec]
) -> None:
    """Nothing is computed, which a launcher may not bear; what it had compiled is read all the same."""
    reading = read("needs_its_result", "sm_90")
    assert reading.compiled == 1
    said = "\n".join(report.lines(report.judge(reading, kernel("needs_its_result").spec)))
    assert "its launcher raised" in said
    assert "the sum is not what it should be" in said


def names(reading: Reading) -> set[str]:
    """The hazards a reading names."""
    assert reading.unlaunched == ""
    return {hazard.name for hazard in reading.hazards}
