"""Each check finds what it is for, in kernels of plain torch that go wrong in one way each."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import case as cases
from harness import checks
from harness.bounds import exact_bits
from harness.case import Inputs, Launch
from harness.errors import EnvironmentUnfit, Refused, SpecError, Unsupported, UsageError
from harness.lanes.arena import bits
from harness.lanes.base import Launched, Variation
from harness.outcomes import Findings, Outcome
from harness.spec import CHECKS, Bitwise, Invariance, KernelSpec, Limit, Params, Tensors
from tests.harness.plain import CASE, SPEC, PlainLane, RowsCase, checked, scaled, variant


def _kernel(run: Callable[[Tensors, Params], Any], **changes: Any) -> KernelSpec:
    return variant(run=run, **changes)


def _past(tensor: Tensor, offset: int, value: float) -> None:
    """Write outside of a tensor, as a kernel with a wrong offset does."""
    torch.as_strided(tensor, (1,), (1,), tensor.storage_offset() + offset).fill_(value)


def _after(
    edit: Callable[[Tensor, Tensor], None],
) -> Callable[[Tensors, Params], dict[str, Tensor]]:
    """The plain kernel, then `edit(x, y)` of what it read and wrote."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        outputs = scaled(tensors, params)
        edit(tensors["x"], outputs["y"])
        return outputs

    return run


@pytest.mark.parametrize("check", ["agreement", "memory", "reproducibility"])
@pytest.mark.parametrize("case", [CASE, RowsCase(rows=8, columns=8, seed=9)])
def test_a_right_kernel_passes(check: str, case: RowsCase) -> None:
    """No check complains about the plain kernel."""
    findings = checked(check, SPEC, case)
    assert (findings.outcome, findings.findings) == (Outcome.PASSED, ())


def test_agreement_finds_one_wrong_element() -> None:
    """And measures how far the worst one is."""
    findings = checked("agreement", _kernel(_after(lambda x, y: y[1, 2].mul_(1 + 2**-22))))
    assert findings.outcome is Outcome.FAILED
    assert [finding.index for finding in findings.findings] == [(1, 2)]
    assert findings.measures["worst"] == pytest.approx(2, abs=1)


def test_agreement_reads_what_nobody_wrote_as_nan() -> None:
    """An element that is never written holds no plausible number."""
    findings = checked("agreement", _kernel(lambda tensors, params: {"y": torch.empty(2, 3)}))
    assert findings.outcome is Outcome.FAILED
    assert findings.findings[0].summary.startswith("y[0, 0] is nan, expected ")


DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    torch.float8_e8m0fnu,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_of_every_dtype_are_judged(dtype: torch.dtype) -> None:
    """Right, one bit wrong, a row unwritten: each check says so whatever the type."""

    def right(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = torch.empty(2, 3, dtype=dtype)
        return {"y": y.copy_(tensors["x"].abs() * 100)}

    def flipped(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        outputs = right(tensors, params)
        bits(outputs["y"])[1, 1] ^= 1
        return outputs

    def partial(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = torch.empty(2, 3, dtype=dtype)
        y[0] = right(tensors, params)["y"][0]
        return {"y": y}

    every = ("agreement", "memory", "reproducibility")
    for run, failing in ((right, ()), (flipped, ("agreement",)), (partial, every)):
        spec = _kernel(run, oracle=right)
        assert tuple(c for c in every if checked(c, spec).outcome is Outcome.FAILED) == failing


def test_agreement_of_nothing_is_not_demonstrated() -> None:
    """Empty outputs agree with an empty oracle, which shows nothing."""
    findings = checked("agreement", SPEC, RowsCase(rows=0, columns=3))
    assert findings.outcome is Outcome.NOT_DEMONSTRATED
    assert findings.reason == "its outputs are empty"


@pytest.mark.parametrize(
    ("edit", "summary"),
    [
        (lambda x, y: _past(y, 6, 1.0), "a write outside y: the byte +24 from its first element"),
        (lambda x, y: _past(y, -1, 1.0), "a write outside y: the byte -4 from its first element"),
        (lambda x, y: _past(y, 4000, 1.0), "a write outside y: the byte +16000 from its first"),
        (lambda x, y: _past(x, 6, 1.0), "a write outside x: the byte +24 from its first element"),
        (lambda x, y: _past(x, -1, 1.0), "a write outside x: the byte -4 from its first element"),
        (lambda x, y: _past(torch.zeros(5), 5, 1.0), "a write outside allocation 1: the byte +20"),
        (lambda x, y: x[1, 0].fill_(5.0), "input x was written at [1, 0]"),
        (lambda x, y: x[0, 1].neg_(), "input x was written at [0, 1]"),
    ],
)
def test_memory_finds_a_stray_write(edit: Callable[[Tensor, Tensor], Any], summary: str) -> None:
    """Before or after an output, an input or a workspace, or on an input: named, with its offset."""
    findings = checked("memory", _kernel(_after(edit)))
    assert findings.outcome is Outcome.FAILED
    assert [finding.summary[: len(summary)] for finding in findings.findings] == [summary]


def test_memory_guards_the_gaps_between_padded_rows() -> None:
    """A kernel that takes a strided tensor for a dense one writes between its rows."""

    def flat(x: Tensor, y: Tensor) -> None:
        _past(x, 3, 1.0)

    case = dataclasses.replace(CASE, launch=Launch(row_padding=2, misalign=1))
    assert (
        checked("memory", _kernel(scaled, strided=frozenset({"x"})), case).outcome is Outcome.PASSED
    )
    findings = checked("memory", _kernel(_after(flat), strided=frozenset({"x"})), case)
    assert [f.summary for f in findings.findings] == [
        "a write outside x: the byte +12 from its first element changed"
    ]


@pytest.mark.parametrize("value", [0xFF, 0xA5])
def test_memory_sees_a_trespass_that_equals_one_poison(value: int) -> None:
    """The guard that hides it in one run shows it in the other."""

    def trespass(x: Tensor, y: Tensor) -> None:
        lying = y.view(torch.uint8)
        torch.as_strided(lying, (1,), (1,), lying.storage_offset() - 1).fill_(value)

    findings = checked("memory", _kernel(_after(trespass)))
    assert [f.summary for f in findings.findings] == [
        "a write outside y: the byte -1 from its first element changed"
    ]


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda x: torch.empty(2, 3), [1, 2]),
        (lambda x: torch.empty(2, 3, dtype=torch.bool), [1, 2]),
        (lambda x: torch.empty(2, 3, dtype=torch.int64), [1, 2]),
        (lambda x: torch.empty(3, 2, dtype=torch.bool).t(), [1, 2]),
        (lambda x: torch.empty(2, 3, dtype=torch.float8_e4m3fn), [1, 2]),
        (lambda x: torch.empty_like(x), [1, 2]),
        (lambda x: x.new_empty(2, 5)[:, 1:4], [1, 2]),
    ],
)
def test_memory_finds_an_element_nobody_wrote(
    make: Callable[[Tensor], Tensor], where: list[int]
) -> None:
    """Of any dtype, in a view or a transposed tensor; the elements written before it do not count."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = make(tensors["x"])
        y[0] = 1.0
        y[1, :2] = 1.0
        return {"y": y}

    findings = checked("memory", _kernel(run))
    assert [f.summary for f in findings.findings] == [
        f"y{where} was never written (1 of 6 elements)"
    ]


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: torch.empty(()), []),
        (lambda: torch.empty((), dtype=torch.float16), []),
        (lambda: torch.empty(1, 2, 2)[..., 0], [0, 1]),
        (lambda: torch.empty_strided((2, 1), (1, 2)), [1, 0]),
    ],
)
@pytest.mark.parametrize("written", [True, False])
def test_memory_judges_scalars_and_odd_strides(
    make: Callable[[], Tensor], where: list[int], written: bool
) -> None:
    """Outputs that torch does not view as bytes: no dimension, or one element at some other stride."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = make()
        y.view(-1)[: y.numel() - (not written)] = 1.0
        return {"y": y}

    total = make().numel()
    expected = [] if written else [f"y{where} was never written (1 of {total} elements)"]
    assert [f.summary for f in checked("memory", _kernel(run)).findings] == expected


