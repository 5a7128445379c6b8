"""The search for a failing case: it finds, shrinks, narrows, counts, and leaves the process as it was."""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase

from bitproof.harness.case import Scale
from bitproof.harness.errors import Refused, SpecError, Unsupported
from bitproof.harness.outcomes import CheckResult, Finding, Outcome, conclude
from bitproof.harness.search import falsify
from bitproof.harness.search.falsify import SearchResult
from bitproof.harness.spec import Bitwise, Invariance, KernelSpec, Params, Tensors
from tests.harness.plain import SPEC, PlainLane, RowsCase, rows_cases, scaled, variant

LANE = PlainLane()
Run = Callable[[Tensors, Params], dict[str, torch.Tensor]]


def _search(spec: KernelSpec, check: str = "agreement", **options: Any) -> SearchResult:
    options.setdefault("base", settings(derandomize=True, database=None))
    return falsify.search(spec, check, LANE, **{"max_examples": 100, **options})


def _wrong_from(rows: int, columns: int) -> Run:
    """Wrong in the last element of every output at least `rows` by `columns`."""

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        y = scaled(tensors, params)["y"]
        if y.shape[0] >= rows and y.shape[1] >= columns:
            y[-1, -1] += 1.0
        return {"y": y}

    return run


def test_a_right_kernel_passes_every_example() -> None:
    """As many as asked, with what they covered."""
    result = _search(SPEC)
    assert (result.outcome, result.examples) == (Outcome.PASSED, 100)
    assert (result.case, result.inputs, result.findings) == (None, None, None)
    assert result.covered.total() == 100
    assert set(result.covered) == {"one row", "several rows"}
    assert result.measures == {"worst": 0.0}
    assert result.seconds > 0


