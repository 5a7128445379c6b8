"""The lane's products against the model that judges, against exact fractions, and by planted mistakes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitproof.harness.lanes.interpreter.numerics import tensor_cores
from bitproof.harness.lanes.interpreter.numerics.tensor_cores import multiply_add
from bitproof.oracles import formats
from bitproof.oracles.instructions import INSTRUCTIONS, Instruction
from bitproof.oracles.tensor_cores import FORMATS, SM_90, multiply
from tests.oracles.steps import by_fractions, finite

Array = np.ndarray[Any, Any]
ALL = {
    "sm_90 e4m3 promoted each 64": ("e4m3", replace(SM_90["e4m3", "wgmma"], promoted=64)),
    "sm_90 tf32 of bf16 loads": ("tf32", replace(SM_90["tf32", "mma"], interleaved=2)),
    **{f"sm_90 {kind} {unit}": (kind, one) for (kind, unit), one in SM_90.items()},
    **{
        f"{target} {kind} {unit}": (kind, one)
        for target, table in INSTRUCTIONS.items()
        for (kind, unit), one in table.items()
    },
}
# Each instruction once: some targets share them.
ROWS = {name: row for row, name in {row: name for name, row in reversed(ALL.items())}.items()}
STEPS = sorted(name for name, (_, one) in ROWS.items() if not one.promoted)
KINDS = ("normal", "one-sided", "wide", "subnormal", "specials", "padded")


def draw(kind: str, fmt: formats.Format, shape: tuple[int, int], seed: int) -> Array:
    """Codes of `fmt`."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape)
    if kind in ("normal", "one-sided", "padded"):
        values = np.abs(values) if kind == "one-sided" else values
        if kind == "padded":
            values *= random.random((shape[0], 1)) < 0.4
            values *= random.random((1, shape[1])) < 0.6
        return formats.bits(values.astype(np.float32).astype(fmt.numpy_dtype))
    codes = random.integers(0, fmt.largest_code + 1, shape).astype(np.int64)
    if kind == "subnormal":
        codes &= (1 << fmt.mantissa_bits + 1) - 1
    if kind == "specials":
        choices = [code for code in (fmt.infinity, fmt.nan) if code is not None]
        codes = np.where(random.random(shape) < 0.01, random.choice(choices, shape), codes)
    return (codes | random.integers(0, 2, shape) * fmt.sign_bit).astype(fmt.storage)


def numbers(codes: Array, fmt: formats.Format) -> Array:
    """The float32 numbers that a lane makes of them."""
    return codes.view(fmt.numpy_dtype).astype(np.float32)


def problem(kind: str, fmt: formats.Format, depth: int) -> tuple[Array, Array, Array]:
    """Codes [24, depth] and [depth, 40], and an accumulator [24, 40]."""
    start = draw("wide" if kind == "wide" else "normal", formats.by_name("fp32"), (24, 40), 3)
    scale = np.float32(2.0**-130 if kind == "subnormal" else 1)
    accumulator = start.view(np.float32) * scale
    return draw(kind, fmt, (24, depth), 1), draw(kind, fmt, (depth, 40), 2), accumulator


def differences(
    name: str, kind: str, depth: int, given: Instruction | None = None
) -> tuple[int, int]:
    """(outputs that differ in a bit between the lane, given an instruction, and what judges; outputs)."""
    operand, one = ROWS[name]
    fmt = FORMATS[operand]
    a, b, start = problem(kind, fmt, depth)
    with np.errstate(all="ignore"):
        wanted = multiply(a, b, start, fmt, one)
        got = multiply_add(numbers(a, fmt), numbers(b, fmt), start, fmt, given or one)
    different = got.view(np.uint32) != wanted.view(np.uint32)
    different &= ~(np.isnan(got) & np.isnan(wanted))
    return int(different.sum()), wanted.size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_lane_gives_the_bits_that_the_model_gives(name: str, kind: str) -> None:
    """On operands of all kinds, for K in whole steps and not."""
    for depth in (64, 75):
        assert differences(name, kind, depth)[0] == 0