@pytest.mark.parametrize("pattern", [-1, 0xFF, 0xA5, 0xA5A5, -0x5A5A5A5B, 0x7B7B7B7B, 0])
def test_memory_accepts_any_value_a_kernel_writes(pattern: int) -> None:
    """Also a value made of the very bytes that memory was poisoned with."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        y = torch.empty(2, 3, dtype=torch.int32)
        y.fill_(pattern)
        return {"y": y}

    assert checked("memory", _kernel(run)).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    "run",
    [
        lambda tensors, params: {"y": tensors["x"].mul_(2.0)},
        lambda tensors, params: {"y": tensors["x"].mul_(2.0)[:]},
    ],
)
def test_declared_inputs_may_be_written_in_place(
    run: Callable[[Tensors, Params], dict[str, Tensor]],
) -> None:
    """An output may be an input; every run still starts from the case's own bits."""
    spec = _kernel(run, inplace=frozenset({"x"}))
    for check in ("agreement", "memory", "reproducibility"):
        assert checked(check, spec).outcome is Outcome.PASSED
    assert checked("memory", _kernel(run)).outcome is Outcome.FAILED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Complaint:
    """What a sanitizer reports."""

    kind: str = "race"
    text: str = "race: two programs"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchfulLane(PlainLane):
    """The plain lane, with a sanitizer that complains of the run number `turn` where it is asked."""

    turn: int

    def run(self, spec: KernelSpec, inputs: Inputs, variation: Variation) -> Launched:
        """As the plain lane."""
        launched = super().run(spec, inputs, variation)
        if not variation.watched or variation.turn != self.turn:
            return launched
        return dataclasses.replace(launched, violations=(Complaint(),))


@pytest.mark.parametrize("turn", [0, 1])
def test_memory_reports_what_a_sanitizer_saw(turn: int) -> None:
    """In either run, since their programs run in another order; no other check asks for it."""
    lane = WatchfulLane(turn=turn)
    inputs = cases.build(CASE, lane.device)
    findings = checks.run("memory", SPEC, inputs, lane)
    assert findings.outcome is Outcome.FAILED
    assert [finding.summary for finding in findings.findings] == ["race: two programs"]
    assert findings.findings[0].facts["kind"] == "race"
    for check in ("agreement", "reproducibility"):
        assert checks.run(check, SPEC, inputs, lane).outcome is Outcome.PASSED


def test_two_outputs_may_share_one_allocation() -> None:
    """Halves of one buffer are checked as any other outputs."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        both = torch.empty(2, 2, 3)
        torch.mul(tensors["x"], 2.0, out=both[0])
        both[1] = both[0]
        return {"y": both[0], "z": both[1]}

    spec = _kernel(
        run,
        oracle=lambda tensors, params: dict.fromkeys("yz", 2 * tensors["x"].numpy()),
        bounds=dict.fromkeys("yz", SPEC.bounds["y"]),
    )
    for check in ("agreement", "memory", "reproducibility"):
        assert checked(check, spec).outcome is Outcome.PASSED


def _drifting() -> Callable[[Tensors, Params], dict[str, Tensor]]:
    """A kernel whose fourth call adds to one element."""
    calls = itertools.count(1)

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        outputs = scaled(tensors, params)
        if next(calls) % 8 == 4:
            outputs["y"][0, 1] += 1.0
        return outputs

    return run


@pytest.mark.parametrize(
    ("run", "summary"),
    [
        (_drifting(), "y[0, 1]: run 4 gives other bits"),
        (_after(lambda x, y: y.add_(torch.empty(2, 3).mul_(0.0))), "y[0, 0]: run 2 gives other"),
        (_after(lambda x, y: y[1, 2].copy_(x.new_empty(1)[0])), "y[1, 2]: run 2 gives other bits"),
        (
            _after(
                lambda x, y: y[0, 0].copy_(
                    torch.as_strided(x, (1,), (1,), x.storage_offset() + 6)[0]
                )
            ),
            "y[0, 0]: run 2 gives other bits",
        ),
    ],
)
def test_reproducibility_finds_what_varies(
    run: Callable[[Tensors, Params], dict[str, Tensor]], summary: str
) -> None:
    """A state between calls, fresh memory read, an element past the end of an input read."""
    findings = checked("reproducibility", _kernel(run))
    assert findings.outcome is Outcome.FAILED
    assert findings.findings[0].summary.startswith(summary)
    assert findings.measures["runs"] == 8


def test_reproducibility_compares_nan_by_their_bits() -> None:
    """Two NaN of different payload are not the same bits."""
    calls = itertools.count(0x7FC00000)

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        return {"y": torch.full((2, 3), next(calls), dtype=torch.int32).view(torch.float32)}

    assert checked("reproducibility", _kernel(run)).outcome is Outcome.FAILED


def test_reproducibility_finds_another_shape_or_dtype() -> None:
    """A kernel that changes its mind about its output does not reproduce it."""
    for other in (torch.zeros(3), torch.zeros(2, dtype=torch.int32)):
        turns = itertools.cycle([torch.zeros(2), other])
        findings = checked("reproducibility", _kernel(lambda t, p, turns=turns: {"y": next(turns)}))
        assert findings.findings[0].summary.startswith("y: run 2 gives")


def test_reproducibility_runs_as_often_as_claimed() -> None:
    """The claim's number of runs, once more for a control."""
    calls: list[str] = []

    def counted(name: str) -> Callable[[Tensors, Params], dict[str, Tensor]]:
        def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
            calls.append(name)
            return scaled(tensors, params)

        return run

    claim = Bitwise(runs=3, control=counted("control"))
    checked("reproducibility", _kernel(counted("kernel"), reproducible=claim))
    assert calls == ["kernel"] * 3 + ["control"] * 3


