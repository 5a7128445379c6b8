"""What a wrong output is called: index, bits, distance and direction, and whose mistake it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor

from bitproof.harness.bounds import Bound, exact_bits, ulps
from bitproof.harness.case import Inputs
from bitproof.harness.errors import SpecError
from bitproof.harness.outcomes import Finding
from bitproof.harness.report import compare
from bitproof.harness.spec import Elementwise, KernelSpec
from tests.harness.plain import variant

Compare = Callable[..., tuple[list[Finding], float]]


def _spec(answers: Mapping[str, Any], **bounds: Bound) -> KernelSpec:
    bounds = bounds or {"y": exact_bits()}
    return variant(oracle=lambda tensors, params: answers, bounds=bounds)


def _compare(got: Tensor, want: Any, **inputs: Tensor) -> Finding | None:
    findings, _ = compare.against_oracle(_spec({"y": want}), {"y": got}, _inputs(**inputs))
    assert len(findings) <= 1
    return findings[0] if findings else None


def _inputs(**tensors: Tensor) -> Inputs:
    return Inputs(tensors=tensors, params={})


def _fp32(*patterns: int) -> Tensor:
    return torch.tensor(patterns, dtype=torch.int64).to(torch.int32).view(torch.float32)


def test_a_report_shows_element_bits_distance_bound_and_input() -> None:
    """The worst element is shown, with the inputs that have the output's shape."""
    got = torch.tensor([[1.0, 2.0], [2.5, 4.0]])
    want = np.array([[1.0, 2.0], [3.0, 4.0 + 2**-21]], np.float32)
    finding = _compare(
        got, want, x=torch.tensor([[1, 2], [7, 4]], dtype=torch.int8), z=torch.ones(4)
    )
    assert finding is not None
    assert finding.output == "y"
    assert finding.index == (1, 0)
    assert finding.summary == "y[1, 0] is 2.5, expected 3.0"
    assert finding.lines == (
        "got       2.5  0x40200000 (float32)",
        "expected  3.0  0x40400000 (float32)",
        "distance  2.09715e+06 ulp, allowed 0 (exact bits, any NaN equal to any NaN)",
        "wrong     2 of 4 elements, all toward zero",
        "at the same index: x[1, 0] = 7  0x07 (int8)",
    )
    assert finding.facts["wrong"] == 2
    assert finding.facts["direction"] == "all toward zero"


def test_an_input_is_the_cause_only_where_elements_depend_on_no_others() -> None:
    """The tensor that an elementwise kernel is declared to round, and no other of that shape."""
    cast = Elementwise(input="x", output="y", format="e4m3")
    spec = dataclasses.replace(_spec({"y": np.ones(2, np.float32)}), elementwise=cast)
    inputs = _inputs(x=torch.ones(2), z=torch.ones(2))
    (finding,), _ = compare.against_oracle(spec, {"y": torch.tensor([1.0, 2.0])}, inputs)
    assert finding.lines[-2:] == (
        "input     x[1] = 1.0  0x3f800000 (float32)",
        "at the same index: z[1] = 1.0  0x3f800000 (float32)",
    )


@pytest.mark.parametrize(
    ("got", "want", "direction"),
    [
        ([384.0, -384.0], [416.0, -416.0], "all toward zero"),
        ([416.0, -416.0], [384.0, -384.0], "all away from zero"),
        ([384.0, 416.0], [416.0, 384.0], "to both sides"),
        ([0.0, -0.0], [1.0, -1.0], "all toward zero"),
        ([-1.0], [1.0], ""),
        ([-0.0], [0.0], ""),
        ([math.nan, 1.0], [1.0, 2.0], ""),
    ],
)
def test_direction_is_named_where_it_means_something(
    got: list[float], want: list[float], direction: str
) -> None:
    """A wrong sign, a zero's sign or a NaN is on no side."""
    finding = _compare(torch.tensor(got), np.array(want, np.float32))
    assert finding is not None
    assert finding.facts["direction"] == direction


