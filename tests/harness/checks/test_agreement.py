"""The check of agreement finds what is wrong or unwritten, and has nothing to say of empty outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from bitproof.harness.errors import SpecError
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify
from bitproof.harness.spec import Params, Tensors
from tests.harness.erring import after, kernel
from tests.harness.plain import SPEC, RowsCase, checked, scaled, variant
from tests.harness.starting import scaled_beside_a_kernel


def test_agreement_finds_one_wrong_element() -> None:
    """And measures how far the worst one is."""
    findings = checked("agreement", kernel(after(lambda x, y: y[1, 2].mul_(1 + 2**-22))))
    assert findings.outcome is Outcome.FAILED
    assert [finding.index for finding in findings.findings] == [(1, 2)]
    assert findings.measures["worst"] == pytest.approx(2, abs=1)


def test_agreement_reads_what_nobody_wrote_as_nan() -> None:
    """An element that is never written holds no plausible number."""
    findings = checked("agreement", kernel(lambda tensors, params: {"y": torch.empty(2, 3)}))
    assert findings.outcome is Outcome.FAILED
    assert findings.findings[0].summary.startswith("y[0, 0] is nan, expected ")


def test_agreement_of_nothing_is_not_demonstrated() -> None:
    """Empty outputs agree with an empty oracle, which shows nothing."""
    findings = checked("agreement", SPEC, RowsCase(rows=0, columns=3))
    assert findings.outcome is Outcome.NOT_DEMONSTRATED
    assert findings.reason == "its outputs are empty"


def test_an_error_in_the_oracle_is_not_the_kernels() -> None:
    """It stops the run as the spec's mistake."""

    def oracle(tensors: Tensors, params: Params) -> dict[str, Any]:
        return {"y": np.zeros(2)[5]}

    with pytest.raises(SpecError, match="its oracle raised IndexError in oracle"):
        checked("agreement", variant(oracle=oracle))


@pytest.mark.parametrize(
    ("run", "outcome"),
    [(scaled, Outcome.NOT_DEMONSTRATED), (scaled_beside_a_kernel, Outcome.PASSED)],
)
def test_a_launcher_that_starts_no_kernel_demonstrates_nothing(run: Any, outcome: Outcome) -> None:
    """On a lane that counts."""
    quiet = settings(derandomize=True, database=None)
    spec = variant(run=run)
    result = falsify.search(spec, "agreement", InterpreterLane(), max_examples=3, base=quiet)
    assert result.outcome is outcome
    assert result.undemonstrated == ("no kernel was launched" if run is scaled else "")
