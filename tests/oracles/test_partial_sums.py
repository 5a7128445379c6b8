"""Bounds from partial sums against both implementations of a tensor core, on every row of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitproof.harness.lanes.interpreter.numerics import tensor_cores as lane
from bitproof.oracles import formats, partial_sums
from bitproof.oracles.estimates import Estimate
from bitproof.oracles.instructions import INSTRUCTIONS, Instruction
from bitproof.oracles.tensor_cores import FORMATS, SM_90, multiply
from tests.oracles.steps import finite

Array = np.ndarray[Any, Any]
PLAIN = {
    "fp16 of fp8 loads": ("fp16", SM_90["e4m3", "mma"]),
    "tf32 of bf16 loads": ("tf32", replace(SM_90["tf32", "mma"], interleaved=2)),
    **{
        f"{target} {kind} {unit}": (kind, one)
        for target, table in INSTRUCTIONS.items()
        for (kind, unit), one in table.items()
    },
}
# Each instruction once: some targets share them.
ROWS = {name: row for row, name in {row: name for name, row in reversed(PLAIN.items())}.items()}
KINDS = ("normal", "one-sided", "wide", "subnormal", "cancelling", "sparse", "ruled by one")


def draw(kind: str, fmt: formats.Format, rows: int, depth: int, seed: int) -> Array:
    """Codes [rows, depth] of finite numbers."""
    random = np.random.default_rng(seed)
    if kind in ("wide", "subnormal"):
        codes = random.integers(0, fmt.largest_code + 1, (rows, depth)).astype(np.int64)
        if fmt.name in ("bf16", "fp32"):
            # No sum overflows.
            codes = codes // 2 + fmt.largest_code // 4
        if kind == "subnormal" and seed % 2:
            codes &= (1 << fmt.mantissa_bits) - 1
        return (codes | random.integers(0, 2, codes.shape) * fmt.sign_bit).astype(fmt.storage)
    values = random.standard_normal((rows, depth))
    if kind == "one-sided":
        values = np.abs(values)
    if kind == "sparse":
        values *= random.random((rows, depth)) < 0.2
    if kind == "cancelling":
        half = depth // 2
        values[:, half : 2 * half] = values[:, :half] * (-1 if seed % 2 else 1)
    if kind == "ruled by one":
        values[:, random.integers(depth)] *= 100
    return formats.bits(values.astype(np.float32).astype(fmt.numpy_dtype))


def read(codes: Array, fmt: formats.Format, one: Instruction) -> Array:
    """The float64 numbers that the instruction reads."""
    whole = (codes.astype(np.int64) >> one.ignored << one.ignored).astype(fmt.storage)
    return formats.decode(whole, fmt)


def bound(a: Array, b: Array, name: str, steps: partial_sums.Steps) -> Estimate:
    """What `a` [M, K] times `b` [N, K] may give."""
    kind, one = ROWS[name]
    fmt = FORMATS[kind]
    return partial_sums.multiply(read(a, fmt, one), read(b, fmt, one), steps, fmt)


def sums(a: Array, b: Array, name: str) -> list[Array]:
    """What both implementations make of it, in float64."""
    kind, one = ROWS[name]
    fmt = FORMATS[kind]
    start = np.zeros((len(a), len(b)), np.float32)
    x, y = (codes.view(fmt.numpy_dtype).astype(np.float32) for codes in (a, b))
    with np.errstate(all="ignore"):
        judged = multiply(a, b.T, start, fmt, one)
        computed = lane.multiply_add(x, y.T, start, fmt, one)
    return [found.astype(np.float64) for found in (judged, computed)]


def holds(found: Array, estimate: Estimate) -> bool:
    """Whether all of `found` is inside, or beyond what fp32 holds and so is its interval's end."""
    largest = float(np.finfo(np.float32).max)
    inside = (estimate.low <= found) & (found <= estimate.high)
    return bool((inside | (np.isinf(found) & (np.abs(estimate.value) >= largest / 2))).all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(ROWS))
def test_sums_of_both_implementations_are_inside(name: str, kind: str) -> None:
    """By the instruction's own bound and by the worst of its kind, for K in whole steps and not."""
    operand, one = ROWS[name]
    for depth in (16, 75, 256):
        a, b = (draw(kind, FORMATS[operand], 12, depth, seed) for seed in (depth, depth + 1))
        got = sums(a, b, name)
        for steps in (partial_sums.find_worst([one]), partial_sums.find_steps(operand)):
            estimate = bound(a, b, name, steps)
            assert all(holds(found, estimate) for found in got)


@pytest.mark.parametrize("name", sorted(ROWS))
@settings(max_examples=30)
@given(data=st.data())
def test_chosen_codes_are_inside(name: str, data: st.DataObject) -> None:
    """One element of a few blocks, by numbers of all magnitudes that Hypothesis chooses."""
    operand, one = ROWS[name]
    fmt = FORMATS[operand]
    few = st.lists(finite(fmt), min_size=1, max_size=4)
    chosen = [data.draw(few) for _ in range(2)]
    depth = data.draw(st.sampled_from((8, 32, 40, 64)))
    a, b = (np.resize(np.array(x, fmt.storage), (1, depth)) for x in chosen)
    estimate = bound(a, b, name, partial_sums.find_worst([one]))
    assert all(holds(found, estimate) for found in sums(a, b, name))


