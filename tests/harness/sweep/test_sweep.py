"""The exhaustive sweep: what it counts is exact, whatever the range, the pace and the interruptions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from bitproof.harness import lanes
from bitproof.harness.case import Launch
from bitproof.harness.commands.subject import find_subject
from bitproof.harness.errors import SpecError, UsageError
from bitproof.harness.lanes.base import LaunchFailed
from bitproof.harness.spec import Elementwise
from bitproof.harness.subjects.planting import with_fault
from bitproof.harness.sweep.census import Census, Wrong, lines
from bitproof.harness.sweep.sweep import ROW, Pace, compute_expected, sweep
from bitproof.oracles import formats
from bitproof.oracles.rounding import round_to
from tests.harness import narrowing

ONE, TWO = 0x3F800000, 0x40000000
QUIET_NAN = 0x7FC00000

# Rows at both ends of the positive and the negative half, and around 1.
EDGES = ((0, 3 * ROW), (ONE - ROW, ONE + ROW), (0x7F7FF000, 0x80002000), (0xFFFFE000, 1 << 32))


def spoiled(wrong: dict[int, int]) -> Callable[..., dict[str, torch.Tensor]]:
    """The correct cast, but for the code given to each of these patterns."""

    def run(tensors: Any, params: Any) -> dict[str, torch.Tensor]:
        y = narrowing.narrowed(tensors, params)["y"]
        codes, patterns = y.view(torch.uint8), tensors["x"].view(torch.int32)
        for pattern, code in wrong.items():
            codes[patterns == np.uint32(pattern).astype(np.int32).item()] = code
        return {"y": y}

    return run


@pytest.mark.parametrize(("low", "high"), EDGES)
def test_a_correct_cast_has_no_wrong_result(low: int, high: int) -> None:
    """Signs, zeros, NaN and the saturated end included; every pattern of the range is counted."""
    census = sweep(narrowing.found(), lanes.present(), low=low, high=high)
    assert census == Census(tried=high - low)


def test_double_rounding_is_counted_exactly_over_a_binade() -> None:
    """Each of the four ties of [1, 2) that go to an even code below swallows the 8191 values above."""
    faulty = with_fault(narrowing.found(), "rounds through fp16")
    census = sweep(faulty, lanes.present(), low=ONE, high=TWO)
    values = np.arange(ONE, TWO, dtype=np.uint32)
    through = (values & np.uint32(0xFFFFE000)).view(np.float32).astype(ml_dtypes.float8_e4m3fn)
    direct = values.view(np.float32).astype(ml_dtypes.float8_e4m3fn)
    assert int((through.view(np.uint8) != direct.view(np.uint8)).sum()) == 4 * 8191
    assert dataclasses.replace(census, first=()) == Census(
        tried=1 << 23, wrong=4 * 8191, toward_zero=4 * 8191, largest_ulps=1
    )
    assert census.first[0] == Wrong(pattern=0x3F880001, got=0x38, expected=0x39)
    assert lines(census, formats.E4M3)[0] == "32,764 wrong of 8,388,608, all toward zero"


def test_every_kind_of_wrong_result_has_its_count() -> None:
    """Toward and away from zero, the other sign, NaN made and NaN lost, and the largest distance."""
    wrong = {
        0x00000000: 0x80,  # 0 -> -0
        ONE: 0x3B,  # 1 -> 1.375, three steps away
        ONE + 1: 0x37,  # -> 0.9375, one step toward
        ONE + 2: 0xB8,  # -> -1
        ONE + 3: 0x7F,  # -> NaN
        QUIET_NAN: 0x7E,  # NaN -> 448
        0xBF800000: 0xB7,  # -1 -> -0.9375
    }
    spec = narrowing.found(run=spoiled(wrong))
    census = Census()
    for low in (0, ONE, QUIET_NAN, 0xBF800000):
        census += sweep(spec, lanes.present(), low=low, high=low + ROW)
    assert dataclasses.replace(census, first=()) == Census(
        tried=4 * ROW,
        wrong=7,
        toward_zero=2,
        away_from_zero=1,
        other_sign=2,
        nan_made=1,
        nan_lost=1,
        largest_ulps=2 * 0x38,
    )
    assert [(w.pattern, w.got) for w in census.first] == list(wrong.items())


def test_only_patterns_of_the_range_are_counted() -> None:
    """Bounds need not be multiples of anything: the neighbours outside are not looked at."""
    low, high = ONE + 5, ONE + 2 * ROW + 7
    outside = {low - 1: 0, high: 0}
    inside = {low: 0, high - 1: 0}
    spec = narrowing.found(run=spoiled(outside | inside))
    census = sweep(spec, lanes.present(), low=low, high=high)
    assert census.tried == high - low
    assert [wrong.pattern for wrong in census.first] == sorted(inside)
    single = sweep(spec, lanes.present(), low=low, high=low + 1)
    assert (single.tried, single.wrong) == (1, 1)


@pytest.mark.parametrize("chunk", [ROW, 1 << 18])
@pytest.mark.parametrize("launches", [1, 3])
def test_the_pace_does_not_change_the_census(chunk: int, launches: int) -> None:
    """However the range is cut, counts and first wrong inputs are the same."""
    low, high = ONE + 0x7F000, ONE + 0x91003
    faulty = with_fault(narrowing.found(), "rounds through fp16")
    pace = Pace(launch=Launch(), chunk=chunk, launches=launches)
    census = sweep(faulty, lanes.present(), low=low, high=high, pace=pace)
    assert census == sweep(faulty, lanes.present(), low=low, high=high)
    assert census.wrong == 8191


@pytest.mark.parametrize("overflow", ["saturate", "overflows"])
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "bf16", "fp16", "e4m3fnuz"])
def test_rows_hold_the_answers_of_the_rounding_oracle(name: str, overflow: Any) -> None:
    """First and last element of one row in 64, against rounding those very values."""
    fmt = formats.by_name(name)
    if overflow == "overflows":
        overflow = "nan" if fmt.infinity is None else "inf"
    rows = compute_expected(Elementwise(input="x", output="y", format=name, overflow=overflow))
    start = np.arange(0, 1 << 20, 64, dtype=np.uint32) * np.uint32(ROW)
    for codes, offset in ((rows.first, 0), (rows.rest, 1), (rows.rest, ROW - 1)):
        values = (start + np.uint32(offset)).view(np.float32)
        right = round_to(values, fmt, overflow=overflow)
        assert np.array_equal(codes[::64], right)


def test_any_nan_is_right_where_a_nan_is_right() -> None:
    """The payload and sign of a NaN are a conversion's own business."""
    spec = narrowing.found(
        run=lambda tensors, params: {
            "y": torch.full(tensors["x"].shape, -1, dtype=torch.int16).view(torch.bfloat16)
        },
        elementwise=Elementwise(input="x", output="y", format="bf16", overflow="inf"),
    )
    census = sweep(spec, lanes.present(), low=0x7F800000, high=0x7F802000)
    assert (census.wrong, census.nan_made) == (1, 1)
    assert census.first[0].pattern == 0x7F800000


