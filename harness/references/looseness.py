"""Whether a bound holds anything: one that passes zeros, or another row's output, is called too wide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bitproof.harness.bounds import Answer, Array, Bound
from bitproof.oracles.estimates import Estimate
from bitproof.oracles.modelled import Modelled


def find_looseness(bound: Bound, expected: Answer, dtype: np.dtype[Any] | None = None) -> str:
    """What wrong output `bound` passes, in words; "" where none of those tried passes.

    expected  the answer on some inputs: any shape
    dtype     the output's numpy or ml_dtypes type; that of the answer where not given

    Tried are zeros, the next row's output in every row, and the output reversed along its last axis; each
    only where it differs from the answer by more than a rounding of the output, so that there is something
    to see, and none where a number of the answer is beyond the output's range. A bound that depends on inputs
    is given as its `at` makes it.
    """
    value = expected.value if isinstance(expected, (Estimate, Modelled)) else np.asarray(expected)
    with np.errstate(over="ignore", invalid="ignore"):
        right = value.astype(dtype or value.dtype)
        finite = bool(np.isfinite(right.astype(np.float64)).all())
    for what, wrong in _wrong_outputs(right) if finite else ():
        if (wrong == right).all():
            continue
        judgement = bound.judge(wrong, expected)
        if judgement is None or not judgement.bad.any():
            return f"the bound is too wide on these inputs: it passes {what}"
    return ""


def _wrong_outputs(right: Array) -> Iterator[tuple[str, Array]]:
    yield "zeros", np.zeros_like(right)
    if right.ndim > 1 and right.shape[0] > 1:
        yield "each row with the output of the next", np.roll(right, 1, axis=0)
    if right.ndim and right.shape[-1] > 1:
        yield "the output in reverse", right[..., ::-1]
