"""What holds of every check: which outputs it takes, what a launcher may do or raise, where it applies."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bitproof.harness import case as cases
from bitproof.harness import checks
from bitproof.harness.bits import bits
from bitproof.harness.bounds import exact_bits
from bitproof.harness.errors import EnvironmentUnfit, Refused, SpecError, Unsupported, UsageError
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.spec import Bitwise, Limit, Params, Tensors
from bitproof.harness.vocabulary import CHECKS
from tests.harness.erring import alone, kernel, negated
from tests.harness.plain import CASE, SPEC, PlainLane, RowsCase, checked, scaled, variant


@pytest.mark.parametrize("check", ["agreement", "memory", "reproducibility"])
@pytest.mark.parametrize("case", [CASE, RowsCase(rows=8, columns=8, seed=9)])
def test_a_right_kernel_passes(check: str, case: RowsCase) -> None:
    """No check complains about the plain kernel."""
    findings = checked(check, SPEC, case)
    assert (findings.outcome, findings.findings) == (Outcome.PASSED, ())


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
        spec = kernel(run, oracle=right)
        assert tuple(c for c in every if checked(c, spec).outcome is Outcome.FAILED) == failing


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
    spec = kernel(run, inplace=frozenset({"x"}))
    for check in ("agreement", "memory", "reproducibility"):
        assert checked(check, spec).outcome is Outcome.PASSED
    assert checked("memory", kernel(run)).outcome is Outcome.FAILED


def test_two_outputs_may_share_one_allocation() -> None:
    """Halves of one buffer are checked as any other outputs."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        both = torch.empty(2, 2, 3)
        torch.mul(tensors["x"], 2.0, out=both[0])
        both[1] = both[0]
        return {"y": both[0], "z": both[1]}

    spec = kernel(
        run,
        oracle=lambda tensors, params: dict.fromkeys("yz", 2 * tensors["x"].numpy()),
        bounds=dict.fromkeys("yz", SPEC.bounds["y"]),
    )
    for check in ("agreement", "memory", "reproducibility"):
        assert checked(check, spec).outcome is Outcome.PASSED


@pytest.mark.parametrize("check", ["agreement", "memory", "reproducibility"])
def test_warnings_are_no_verdict(check: str) -> None:
    """Also where, as here, whoever runs the check makes them errors."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        warnings.warn("deprecated", DeprecationWarning, stacklevel=1)
        return scaled(tensors, params)

    assert checked(check, kernel(run)).outcome is Outcome.PASSED


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

    findings = checked(check, kernel(run, refuses=(KeyError,)))
    assert findings.outcome is outcome
    assert findings.text.startswith(text)


@pytest.mark.parametrize("returned", [None, {}, [1], {"y": 1.0}, {1: torch.ones(1)}, torch.ones(1)])
@pytest.mark.parametrize("check", ["agreement", "memory", "reproducibility"])
def test_a_launcher_must_return_named_tensors(check: str, returned: Any) -> None:
    """Anything else is a mistake of the spec that says what it returned."""
    with pytest.raises(
        SpecError, match="its launcher must return a dict of tensors by name, it ret"
    ):
        checked(check, kernel(lambda tensors, params: returned))


def test_complex_outputs_are_refused_with_the_remedy() -> None:
    """No bound has anything to say of them."""
    spec = kernel(lambda tensors, params: {"y": torch.ones(1, dtype=torch.complex64)})
    with pytest.raises(SpecError, match=r"'y' is complex: return torch\.view_as_real of it"):
        checked("agreement", spec)


def test_outputs_with_a_gradient_are_compared_like_others() -> None:
    """Their history is dropped."""
    spec = kernel(lambda tensors, params: {"y": tensors["x"].requires_grad_() * 2.0})
    for check in ("agreement", "memory", "reproducibility"):
        assert checked(check, spec).outcome is Outcome.PASSED


def test_a_launcher_that_flushes_subnormals_is_found_out() -> None:
    """No verdict after it could be trusted, so there is none."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        torch.set_flush_denormal(True)
        return scaled(tensors, params)

    try:
        with pytest.raises(EnvironmentUnfit, match=r"call torch.set_flush_denormal\(False\)"):
            checked("agreement", kernel(run))
    finally:
        torch.set_flush_denormal(False)


def test_a_limit_of_the_lane_is_unsupported_there_alone() -> None:
    """A declared limit answers for its check on its lane, with its reason."""
    limit = Limit(lane="interpreter", check="memory", because="no bands", reproduction="tests/x.py")
    spec = variant(limits=(limit,))
    assert checked("memory", spec) == CheckResult(outcome=Outcome.UNSUPPORTED, reason="no bands")
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
    spec = variant(invariances=(alone(), negated()), reproducible=claim)
    for check in checks.names(spec):
        launches: list[int] = []

        def run(tensors: Tensors, params: Params, seen: list[int] = launches) -> dict[str, Tensor]:
            seen.append(1)
            return scaled(tensors, params)

        counted = dataclasses.replace(
            spec, run=run, reproducible=dataclasses.replace(claim, control=run)
        )
        findings = checked(check, counted)
        spent = (
            0 if findings.outcome is Outcome.UNSUPPORTED else checks.find(check).launches(counted)
        )
        assert len(launches) == spent, check


def test_invariances_apply_to_specs_that_declare_some() -> None:
    """The other checks apply to every spec."""
    assert checks.names(SPEC) == ("agreement", "memory", "reproducibility", "streams")
    full = variant(invariances=(alone(),), must_not_recompile=lambda inputs: (), capturable=True)
    assert checks.names(full) == CHECKS


def test_what_a_configuration_leaves_unwritten_is_compared_by_no_check() -> None:
    """The declared output holds garbage, and agreement, memory and reproducibility all pass."""

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        return {**scaled(tensors, params), "rest": torch.empty(3)}

    bounds = {"y": exact_bits(), "rest": exact_bits()}
    spec = kernel(run, bounds=bounds, unwritten=lambda params: frozenset({"rest"}))
    for check in ("agreement", "memory", "reproducibility"):
        assert checked(check, spec).outcome is Outcome.PASSED, check
    undeclared = kernel(run, bounds=bounds)
    assert checked("memory", undeclared).outcome is Outcome.FAILED


@pytest.mark.parametrize("check", ["graphs", "streams"])
def test_a_lane_without_a_gpu_says_what_it_lacks(check: str) -> None:
    """Neither streams nor graphs exist there: unsupported, with the reason."""
    findings = checked(check, variant(must_not_recompile=lambda inputs: ()))
    assert findings.outcome is Outcome.UNSUPPORTED
    assert findings.reason.startswith("lane interpreter ")
