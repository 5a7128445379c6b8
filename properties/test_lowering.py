"""Lowering: what other targets' compilers make of a kernel holds no hazard that its spec does not declare.

No GPU is needed, on any lane: code is compiled for each target and read, not run. `bitproof lowering`
prints the same reports.
"""

import pytest

from bitproof.harness.lowering import report
from bitproof.harness.lowering.compile import read_one
from bitproof.harness.report.summary import Entry
from bitproof.harness.search import profiles
from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.harness.targets import architectures as targets
from bitproof.options import ask
from bitproof.suite import Conclude


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The usual targets, all of them at night."""
    nightly = metafunc.config.getoption("--hypothesis-profile", None) == profiles.NIGHTLY
    metafunc.parametrize("target", targets.ALL if nightly else targets.USUAL)


def test_lowering(
    request: pytest.FixtureRequest, conclude: Conclude, kernel: FoundSpec, target: str
) -> None:
    """Every hazard in the target's code is declared by the spec, with its reason."""
    named = bool(ask(request.config, "kernel"))
    nightly = request.config.getoption("--hypothesis-profile", None) == profiles.NIGHTLY

    def judge() -> Entry:
        excluded = report.find_excluded(kernel.spec, target, patient=named or nightly)
        return excluded or report.entry(report.judge(read_one(kernel, target), kernel.spec))

    conclude(f"lowering for {target}", kernel, judge)