def test_a_kernel_that_is_no_cast_cannot_be_swept() -> None:
    """The sentence says what its spec lacks."""
    with pytest.raises(UsageError, match="'narrowed' cannot be swept: its spec declares no"):
        sweep(narrowing.found(elementwise=None), lanes.present(), high=ROW)


@pytest.mark.parametrize(
    ("format_", "overflow", "said"),
    [
        ("e8m0", "saturate", "no table of breakpoints for e8m0"),
        ("fp32", "inf", "no table of breakpoints for fp32"),
        ("e4m3", "inf", "e4m3 has no inf"),
    ],
)
def test_a_cast_without_a_table_is_the_specs_error(format_: str, overflow: Any, said: str) -> None:
    """Formats too fine to tabulate, policies a format has not."""
    cast = Elementwise(input="x", output="y", format=format_, overflow=overflow)
    with pytest.raises(SpecError, match=f"kernel 'narrowed' cannot be swept: .*{said}"):
        sweep(narrowing.found(elementwise=cast), lanes.present(), high=ROW)


@pytest.mark.parametrize(("low", "high"), [(5, 5), (6, 5), (-1, 5), (0, (1 << 32) + 1)])
def test_a_range_must_hold_patterns(low: int, high: int) -> None:
    """Empty, backward and too wide ranges are refused."""
    with pytest.raises(UsageError, match="no bit patterns in"):
        sweep(narrowing.found(), lanes.present(), low=low, high=high)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"z": torch.zeros(ROW)}, "gives no output 'y'"),
        ({"y": torch.zeros(ROW)}, r"output 'y' is torch.float32\[4096\], not e4m3\[4096\]"),
        ({"y": torch.zeros(5, dtype=torch.uint8)}, r"output 'y' is torch.uint8\[5\]"),
    ],
)
def test_an_output_that_is_not_as_declared_is_the_specs_error(
    output: dict[str, torch.Tensor], said: str
) -> None:
    """Missing, of another width or of another length."""
    with pytest.raises(SpecError, match=said):
        sweep(narrowing.found(run=lambda t, p: output), lanes.present(), high=ROW)


def test_what_a_launcher_raises_is_told_from_the_sweeps_own_errors() -> None:
    """It arrives as the cause of LaunchFailed."""

    def run(tensors: Any, params: Any) -> Any:
        raise IndexError("beyond")

    with pytest.raises(LaunchFailed) as raised:
        sweep(narrowing.found(run=run), lanes.present(), high=ROW)
    assert isinstance(raised.value.__cause__, IndexError)


DOUBLE_ROUNDING = "rounds twice, first toward zero to fp16"


@pytest.mark.parametrize(
    "kernel", ["cast_bf16", "cast_e4m3", "cast_e5m2", "cast_fp16", "round_e4m3"]
)
def test_the_casts_are_right_where_roundings_go_wrong(kernel: str) -> None:
    """The ends of the number line, where it overflows, and one part in eight of a binade."""
    found = find_subject(kernel, ())
    for low, high in (*EDGES, (0x43E00000 - ROW, 0x43E90000), (ONE, ONE + (1 << 20))):
        assert sweep(found, lanes.present(), low=low, high=high).wrong == 0


def test_a_triton_kernel_that_rounds_twice_is_counted_exactly() -> None:
    """The same 4 * 8191 values as by torch's own operations, on the lane at hand."""
    faulty = find_subject("cast_e4m3", (), DOUBLE_ROUNDING)
    census = sweep(faulty, lanes.present(), low=ONE, high=TWO)
    assert census == sweep(
        with_fault(narrowing.found(), "rounds through fp16"), lanes.present(), low=ONE, high=TWO
    )


@pytest.mark.slow
def test_double_rounding_is_wrong_for_516033_of_the_values_to_448() -> None:
    """The published census of the defect, all of it toward zero by one step."""
    faulty = find_subject("cast_e4m3", (), DOUBLE_ROUNDING)
    census = sweep(faulty, lanes.present(), low=0, high=0x43E00001)
    assert (census.wrong, census.toward_zero, census.largest_ulps) == (516033, 516033, 1)