@pytest.mark.parametrize(("control", "varied"), [(_drifting(), 1), (scaled, 0)])
def test_a_control_is_counted_where_it_varies(
    control: Callable[[Tensors, Params], dict[str, Tensor]], varied: int
) -> None:
    """On the very cases that the kernel passes."""
    findings = checked("reproducibility", variant(reproducible=Bitwise(control=control)))
    assert findings.outcome is Outcome.PASSED
    assert findings.counts == {"control varied: y": varied}


def test_a_launcher_may_keep_its_output_buffer() -> None:
    """Runs that write over each other's outputs are still compared with what each of them gave."""
    buffer = torch.empty(2, 3)
    calls = itertools.count()

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        torch.mul(tensors["x"], 2.0, out=buffer)
        buffer[0, 0] += next(calls)
        return {"y": buffer}

    findings = checked("reproducibility", _kernel(run))
    assert findings.findings[0].summary == "y[0, 0]: run 2 gives other bits"
    same = Invariance(name="again", transform=lambda i: i, relate=lambda outputs, i: outputs)
    findings = checked("invariances", _kernel(run, invariances=(same,)))
    assert findings.findings[0].summary == "y[0, 0]: again gives other bits"


def test_memory_looks_at_inputs_where_they_lay() -> None:
    """A launcher that turns its own view of an input has not written it."""

    def turned(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        return {"y": torch.mul(tensors["x"].t_(), 2.0).t()}

    assert checked("memory", _kernel(turned)).outcome is Outcome.PASSED


@pytest.mark.parametrize("check", ["agreement", "memory", "reproducibility"])
def test_warnings_are_no_verdict(check: str) -> None:
    """Also where, as here, whoever runs the check makes them errors."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        warnings.warn("deprecated", DeprecationWarning, stacklevel=1)
        return scaled(tensors, params)

    assert checked(check, _kernel(run)).outcome is Outcome.PASSED


def test_outputs_named_otherwise_from_run_to_run_are_the_specs_mistake() -> None:
    """There is nothing to compare them with."""
    names = itertools.cycle("yz")
    spec = _kernel(lambda tensors, params: {next(names): torch.zeros(1)})
    with pytest.raises(SpecError, match=r"from run to run: \['y'\], then \['z'\] in run 2"):
        checked("reproducibility", spec)


def _alone() -> Invariance:
    return Invariance(
        name="last row alone",
        transform=lambda i: i.replace(x=i.tensors["x"][-1:]) if len(i.tensors["x"]) > 1 else None,
        relate=lambda outputs, inputs: {"y": outputs["y"][-1:]},
    )


def _negated() -> Invariance:
    def relate(outputs: Tensors, inputs: Inputs) -> Mapping[str, Tensor]:
        return {"y": -outputs["y"]}

    return Invariance(
        name="sign symmetry",
        transform=lambda inputs: inputs.replace(x=-inputs.tensors["x"]),
        relate=relate,
    )


def test_invariances_hold_for_a_right_kernel() -> None:
    """Each that applies is counted."""
    spec = variant(invariances=(_alone(), _negated()))
    findings = checked("invariances", spec)
    assert findings.outcome is Outcome.PASSED
    assert findings.counts == {"last row alone applied": 1, "sign symmetry applied": 1}
    findings = checked("invariances", spec, RowsCase(rows=1, columns=3))
    assert findings.counts == {"last row alone applied": 0, "sign symmetry applied": 1}


def test_a_violated_invariance_is_named() -> None:
    """A kernel that leaks from row to row, and one with a preferred sign."""
    leaking = _kernel(_after(lambda x, y: y[1:].add_(y[:-1])), invariances=(_alone(), _negated()))
    findings = checked("invariances", leaking)
    assert findings.outcome is Outcome.FAILED
    assert [f.summary for f in findings.findings] == ["y[0, 0]: last row alone gives other bits"]
    signed = _kernel(_after(lambda x, y: y.add_(y.abs())), invariances=(_alone(), _negated()))
    findings = checked("invariances", signed)
    assert "sign symmetry gives other bits" in findings.text
    assert "last row alone" not in findings.text


def test_an_invariance_that_does_not_apply_shows_nothing() -> None:
    """A case on which none applies is not demonstrated, rather than passed."""
    findings = checked("invariances", variant(invariances=(_alone(),)), RowsCase(rows=1, columns=3))
    assert findings.outcome is Outcome.NOT_DEMONSTRATED
    assert findings.reason == "no invariance applies"


@pytest.mark.parametrize(("related", "message"), [({}, "relates none"), ({"z": 0}, "relates 'z'")])
def test_an_invariance_relates_outputs(related: dict[str, Any], message: str) -> None:
    """One that relates nothing, or what is no output, is the spec's mistake."""
    invariance = Invariance(name="odd", transform=lambda i: i, relate=lambda o, i: related)
    with pytest.raises(SpecError, match=message):
        checked("invariances", variant(invariances=(invariance,)))


@pytest.mark.parametrize("check", ["agreement", "memory", "reproducibility"])
@pytest.mark.parametrize(
    ("error", "outcome", "text"),
    [
        (Refused("rows must be even"), Outcome.REFUSED, "rows must be even"),
        (KeyError("block"), Outcome.REFUSED, "'block'"),
        (Unsupported("no such lowering"), Outcome.UNSUPPORTED, "no such lowering"),
        (torch.OutOfMemoryError("CUDA out of memory"), Outcome.OUT_OF_RESOURCES, "CUDA out of"),
        (ValueError("no\nway"), Outcome.CRASHED, "the launch raised ValueError: no way"),
        (AssertionError(), Outcome.CRASHED, "the launch raised AssertionError: AssertionError"),
    ],
)
def test_what_a_launcher_raises_is_an_outcome(
    check: str, error: Exception, outcome: Outcome, text: str
) -> None:
    """In every check alike."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        raise error

    findings = checked(check, _kernel(run, refuses=(KeyError,)))
    assert findings.outcome is outcome
    assert findings.text.startswith(text)


@pytest.mark.parametrize("returned", [None, {}, [1], {"y": 1.0}, {1: torch.ones(1)}, torch.ones(1)])
@pytest.mark.parametrize("check", ["agreement", "memory", "reproducibility"])
def test_a_launcher_must_return_named_tensors(check: str, returned: Any) -> None:
    """Anything else is a mistake of the spec that says what it returned."""
    with pytest.raises(
        SpecError, match="its launcher must return a dict of tensors by name, it ret"
    ):
        checked(check, _kernel(lambda tensors, params: returned))


def test_complex_outputs_are_refused_with_the_remedy() -> None:
    """No bound has anything to say of them."""
    spec = _kernel(lambda tensors, params: {"y": torch.ones(1, dtype=torch.complex64)})
    with pytest.raises(SpecError, match=r"'y' is complex: return torch\.view_as_real of it"):
        checked("agreement", spec)


def test_outputs_with_a_gradient_are_compared_like_others() -> None:
    """Their history is dropped."""
    spec = _kernel(lambda tensors, params: {"y": tensors["x"].requires_grad_() * 2.0})
    for check in ("agreement", "memory", "reproducibility"):
        assert checked(check, spec).outcome is Outcome.PASSED


def test_an_error_in_the_oracle_is_not_the_kernels() -> None:
    """It stops the run as the spec's mistake."""

    def oracle(tensors: Tensors, params: Params) -> dict[str, Any]:
        return {"y": np.zeros(2)[5]}

    with pytest.raises(SpecError, match="its oracle raised IndexError in oracle"):
        checked("agreement", variant(oracle=oracle))


def test_a_launcher_that_flushes_subnormals_is_found_out() -> None:
    """No verdict after it could be trusted, so there is none."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        torch.set_flush_denormal(True)
        return scaled(tensors, params)

    try:
        with pytest.raises(EnvironmentUnfit, match=r"call torch.set_flush_denormal\(False\)"):
            checked("agreement", _kernel(run))
    finally:
        torch.set_flush_denormal(False)


def test_a_limit_of_the_lane_is_unsupported_there_alone() -> None:
    """A declared limit answers for its check on its lane, with its reason."""
    limit = Limit(lane="interpreter", check="memory", because="no bands", reproduction="tests/x.py")
    spec = variant(limits=(limit,))
    assert checked("memory", spec) == Findings(outcome=Outcome.UNSUPPORTED, reason="no bands")
    assert checked("agreement", spec).outcome is Outcome.PASSED
    elsewhere = PlainLane(name="cuda")
    inputs = cases.build(CASE, elsewhere.device)
    assert checks.run("memory", spec, inputs, elsewhere).outcome is Outcome.PASSED


def test_an_unknown_check_lists_the_known_ones() -> None:
    """One sentence."""
    with pytest.raises(
        UsageError, match="unknown check 'speed': there are agreement, compile_cache, graphs"
    ):
        checked("speed", SPEC)


def test_costs_count_launches() -> None:
    """What a check spends of a spec's budget is what it launches, a control and relations included."""
    claim = Bitwise(runs=3, control=scaled)
    spec = variant(invariances=(_alone(), _negated()), reproducible=claim)
    for check in checks.names(spec):
        launches: list[int] = []

        def run(tensors: Tensors, params: Params, seen: list[int] = launches) -> dict[str, Tensor]:
            seen.append(1)
            return scaled(tensors, params)

        counted = dataclasses.replace(
            spec, run=run, reproducible=dataclasses.replace(claim, control=run)
        )
        findings = checked(check, counted)
        spent = 0 if findings.outcome is Outcome.UNSUPPORTED else checks.cost(check, counted)
        assert len(launches) == spent, check


def test_invariances_apply_to_specs_that_declare_some() -> None:
    """The other checks apply to every spec."""
    assert checks.names(SPEC) == ("agreement", "memory", "reproducibility", "streams")
    full = variant(invariances=(_alone(),), resized=lambda inputs: (), capturable=True)
    assert checks.names(full) == CHECKS


def test_a_claim_says_which_outputs_it_is_about() -> None:
    """Outputs outside the claim may vary, and the control is counted on those it has to vary."""

    def both(y: Callable[[Tensors, Params], Any]) -> Callable[[Tensors, Params], dict[str, Tensor]]:
        other = _drifting()
        return lambda tensors, params: {
            "y": y(tensors, params)["y"],
            "z": other(tensors, params)["y"],
        }

    bounds = {"y": exact_bits(), "z": exact_bits()}
    claim = Bitwise(control=both(_drifting()), outputs=frozenset({"y"}), varies=frozenset({"y"}))
    findings = checked("reproducibility", _kernel(both(scaled), bounds=bounds, reproducible=claim))
    assert findings.outcome is Outcome.PASSED
    assert findings.counts == {"control varied: y": 1}


def test_what_a_configuration_leaves_unwritten_is_compared_by_no_check() -> None:
    """The declared output holds garbage, and agreement, memory and reproducibility all pass."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        return {**scaled(tensors, params), "rest": torch.empty(3)}

    bounds = {"y": exact_bits(), "rest": exact_bits()}
    spec = _kernel(run, bounds=bounds, unwritten=lambda params: frozenset({"rest"}))
    for check in ("agreement", "memory", "reproducibility"):
        assert checked(check, spec).outcome is Outcome.PASSED, check
    undeclared = _kernel(run, bounds=bounds)
    assert checked("memory", undeclared).outcome is Outcome.FAILED


@pytest.mark.parametrize("check", ["compile_cache", "graphs", "streams"])
def test_a_lane_without_a_gpu_says_what_it_lacks(check: str) -> None:
    """Neither streams, graphs nor compiled variants exist there: unsupported, with the reason."""
    findings = checked(check, variant(resized=lambda inputs: ()))
    assert findings.outcome is Outcome.UNSUPPORTED
    assert findings.reason.startswith("lane interpreter ")