@pytest.mark.parametrize(
    ("got", "want", "summary"),
    [
        (torch.tensor([-0.0]), np.zeros(1, np.float32), "y[0] is -0.0, expected 0.0"),
        (_fp32(0x7F800001), np.zeros(1, np.float32), "y[0] is nan, expected 0.0"),
        (torch.tensor(3), np.array(4), "y[] is 3, expected 4"),
        (torch.tensor([True]), np.array([False]), "y[0] is 1, expected 0"),
        (
            torch.tensor([2.0], dtype=torch.float8_e4m3fn),
            np.array([2.25], ml_dtypes.float8_e4m3fn),
            "y[0] is 2.0, expected 2.25",
        ),
        (
            torch.tensor([2.0], dtype=torch.bfloat16),
            torch.tensor([3.0], dtype=torch.bfloat16),
            "y[0] is 2.0, expected 3.0",
        ),
    ],
)
def test_every_dtype_has_its_words(got: Tensor, want: Any, summary: str) -> None:
    """Zeros, signalling NaN, scalars, integers, small floats; oracles in numpy or torch."""
    finding = _compare(got, want)
    assert finding is not None
    assert finding.summary == summary


def test_nan_equals_nan_whatever_its_payload() -> None:
    """Agreement asks that it is a NaN, quiet or signalling, of either sign."""
    nans = _fp32(0x7FC00000, 0xFFC12345, 0x7F800001)
    assert _compare(nans, _fp32(0x7F800002, 0x7FC00000, 0xFFFFFFFF)) is None


@pytest.mark.parametrize("count", [1, 7, 8, 40, 400])
@pytest.mark.parametrize("every", [1, 97])
def test_one_wrong_bit_is_found_at_any_length(count: int, every: int) -> None:
    """The last of the elements alone, among many or few NaN of other payloads that are no difference."""
    got, want = torch.full((count,), 0x38, dtype=torch.uint8), np.full(count, 0x38, np.uint8)
    got[::every], want[::every] = 0x7F, 0xFF
    assert _compare(got.view(torch.float8_e4m3fn), want.view(ml_dtypes.float8_e4m3fn)) is None
    got[-1], want[-1] = 0x80, 0x00
    finding = _compare(got.view(torch.float8_e4m3fn), want.view(ml_dtypes.float8_e4m3fn))
    assert finding is not None
    assert finding.index == (count - 1,)
    assert finding.facts["wrong"] == 1


def test_strided_outputs_are_compared_by_index() -> None:
    """A transposed view is compared as the array it shows, not as its memory."""
    whole = torch.arange(6.0).reshape(2, 3)
    assert _compare(whole.t(), whole.numpy().T.copy()) is None
    finding = _compare(whole.t(), whole.numpy().T + np.float32([[0, 0], [0, 1], [0, 0]]))
    assert finding is not None
    assert finding.index == (1, 1)


def test_the_program_that_wrote_an_element_is_named() -> None:
    """Where the spec knows it."""
    spec = variant(
        oracle=lambda tensors, params: {"y": np.zeros(3, np.float32)},
        program=lambda name, index, inputs: f"program {index[0] // 2} of {name}",
    )
    findings, _ = compare.against_oracle(spec, {"y": torch.tensor([0.0, 0, 9])}, _inputs())
    assert findings[0].lines[-1] == "written by program 1 of y"


def test_shape_and_dtype_come_before_values() -> None:
    """An output of another shape or dtype than the oracle's is wrong as a whole."""
    finding = _compare(torch.zeros(2, 3), np.zeros((3, 2), np.float32))
    assert finding is not None
    assert finding.summary == "y has shape (2, 3), expected (3, 2)"
    finding = _compare(torch.zeros(2, dtype=torch.float16), np.zeros(2, np.float32))
    assert finding is not None
    assert finding.summary == "y has dtype float16, expected float32"
    finding = _compare(torch.zeros(0), np.zeros((0, 4), np.float32))
    assert finding is not None
    assert finding.summary == "y has shape (0,), expected (0, 4)"