def test_no_case_is_begun_after_so_many_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is, and a defect is shrunk to the end. Each case takes a second here."""
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def slow(run: Run) -> Run:
        def taking(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
            nonlocal now
            now += 1.0
            return run(tensors, params)

        return taking

    for seconds, examples in ((10, 11), (0, 1), (1000, 100)):
        result = _search(variant(run=slow(scaled)), seconds=seconds)
        assert (result.outcome, result.examples) == (Outcome.PASSED, examples)
    result = _search(variant(run=slow(_wrong_from(2, 2))), seconds=20, max_examples=1000)
    assert result.examples <= 21 < now
    assert result.case == RowsCase(rows=2, columns=2, seed=0)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 2), (8, 8)])
def test_a_failure_shrinks_to_the_smallest_case(rows: int, columns: int) -> None:
    """Every field at its least, whatever case was met first."""
    result = _search(variant(run=_wrong_from(rows, columns)), max_examples=1000)
    assert result.outcome is Outcome.FAILED
    assert result.case == RowsCase(rows=rows, columns=columns, seed=0)
    assert result.inputs is not None
    assert result.inputs.case == result.case
    assert result.findings is not None
    assert result.findings.findings[0].index == (rows - 1, columns - 1)


def test_counts_stop_at_the_first_failure() -> None:
    """What shrinking runs is not counted: examples are those judged until the failure."""
    calls = itertools.count(1)

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        y = scaled(tensors, params)["y"]
        return {"y": y + 1.0 if next(calls) > 10 else y}

    result = _search(variant(run=run))
    assert result.outcomes == {Outcome.PASSED: 10, Outcome.FAILED: 1}
    assert result.covered.total() == 11


def test_a_search_may_stop_without_shrinking() -> None:
    """For fault runs, which ask only whether: the first failure ends it."""
    calls: list[int] = []

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        calls.append(1)
        return _wrong_from(2, 2)(tensors, params)

    result = _search(variant(run=run, program=lambda *_: "program 0"), shrink=False)
    assert result.outcome is Outcome.FAILED
    # Another provider than Hypothesis' own has its failure confirmed, then Hypothesis raises it: three times
    # at most, and each time the kernel runs once more for who wrote the element.
    assert len(calls) <= result.examples - 1 + 3 * 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class NarrowCase(RowsCase):
    """Rows of which one can be taken alone."""

    first: int = 0

    def tensors(self, device: torch.device) -> dict[str, torch.Tensor]:
        """`rows` rows from row `first` on."""
        whole = RowsCase(rows=self.first + self.rows, columns=self.columns, seed=self.seed)
        return {"x": whole.tensors(device)["x"][self.first :]}

    def narrow(self, output: str | None, index: tuple[int, ...]) -> NarrowCase | None:
        """The row of `index` alone."""
        return dataclasses.replace(self, rows=1, first=self.first + index[0])


def _fixed(case: RowsCase) -> dict[str, Any]:
    return {"case": type(case), "cases": lambda: st.just(case)}


@pytest.mark.parametrize("threshold", [1.5, 1.9])
def test_a_failure_narrows_to_its_element(threshold: float) -> None:
    """A case that knows how is asked for the one that holds only the offending row."""

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        y = scaled(tensors, params)["y"]
        return {"y": torch.where(y > threshold, y + 1.0, y)}

    whole = NarrowCase(rows=100, columns=1)
    x = whole.tensors(LANE.device)["x"]
    wrong = int((2 * x[:, 0] > threshold).nonzero()[0])
    result = _search(variant(run=run, **_fixed(whole)))
    assert result.case is not None
    assert result.findings is not None
    assert result.findings.findings[0].index == (0, 0)
    worst = NarrowCase(rows=1, columns=1, first=result.case.first)
    assert result.case == worst
    assert wrong <= worst.first < 100


def test_a_failure_that_needs_its_neighbours_is_not_narrowed() -> None:
    """Where the smaller case passes, the whole one is kept."""

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        y = scaled(tensors, params)["y"]
        y[1:] += y[:-1].clone()
        return {"y": y}

    whole = NarrowCase(rows=5, columns=1)
    result = _search(variant(run=run, **_fixed(whole)))
    assert result.outcome is Outcome.FAILED
    assert result.case == whole


@pytest.mark.parametrize("wrong", [1, 7])
def test_a_failure_that_does_not_repeat_is_reported_as_unsteady(wrong: int) -> None:
    """The kernel gave two answers to one case: a finding of its own, beside the first."""
    calls = itertools.count(1)

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        y = scaled(tensors, params)["y"]
        return {"y": y + 1.0 if next(calls) == wrong else y}

    result = _search(variant(run=run))
    assert result.outcome is Outcome.FAILED
    assert result.findings is not None
    assert len(result.findings.findings) == 2
    assert "the same case passed when it was judged again" in result.findings.findings[1].summary


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Refused("rows"), Outcome.REFUSED),
        (Unsupported("lane"), Outcome.UNSUPPORTED),
        (torch.OutOfMemoryError("card"), Outcome.OUT_OF_RESOURCES),
        (ValueError("kernel"), Outcome.CRASHED),
    ],
)
def test_a_search_is_what_its_worst_or_only_outcome_is(error: Exception, outcome: Outcome) -> None:
    """A crash on any case is a crash; without one, one passed case makes it passed."""

    def never(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        raise error

    def sometimes(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        if len(tensors["x"]) > 3:
            raise error
        return scaled(tensors, params)

    assert _search(variant(run=never)).outcome is outcome
    result = _search(variant(run=sometimes))
    # Many cases that the card's memory did not hold leave too little shown.
    spent = outcome is Outcome.OUT_OF_RESOURCES
    calm = Outcome.NOT_DEMONSTRATED if spent else Outcome.PASSED
    assert result.outcome is (outcome if outcome.is_defect else calm)
    assert result.outcomes[outcome] > 0
    if outcome is Outcome.CRASHED:
        assert result.case == RowsCase(rows=4, columns=1)
    else:
        assert result.reasons == {str(error)}


def test_a_control_that_never_varies_demonstrates_nothing() -> None:
    """Passed alone is not enough for a bitwise claim; where it varied once, it is."""
    steady = _search(variant(reproducible=Bitwise(control=scaled)), "reproducibility")
    assert steady.outcome is Outcome.NOT_DEMONSTRATED
    assert steady.undemonstrated == "its control never varied"
    noise = itertools.count()

    def varying(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        y = scaled(tensors, params)["y"]
        return {"y": y + next(noise) if y.numel() > 20 else y}

    varied = _search(variant(reproducible=Bitwise(control=varying)), "reproducibility")
    assert varied.outcome is Outcome.PASSED
    assert 0 < varied.counts["control varied: y"] < varied.examples


def _relation(name: str, rows: int) -> Invariance:
    return Invariance(
        name=name,
        transform=lambda inputs: inputs if len(inputs.tensors["x"]) >= rows else None,
        relate=lambda outputs, inputs: outputs,
    )


def test_an_invariance_that_never_applies_is_not_demonstrated() -> None:
    """Each has to apply on some case of the run; the first that did not is named."""
    spec = variant(invariances=(_relation("often", 1), _relation("rarely", 8)))
    result = _search(spec, "invariances")
    assert result.outcome is Outcome.PASSED
    assert result.counts["often applied"] == 100
    assert 0 < result.counts["rarely applied"] < 100
    result = _search(
        variant(invariances=(_relation("often", 1), _relation("never", 9))), "invariances"
    )
    assert result.outcome is Outcome.NOT_DEMONSTRATED
    assert result.undemonstrated == "never never applied"


def test_what_applied_to_no_example_is_looked_for_among_further_cases() -> None:
    """They are judged only if it applies to them, and the search ends when it has."""
    spec = variant(invariances=(_relation("often", 1), _relation("rarely", 8)))
    result = _search(spec, "invariances", max_examples=1)
    assert result.outcome is Outcome.PASSED
    assert result.counts == {"often applied": 2, "rarely applied": 1}
    assert result.examples == 2
    assert _search(spec, "agreement", max_examples=1).examples == 1


def test_empty_cases_alone_demonstrate_nothing() -> None:
    """A strategy that draws only empty cases is found out."""
    result = _search(variant(**_fixed(RowsCase(rows=0))))
    assert result.outcome is Outcome.NOT_DEMONSTRATED
    assert result.reasons == {"its outputs are empty"}


def test_a_specs_own_mistake_ends_the_search() -> None:
    """It is no failure of the kernel, and reaches whoever asked."""
    with pytest.raises(SpecError, match="its oracle does not answer output 'y'"):
        _search(variant(oracle=lambda tensors, params: {}))


def test_slow_and_large_examples_are_no_failure() -> None:
    """A first call compiles for many seconds: no deadline, no health check, under any profile."""
    slept = itertools.count()

    def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        if next(slept) < 2:
            time.sleep(0.6)
        return scaled(tensors, params)

    strict = settings(deadline=1, suppress_health_check=(), derandomize=True, database=None)
    result = _search(variant(run=run), max_examples=10, base=strict)
    assert (result.outcome, result.examples) == (Outcome.PASSED, 10)


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """A failure is worded by us, once, wherever the search was started."""
    loud = settings(verbosity=Verbosity.verbose, print_blob=True, derandomize=True, database=None)
    assert _search(variant(run=_wrong_from(1, 1)), base=loud).outcome is Outcome.FAILED
    assert capsys.readouterr() == ("", "")


def test_failures_are_remembered_by_kernel_and_check() -> None:
    """The example database leads the next search straight to the failing case."""
    database = InMemoryExampleDatabase()
    base = settings(database=database)
    first = _search(variant(run=_wrong_from(8, 8)), max_examples=1000, base=base)
    again = _search(variant(run=_wrong_from(8, 8)), base=base)
    assert again.examples == 1
    assert again.case == first.case
    elsewhere = _search(variant(name="other", run=_wrong_from(8, 8)), max_examples=1, base=base)
    assert elsewhere.outcome is Outcome.PASSED


def test_derandomised_searches_judge_the_same_cases() -> None:
    """Run for run, and other ones for another kernel."""

    def seen(name: str) -> list[tuple[int, ...]]:
        shapes: list[tuple[int, ...]] = []

        def run(tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
            shapes.append(tuple(tensors["x"].shape))
            return scaled(tensors, params)

        _search(variant(name=name, run=run))
        return shapes

    assert seen("one") == seen("one")
    assert seen("one") != seen("other")


def test_global_generators_are_untouched() -> None:
    """A search neither reads nor moves the generators of python, numpy and torch."""

    def state() -> tuple[Any, ...]:
        legacy = np.random.get_state()  # noqa: NPY002 (the global one is the subject)
        return random.getstate(), legacy[1].tolist(), legacy[2:], torch.get_rng_state().tolist()

    before = state()
    _search(SPEC)
    _search(variant(run=_wrong_from(3, 3)))
    assert state() == before


def test_cases_may_be_judged_elsewhere() -> None:
    """`execute` replaces the launch in this process, for shrinking and narrowing alike."""
    seen: list[RowsCase] = []

    def execute(case: RowsCase) -> tuple[Any, CheckResult]:
        seen.append(case)
        found = [Finding(summary="lost")] if case.rows > 2 else []
        return None, conclude(found)

    result = _search(SPEC, execute=execute)
    assert result.outcome is Outcome.FAILED
    assert result.case == RowsCase(rows=3, columns=1)
    assert seen[-1] == result.case


def test_the_callers_phases_do_not_matter() -> None:
    """A profile that would skip shrinking still gets the smallest case."""
    base = settings(phases=[Phase.generate], derandomize=True, database=None)
    assert _search(variant(run=_wrong_from(3, 3)), base=base).case == RowsCase(rows=3, columns=3)


@pytest.mark.parametrize(
    ("lane", "given", "handed"),
    [
        ("interpreter", None, Scale()),
        ("cuda:sm_89", None, Scale(on_card=True)),
        ("interpreter", Scale(on_card=True, nightly=True), Scale(on_card=True, nightly=True)),
    ],
)
def test_a_search_hands_its_lanes_scale_to_the_strategy(
    lane: str, given: Scale | None, handed: Scale
) -> None:
    """Or the one that it is given; `cases` that take none are called without."""
    seen: list[Scale] = []

    def cases(*, scale: Scale) -> st.SearchStrategy[RowsCase]:
        seen.append(scale)
        return st.just(RowsCase())

    where = PlainLane(name=lane)
    falsify.search(variant(cases=cases), "agreement", where, max_examples=1, scale=given)
    assert set(seen) == {handed}


def _no_cases() -> st.SearchStrategy[RowsCase]:
    raise ZeroDivisionError("no cases")


def _raises_while_drawing(failing: Any) -> Any:
    """Cases whose strategy raises where `failing()` says so."""

    @st.composite
    def cases(draw: st.DrawFn) -> RowsCase:
        case = draw(rows_cases())
        if failing(case):
            raise KeyError("block")
        return case

    return cases


_DREW = r"its strategy raised while a case was drawn: KeyError in cases \(.*test_falsify.py:\d+\): 'block'"


def test_a_strategy_that_raises_at_one_time_alone_is_a_mistake_as_well() -> None:
    """Hypothesis sees no failure when it draws again; the sentence is the same."""
    times = itertools.count()
    with pytest.raises(SpecError, match=_DREW):
        _search(variant(cases=_raises_while_drawing(lambda case: next(times) == 3)))


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        (_raises_while_drawing(lambda case: True), _DREW),
        (_raises_while_drawing(lambda case: case.rows == 3), _DREW),
        (_no_cases, r"its cases raised ZeroDivisionError in _no_cases \(.*:\d+\): no cases"),
        (lambda: 3, "its cases must be a function that returns a strategy, it returned int"),
        (lambda: st.just(RowsCase()).filter(lambda case: False), "its cases cannot be drawn: "),
    ],
)
def test_cases_that_cannot_be_drawn_are_the_specs_mistake(cases: Any, message: str) -> None:
    """One sentence that names the spec, not a verdict on its kernel."""
    for draw in (_search, lambda spec: falsify.draw_cases(spec, 8)):
        with pytest.raises(SpecError, match=f"spec 'scaled_rows': {message}"):
            draw(variant(cases=cases))


def test_what_is_drawn_to_be_looked_at_begins_with_the_simplest() -> None:
    """And judges nothing; as many as asked for."""
    cases = falsify.draw_cases(SPEC, 20)
    assert len(cases) == 20
    assert cases[0] == RowsCase(rows=1, columns=1)


def test_a_failure_after_cases_that_passed_is_no_first_run_that_holds() -> None:
    """Of a spec without planted faults, whose passing is not demonstrated either."""
    result = _search(variant(run=_wrong_from(3, 3), faults=()))
    assert result.outcome is Outcome.FAILED
    assert result.outcomes[Outcome.PASSED]
    assert result.unproven
    assert not result.holds
