"""The rows of the table of functions on this lane: each has an answer or a reason, and tries what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bitproof.harness import lanes
from bitproof.harness.errors import BitproofError, causes
from bitproof.harness.lanes.base import LaunchFailed
from bitproof.harness.sweep import functions
from bitproof.harness.sweep.functions import Row, count_inputs, list_rows, measure

ROWS = {row.name: row for row in list_rows()}


def test_rows_have_names_of_their_own() -> None:
    """Files hold rows by name."""
    assert len(ROWS) == len(list_rows())


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_an_answer_or_a_sentence_that_says_why_not(name: str) -> None:
    """The kernel knows every function by the oracle's name: another name would leave it without a value."""
    tried, told = 0, False
    try:
        tried = measure(ROWS[name], lanes.present(), limit=256).tried
    except LaunchFailed as failure:
        told = any(isinstance(link, BitproofError) for link in causes(failure))
    assert tried == 256 or told


def test_a_conversion_is_measured_as_numpy_counts_it() -> None:
    """All of fp16 to bf16, whose error is half a step of bf16 where 3 bits are dropped."""
    found = measure(ROWS["fp16 to bf16"], lanes.present())
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = codes[np.isfinite(codes)].astype(np.float64)
    kept = torch.from_numpy(numbers).float().bfloat16().double().numpy()
    with np.errstate(divide="ignore"):
        steps = np.exp2(np.floor(np.log2(np.abs(numbers))) - 7)
    errors = np.abs(kept - numbers)[numbers != 0] / steps[numbers != 0]
    assert found.tried == 1 << 16
    assert found.normal["away"].ulps == found.normal["toward"].ulps == errors.max() == 0.5


def test_rounding_toward_zero_errs_on_one_side() -> None:
    """By almost a step: the largest error that the sample can show of 16 dropped bits."""
    found = measure(ROWS["fp32 to bf16, rtz"], lanes.present(), limit=1 << 16)
    assert set(found.normal) == {"toward"}
    assert found.normal["toward"].ulps == 1 - 2.0**-16


def test_the_exponential_is_as_far_off_as_its_rounded_product() -> None:
    """exp(x) is 2 to the rounded x * log2(e), which near 127 is off by up to half its step of 2^-17."""
    errors = measure(ROWS["exp"], lanes.present()).normal
    assert 40 < errors["toward"].ulps < 2.0**-18 * np.log(2) * 2**24 * 2


def test_the_sample_of_fp32_holds_the_ties_of_narrower_types() -> None:
    """Multiples of 4096, each once, in order."""
    patterns = torch.cat(
        [x.view(torch.int32) for (x,) in functions._draw(ROWS["exp"], torch.device("cpu"), False)]
    ).long() % (1 << 32)
    assert patterns.numel() == count_inputs(ROWS["exp"], exhaustive=False)
    assert patterns.unique().numel() == patterns.numel()
    assert (patterns % 4096 == 0).sum() == 1 << 20
    assert (patterns.diff() > 0).all()


def test_an_exhaustive_row_goes_through_every_pattern_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chunk after chunk, up to 2^32."""
    monkeypatch.setitem(functions.CHUNKS, "cpu", 1 << 12)
    drawn = functions._draw(ROWS["exp"], torch.device("cpu"), True)
    first, second = next(drawn)[0], next(drawn)[0]
    assert torch.cat([first, second]).view(torch.int32).tolist() == list(range(1 << 13))
    assert count_inputs(ROWS["exp"], exhaustive=True) == 1 << 32


@pytest.mark.parametrize("name", ["div_rn", "fma", "fp64 to bf16"])
def test_hashed_operands_are_the_same_every_time_and_differ_among_each_other(name: str) -> None:
    """Each operand has a hash of its own."""
    row: Row = ROWS[name]
    one, two = (next(functions._draw(row, torch.device("cpu"), False)) for _ in range(2))
    assert len(one) == len(row.operands)
    assert all(
        torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(one, two, strict=True)
    )
    assert len({tuple(operand[:4].tolist()) for operand in one}) == len(one)
