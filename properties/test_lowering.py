"""Lowering: what other targets' compilers make of a kernel holds no hazard that its spec does not declare.

No GPU is needed, on any lane: code is compiled for each target and read, not run. `bitproof lowering`
prints the same reports.
"""

import dataclasses
from collections.abc import Callable

import pytest

from bitproof.harness.lowering import report
from bitproof.harness.lowering.compile import reading
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import profiles
from bitproof.harness.subjects.discovery import Found
from bitproof.harness.targets import architectures as targets


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The usual targets, all of them at night."""
    nightly = metafunc.config.getoption("--hypothesis-profile", None) == profiles.NIGHTLY
    metafunc.parametrize("target", targets.ALL if nightly else targets.USUAL)


def test_lowering(
    kernel: Found, target: str, record_property: Callable[[str, object], None]
) -> None:
    """Every hazard in the target's code is declared by the spec, with its reason."""
    excluded = report.excluded(kernel.spec, target)
    if excluded is not None:
        record_property("bitproof", dataclasses.asdict(excluded))
        pytest.skip(excluded.report)
    judged = report.judge(reading(kernel, target), kernel.spec)
    record_property("bitproof", dataclasses.asdict(report.entry(judged)))
    text = "\n".join(report.lines(judged))
    if judged.outcome is Outcome.FAILED:
        pytest.fail(text, pytrace=False)
    if judged.outcome is not Outcome.PASSED:
        pytest.skip(text)