@pytest.mark.parametrize("name", sorted(ROWS))
def test_one_sided_sums_are_never_above(name: str) -> None:
    """All that is lost of positive terms makes the sum smaller."""
    operand, one = ROWS[name]
    a, b = (draw("one-sided", FORMATS[operand], 8, 128, seed) for seed in (1, 2))
    estimate = bound(a, b, name, partial_sums.find_worst([one]))
    assert (estimate.high <= estimate.value * (1 + 2.0**-40)).all()
    assert all((found <= estimate.high).all() for found in sums(a, b, name))


SPOILT: dict[str, Callable[[Instruction], Instruction]] = {
    "three bits less are kept": lambda one: replace(one, kept=one.kept - 3),
    "a result of eight bits less": lambda one: replace(one, width=one.width - 8),
}


@pytest.mark.parametrize("mistake", sorted(SPOILT))
@pytest.mark.parametrize("name", ["sm_80 bf16 mma", "sm_89 e4m3 mma", "sm_90 e4m3 wgmma"])
def test_a_worse_instruction_is_outside(name: str, mistake: str) -> None:
    """Of one-sided operands, where losses do not cancel."""
    operand, one = ROWS[name]
    fmt = FORMATS[operand]
    a, b = (draw("one-sided", fmt, 8, 256, seed) for seed in (1, 2))
    estimate = bound(a, b, name, partial_sums.find_worst([one]))
    start = np.zeros((8, 8), np.float32)
    found = multiply(a, b.T, start, fmt, SPOILT[mistake](one))
    assert (found < estimate.low).any()


def test_subnormal_operands_align_with_their_format() -> None:
    """Products of e4m3's 2^-9 are cut below 2^-6: more is lost than 2^-13 of the largest product."""
    one = SM_90["e4m3", "wgmma"]
    fmt = FORMATS["e4m3"]
    a = np.full((1, 32), 1, fmt.storage)
    b = formats.bits(np.array([[1.0] + [1.875 * 2.0**-6] * 31]).astype(fmt.numpy_dtype))
    found = multiply(a, b.T, np.zeros((1, 1), np.float32), fmt, one)
    estimate = bound(a, b, "sm_90 e4m3 wgmma", partial_sums.find_worst([one]))
    assert holds(found.astype(np.float64), estimate)


def test_uncertain_operands_carry_their_width() -> None:
    """Operands set off within their spread give sums that are inside."""
    random = np.random.default_rng(0)
    fmt, one = FORMATS["e4m3"], SM_90["e4m3", "wgmma"]
    a, b = (draw("normal", fmt, 8, 128, seed) for seed in (1, 2))
    moved = np.where(random.random(a.shape) < 0.5, a, np.where((a & 0x7F) > 0, a - 1, a))
    x, y = read(a, fmt, one), read(moved.astype(fmt.storage), fmt, one)
    scales = np.ones(8), np.ones(8)
    estimate = partial_sums.multiply(
        x,
        read(b, fmt, one),
        partial_sums.find_worst([one]),
        fmt,
        scales=scales,
        spread=np.abs(x - y),
    )
    start = np.zeros((8, 8), np.float32)
    found = multiply(moved.astype(fmt.storage), b.T, start, fmt, one)
    assert holds(found.astype(np.float64), estimate)


@pytest.mark.parametrize("kind", KINDS)
def test_scaled_and_counted_products_have_wider_bounds(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers times a scale of their row, and more products than are looked at one by one."""
    name = "sm_90 e4m3 wgmma"
    operand, one = ROWS[name]
    fmt, worst = FORMATS[operand], partial_sums.find_worst([one])
    a, b = (draw(kind, fmt, 8, 96, seed) for seed in (3, 4))
    x, y = read(a, fmt, one), read(b, fmt, one)
    scales = tuple(np.random.default_rng(5).random((2, 8)) + 0.5)
    near = bound(a, b, name, worst)
    scaled = partial_sums.multiply(
        x * scales[0][:, None],
        y * scales[1][:, None],
        worst,
        fmt,
        scales=(scales[0], scales[1]),
    )
    monkeypatch.setattr(partial_sums, "_ONE_BY_ONE", 0)
    counted = bound(a, b, name, worst)
    assert (counted.high - counted.low >= near.high - near.low).all()
    both = scales[0][:, None] * scales[1]
    for found in sums(a, b, name):
        assert holds(found, near)
        assert holds(found, counted)
        assert holds(found * both, scaled)


def test_an_instruction_that_does_not_go_block_by_block_is_refused() -> None:
    """Promoted sums are several, and a wide deal of products needs a wider block."""
    for one in (
        replace(SM_90["e4m3", "wgmma"], promoted=32),
        replace(SM_90["bf16", "mma"], interleaved=4),
    ):
        with pytest.raises(ValueError, match="blocks of 32"):
            partial_sums.find_worst([one])
    with pytest.raises(ValueError, match="in every way"):
        partial_sums.find_worst(
            [Instruction(terms=32, kept=13, width=24), Instruction(terms=32, kept=14, width=14)]
        )