@pytest.mark.parametrize("name", STEPS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_step_is_what_its_definition_says(name: str, data: st.DataObject) -> None:
    """In exact fractions, on numbers of all magnitudes."""
    operand, one = ROWS[name]
    # The rest of an instruction is filled up with zeros, which change nothing.
    fmt, one = FORMATS[operand], replace(one, interleaved=1)
    codes = st.lists(finite(fmt), min_size=one.terms, max_size=one.terms)
    a, b = data.draw(codes), data.draw(codes)
    start = np.array([[data.draw(finite(formats.by_name("fp32")))]], np.uint32).view(np.float32)
    left, right = (np.array([x], fmt.storage) for x in (a, b))
    with np.errstate(all="ignore"):
        got = multiply_add(numbers(left, fmt), numbers(right, fmt).T, start, fmt, one)
    assert float(got[0, 0]) == by_fractions(a, b, start[0, 0], fmt, one)


def test_batches_are_multiplied_one_by_one() -> None:
    """Leading axes are those of `tl.dot` on three axes."""
    one, fmt = SM_90["bf16", "mma"], FORMATS["bf16"]
    a, b, start = problem("normal", fmt, 32)
    x, y = numbers(a, fmt), numbers(b, fmt)
    got = multiply_add(np.stack([x, -x]), np.stack([y, y]), np.stack([start, start]), fmt, one)
    assert np.array_equal(got[0], multiply_add(x, y, start, fmt, one))
    assert np.array_equal(got[1], multiply_add(-x, y, start, fmt, one))


# What only bits can see, and on which row of the table.
MISTAKES: dict[str, tuple[str, Callable[[Instruction], Instruction]]] = {
    "promotion dropped": ("sm_90 e4m3 wgmma promoted", lambda one: replace(one, promoted=0)),
    "promoted half as often": (
        "sm_90 e4m3 wgmma promoted",
        lambda one: replace(one, promoted=2 * one.promoted),
    ),
    "order of k swapped": ("sm_90 e4m3 mma", lambda one: replace(one, interleaved=1)),
    "one bit less is kept": ("sm_90 bf16 mma", lambda one: replace(one, kept=one.kept - 1)),
    "one bit less of fp8": ("sm_90 e4m3 wgmma", lambda one: replace(one, kept=one.kept - 1)),
    "half as many products a step": (
        "sm_90 bf16 mma",
        lambda one: replace(one, terms=one.terms // 2, depth=one.terms),
    ),
    "all of an fp32 operand": ("sm_90 tf32 mma", lambda one: replace(one, ignored=0)),
}


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_wrong_instruction_shows(mistake: str) -> None:
    """In at least a twentieth of the outputs of ordinary operands, deep enough for a few steps."""
    name, spoil = MISTAKES[mistake]
    wrong, outputs = differences(name, "normal", 256, spoil(ROWS[name][1]))
    assert wrong >= outputs / 20


def test_rounding_to_nearest_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a step's sum is rounded as fp32 arithmetic would."""
    monkeypatch.setattr(
        tensor_cores, "_cut", lambda values, _: values.astype(np.float32).astype(np.float64)
    )
    wrong, outputs = differences("sm_90 bf16 mma", "normal", 64)
    assert wrong >= outputs / 4


@pytest.mark.slow
def test_fifty_million_products_a_second() -> None:
    """On one thread, on a tile as large as kernels take; the best of several runs on a busy machine."""
    one, fmt = SM_90["bf16", "wgmma"], FORMATS["bf16"]
    random = np.random.default_rng(1)
    a, b = (
        random.standard_normal((128, 128))
        .astype(np.float32)
        .astype(fmt.numpy_dtype)
        .astype(np.float32)
        for _ in range(2)
    )
    start, best = np.zeros((128, 128), np.float32), np.inf
    for _ in range(20):
        begin = time.thread_time()
        multiply_add(a, b, start, fmt, one)
        best = min(best, time.thread_time() - begin)
    assert 128**3 / best >= 50e6
