"""Compiled variants of other sizes are told from those of the first run, whatever was compiled before."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest
from triton.runtime import jit

from bitproof.harness.case import Inputs, build
from bitproof.harness.checks import compile_cache
from bitproof.harness.lanes.base import Launched, Variation
from bitproof.harness.lanes.starts import noting_variants
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.spec import KernelSpec
from tests.harness.plain import CASE, PlainLane, variant


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompilingLane(PlainLane):
    """The plain lane, whose launches start one variant for a single row and one for any other count."""

    starts: bool = True

    def run(self, spec: KernelSpec, inputs: Inputs, variation: Variation) -> Launched:
        launched = super().run(spec, inputs, variation)
        rows = len(inputs.tensors["x"])
        variants = frozenset({"of one row" if rows == 1 else "of more"} if self.starts else ())
        return dataclasses.replace(launched, variants=variants)


def _with_rows(*counts: int) -> KernelSpec:
    def resized(inputs: Inputs) -> Iterable[Inputs]:
        for count in counts:
            yield inputs.replace(x=inputs.tensors["x"][:1].repeat(count, 1))

    return variant(must_not_recompile=resized)


def _judge(lane: PlainLane, *counts: int) -> CheckResult:
    return compile_cache.check(_with_rows(*counts), build(CASE, lane.device), lane)


def test_one_more_variant_is_found_every_time_that_the_case_is_judged() -> None:
    """A count of compilations would be zero the second time, and the case could not shrink."""
    lane = CompilingLane()
    for _ in range(2):
        found = _judge(lane, 5, 1)
        assert found.outcome is Outcome.FAILED
        assert "1 more compiled variants for x" in found.findings[0].summary


def test_other_counts_of_the_same_variant_pass() -> None:
    """As where no integer of the launch is specialised."""
    assert _judge(CompilingLane(), 5, 16, 17).outcome is Outcome.PASSED


def test_what_starts_no_kernel_compiles_none_again() -> None:
    """A launcher may return before its kernel where there is nothing to do."""
    assert _judge(CompilingLane(starts=False), 1).outcome is Outcome.PASSED


def test_variants_are_those_started_not_those_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm-up compiles and starts nothing."""

    class Kernel:
        hash = "of a variant"

    monkeypatch.setattr(jit.JITFunction, "run", lambda self, **options: Kernel())
    blank: Any = object.__new__(jit.JITFunction)
    with noting_variants() as warmed:
        jit.JITFunction.run(blank, warmup=True)
    with noting_variants() as started:
        jit.JITFunction.run(blank, warmup=False)
    assert (warmed, started) == (set(), {"of a variant"})