def test_a_declared_type_is_held_where_the_oracle_answers_in_float64() -> None:
    """Such an answer fits every type by itself."""
    spec = _spec({"y": np.array([1.0, 2.0])}, y=ulps(1, because="x"))
    got = {"y": torch.tensor([1.0, 2.0])}
    assert compare.against_oracle(spec, got, _inputs()) == ([], 0.0)
    typed = dataclasses.replace(spec, dtypes=lambda tensors, params: {"y": torch.bfloat16})
    (finding,), worst = compare.against_oracle(typed, got, _inputs())
    assert (finding.summary, worst) == ("y has dtype float32, expected bfloat16", np.inf)
    broken = dataclasses.replace(spec, dtypes=lambda tensors, params: {"y": tensors["absent"]})
    with pytest.raises(SpecError, match="its dtypes raised KeyError"):
        compare.against_oracle(broken, got, _inputs())


def test_worst_distance_is_in_units_of_the_bound() -> None:
    """What a summary keeps: how much of its bound an output used, also when it holds."""
    spec = _spec({"y": np.array([1.0, 2.0])}, y=ulps(4, because="x"))
    got = torch.tensor([1.0 + 2**-23, 2.0 + 3 * 2**-22])
    assert compare.against_oracle(spec, {"y": got}, _inputs()) == ([], 0.75)


def test_every_output_is_compared() -> None:
    """CheckResult come in the order of names, one for each output that is wrong or missing."""
    answers = {name: np.zeros(1, np.float32) for name in "abc"}
    spec = _spec(answers, a=exact_bits(), b=exact_bits(), c=exact_bits())
    outputs = {"c": torch.ones(1), "a": torch.ones(1)}
    findings, worst = compare.against_oracle(spec, outputs, _inputs())
    assert [finding.summary for finding in findings] == [
        "a[0] is 1.0, expected 0.0",
        "output b is missing",
        "c[0] is 1.0, expected 0.0",
    ]
    assert worst == 0x3F800000


def _raising(tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> Mapping[str, Any]:
    raise ValueError("no such\nformat")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (_spec({}), "its oracle does not answer output 'y'"),
        (
            _spec({"y": np.zeros(1)}),
            "output 'y': an exact bound needs the oracle in the output's dtype float32",
        ),
        (
            _spec({"y": np.zeros(1, np.float32), "z": 0}, z=exact_bits()),
            "output 'y' has no bound: declare one",
        ),
        (variant(oracle=lambda tensors, params: None), "its oracle must return a dict of answers"),
        (
            variant(oracle=_raising),
            r"spec 'scaled_rows': its oracle raised ValueError in _raising \(.*:\d+\): no such format",
        ),
    ],
)
def test_the_specs_own_mistakes_are_no_findings(spec: KernelSpec, message: str) -> None:
    """What spec, bounds or oracle lack is said of the spec, never held against the kernel."""
    with pytest.raises(SpecError, match=message):
        compare.against_oracle(spec, {"y": torch.zeros(1)}, _inputs())


@pytest.mark.parametrize(
    ("first", "other", "summary"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0]), "y[0]: run 2 gives other bits"),
        (_fp32(0x7FC00000), _fp32(0x7FC00001), "y[0]: run 2 gives other bits"),
        (torch.tensor(1), torch.tensor(2), "y[]: run 2 gives other bits"),
        (
            torch.zeros(2),
            torch.zeros(3),
            "y: run 2 gives float32(3,), expected float32(2,)",
        ),
        (
            torch.zeros(2),
            torch.zeros(2, dtype=torch.int32),
            "y: run 2 gives int32(2,), expected float32(2,)",
        ),
    ],
)
def test_two_runs_are_compared_by_bits_alone(first: Tensor, other: Tensor, summary: str) -> None:
    """Signs of zero and payloads of NaN count between two runs of one kernel."""
    finding = compare.same_bits("y", first, other, "run 2")
    assert finding is not None
    assert finding.summary == summary
    assert compare.same_bits("y", first, first.clone(), "run 2") is None


def test_a_difference_between_runs_shows_both_bits() -> None:
    """First and other in decimal and hexadecimal, and how many elements differ."""
    finding = compare.same_bits("y", torch.tensor([1, 2, 3]), torch.tensor([1, 5, 6]), "run 3")
    assert finding is not None
    assert finding.index == (1,)
    assert finding.lines == (
        "first     2  0x0000000000000002 (int64)",
        "other     5  0x0000000000000005 (int64)",
        "differing 2 of 3 elements",
    )
