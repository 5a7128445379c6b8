"""The check of reproducibility finds what varies from run to run, where its claim says that nothing does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bitproof.harness.bounds import exact_bits
from bitproof.harness.errors import SpecError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.spec import Bitwise, Invariance, Params, Tensors
from tests.harness.erring import after, kernel
from tests.harness.plain import checked, scaled, variant


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
        (after(lambda x, y: y.add_(torch.empty(2, 3).mul_(0.0))), "y[0, 0]: run 2 gives other"),
        (after(lambda x, y: y[1, 2].copy_(x.new_empty(1)[0])), "y[1, 2]: run 2 gives other bits"),
        (
            after(
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
    findings = checked("reproducibility", kernel(run))
    assert findings.outcome is Outcome.FAILED
    assert findings.findings[0].summary.startswith(summary)
    assert findings.measures["runs"] == 8


def test_reproducibility_compares_nan_by_their_bits() -> None:
    """Two NaN of different payload are not the same bits."""
    calls = itertools.count(0x7FC00000)

    def run(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        return {"y": torch.full((2, 3), next(calls), dtype=torch.int32).view(torch.float32)}

    assert checked("reproducibility", kernel(run)).outcome is Outcome.FAILED


def test_reproducibility_finds_another_shape_or_dtype() -> None:
    """A kernel that changes its mind about its output does not reproduce it."""
    for other in (torch.zeros(3), torch.zeros(2, dtype=torch.int32)):
        turns = itertools.cycle([torch.zeros(2), other])
        findings = checked("reproducibility", kernel(lambda t, p, turns=turns: {"y": next(turns)}))
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
    checked("reproducibility", kernel(counted("kernel"), reproducible=claim))
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

    findings = checked("reproducibility", kernel(run))
    assert findings.findings[0].summary == "y[0, 0]: run 2 gives other bits"
    same = Invariance(name="again", transform=lambda i: i, relate=lambda outputs, i: outputs)
    findings = checked("invariances", kernel(run, invariances=(same,)))
    assert findings.findings[0].summary == "y[0, 0]: again gives other bits"


def test_outputs_named_otherwise_from_run_to_run_are_the_specs_mistake() -> None:
    """There is nothing to compare them with."""
    names = itertools.cycle("yz")
    spec = kernel(lambda tensors, params: {next(names): torch.zeros(1)})
    with pytest.raises(SpecError, match=r"from run to run: \['y'\], then \['z'\] in run 2"):
        checked("reproducibility", spec)


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
    findings = checked("reproducibility", kernel(both(scaled), bounds=bounds, reproducible=claim))
    assert findings.outcome is Outcome.PASSED
    assert findings.counts == {"control varied: y": 1}
