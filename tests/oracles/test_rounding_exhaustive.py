"""Proofs over every fp32 bit pattern. Minutes: run with `-m slow`, split by `-n`."""

from collections.abc import Iterator

import numpy as np
import pytest

from bitproof.oracles.breakpoints import breakpoints
from bitproof.oracles.formats import BF16, E4M3, E5M2, FP16, Array, Format, ulp_distance
from bitproof.oracles.rounding import Overflow, round_to, round_value

pytestmark = pytest.mark.slow

CHUNK = 1 << 22
PARTS = 16


def chunks(first: int, last: int) -> Iterator[Array]:
    """The patterns first ... last - 1, a chunk at a time."""
    for start in range(first, last, CHUNK):
        yield np.arange(start, min(start + CHUNK, last), dtype=np.uint32)


def expanded(table: tuple[Array, Array], patterns: Array) -> Array:
    """A table's codes for consecutive patterns, by the length of each run."""
    starts, codes = table
    first, last = int(patterns[0]), int(patterns[-1]) + 1
    low = int(np.searchsorted(starts, first, side="right")) - 1
    high = int(np.searchsorted(starts, last - 1, side="right"))
    edges = np.append(starts[low:high].astype(np.int64), last)
    edges[0] = first
    return np.repeat(codes[low:high], np.diff(edges))


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    ("fmt", "overflow"),
    [(E4M3, "saturate"), (E5M2, "saturate"), (BF16, "inf"), (FP16, "inf")],
    ids=lambda value: value.name if isinstance(value, Format) else value,
)
def test_three_answers_agree_on_every_pattern(fmt: Format, overflow: Overflow, part: int) -> None:
    """Integer arithmetic, ml_dtypes (asked by `round_to`) and the table give the same 2^32 codes."""
    table = breakpoints(fmt, overflow=overflow)
    size = (1 << 32) // PARTS
    for patterns in chunks(part * size, (part + 1) * size):
        actual = round_to(patterns.view(np.float32), fmt, overflow=overflow)
        assert np.array_equal(actual, expanded(table, patterns)), hex(int(patterns[0]))


def test_truncation_through_fp16_is_wrong_on_516033_inputs_swept() -> None:
    """The count that the tables give, by converting each of the 1138753537 values in [0, 448]."""
    last = int(np.float32(448.0).view(np.uint32))
    wrong = 0
    for patterns in chunks(0, last + 1):
        x = patterns.view(np.float32)
        halfway = round_value(x, FP16, mode="rz", overflow="inf").astype(np.float32)
        twice, once = round_to(halfway, E4M3), round_to(x, E4M3)
        missed = twice != once
        assert (ulp_distance(twice[missed], once[missed], E4M3) == 1).all()
        assert (twice[missed] < once[missed]).all()
        wrong += int(missed.sum())
    assert wrong == 516_033
