"""What an exception out of a launch stands for, however deep the compiler or interpreter wrapped it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from bitproof.harness.errors import (
    EnvironmentUnfit,
    Refused,
    SpecError,
    Uncompilable,
    Unsupported,
    causes,
    one_line,
)
from bitproof.harness.outcomes import CheckResult, Finding, Outcome, classify, conclude


class OutOfResources(Exception):
    """Called like Triton's, which this module must recognise without importing Triton."""


def _wrapped(*links: Exception) -> Exception:
    """The first of `links`, each caused by the next."""
    for outer, inner in itertools.pairwise(links):
        outer.__cause__ = inner
    return links[0]


def _round(outer: Exception, inner: Exception) -> Exception:
    """`outer`, caused by `inner`, which was raised from `outer`."""
    outer.__cause__, inner.__cause__ = inner, outer
    return outer


def _handling(inner: Exception, outer: Exception) -> Exception:
    """`outer`, raised while `inner` was being handled."""
    try:
        try:
            raise inner
        except Exception:
            raise outer  # noqa: B904 (the implicit context is the point)
    except Exception as error:
        return error


@pytest.mark.parametrize(
    ("error", "outcome", "text"),
    [
        (lambda: Refused("no tails"), Outcome.REFUSED, "no tails"),
        (lambda: ZeroDivisionError("x"), Outcome.REFUSED, "x"),
        (lambda: Unsupported("no inline assembly"), Outcome.UNSUPPORTED, "no inline assembly"),
        (
            lambda: _wrapped(RuntimeError("outer"), ValueError(), Unsupported("deep")),
            Outcome.UNSUPPORTED,
            "deep",
        ),
        (
            lambda: _wrapped(RuntimeError("outer"), Uncompilable("no fp8 sums")),
            Outcome.FAILED,
            "no fp8 sums",
        ),
        (
            lambda: _round(RuntimeError("outer"), ValueError("inner")),
            Outcome.CRASHED,
            "the launch raised ValueError: inner",
        ),
        (lambda: torch.OutOfMemoryError("spent"), Outcome.OUT_OF_RESOURCES, "spent"),
        (lambda: OutOfResources("shared memory"), Outcome.OUT_OF_RESOURCES, "shared memory"),
        (lambda: MemoryError(), Outcome.OUT_OF_RESOURCES, "MemoryError"),
        (
            lambda: _wrapped(ValueError("outer"), OutOfResources("registers")),
            Outcome.OUT_OF_RESOURCES,
            "registers",
        ),
        (
            lambda: RuntimeError("Triton Error [CUDA]: out of memory"),
            Outcome.OUT_OF_RESOURCES,
            "Triton Error [CUDA]: out of memory",
        ),
        (
            lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
            Outcome.OUT_OF_RESOURCES,
            "DefaultCPUAllocator: can't allocate memory: you tried",
        ),
        (
            lambda: RuntimeError("an access out of memory bounds"),
            Outcome.CRASHED,
            "the launch raised RuntimeError: an access out of memory bounds",
        ),
        (
            lambda: ValueError("out of memory, said the kernel"),
            Outcome.CRASHED,
            "the launch raised ValueError: out of memory, said the kernel",
        ),
        (
            lambda: _wrapped(RuntimeError("outer"), RuntimeError("inner"), KeyError("root")),
            Outcome.CRASHED,
            "the launch raised KeyError: 'root'",
        ),
        (
            lambda: _handling(KeyError("block"), ValueError("no such configuration")),
            Outcome.CRASHED,
            "the launch raised ValueError: no such configuration",
        ),
        (
            lambda: _wrapped(RuntimeError("outer"), ZeroDivisionError("inside the kernel")),
            Outcome.CRASHED,
            "the launch raised ZeroDivisionError: inside the kernel",
        ),
        (
            lambda: AssertionError("2 == 3"),
            Outcome.CRASHED,
            "the launch raised AssertionError: 2 == 3",
        ),
        (
            lambda: torch.AcceleratorError("an illegal memory access was encountered"),
            Outcome.CRASHED,
            "the launch raised AcceleratorError: an illegal memory access was encountered",
        ),
    ],
)
def test_exceptions_are_sorted(error: Callable[[], Exception], outcome: Outcome, text: str) -> None:
    """Only the launcher's own exception refuses; scarce resources and missing lanes count at any depth."""
    findings = classify(error(), (ZeroDivisionError,))
    assert findings.outcome is outcome
    assert findings.text == text
    assert bool(findings.findings) == outcome.is_defect


def test_a_chain_of_causes_that_leads_back_into_itself_ends() -> None:
    """Each exception comes once, whichever of the links closes the circle."""
    outer, inner = RuntimeError("outer"), ValueError("inner")
    assert list(causes(_round(outer, inner))) == [outer, inner]
    assert list(causes(_round(outer, inner), contexts=True)) == [outer, inner]


@pytest.mark.parametrize("error", [EnvironmentUnfit("old triton"), SpecError("no such output")])
def test_our_own_errors_stay_errors(error: Exception) -> None:
    """Also from inside a launch, where the interpreter wraps them."""
    with pytest.raises(type(error), match=str(error)):
        classify(_wrapped(RuntimeError("outer"), error), ())


def test_defects_are_what_counts_against_a_kernel() -> None:
    """And nothing else is shrunk."""
    assert {outcome.value for outcome in Outcome if outcome.is_defect} == {
        "failed",
        "crashed",
        "hung",
    }


def test_findings_are_worded_with_their_details_indented() -> None:
    """A summary line each, its lines below it."""
    found = [Finding(summary="one", lines=("a", "b")), Finding(summary="two")]
    findings = conclude(found, worst=2.0)
    assert findings.outcome is Outcome.FAILED
    assert findings.text == "one\n  a\n  b\ntwo"
    assert findings.measures == {"worst": 2.0}
    assert conclude([]) == CheckResult(outcome=Outcome.PASSED)
    assert CheckResult(outcome=Outcome.REFUSED, reason="why").text == "why"


def test_error_texts_fit_on_a_line() -> None:
    """Whitespace is folded, long texts are cut, and an empty one is its type's name."""
    assert one_line(ValueError("a\n  b\tc")) == "a b c"
    assert one_line(ValueError()) == "ValueError"
    long = one_line(ValueError("x" * 400))
    assert (len(long), long[-4:]) == (300, "x...")
