"""Launch configurations: what the compiler specialises on although the caller does not choose it."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from bitproof.harness.case import Launch

# (warps, stages, which of the kernel's blocks). They are few, so that each is compiled once and then used
# often; together they have every number of warps and stages.
_CONFIGURATIONS = ((4, 2, 0), (1, 1, 1), (8, 3, 2), (2, 4, 0))

# Numbers of layouts, dense ones twice as often as all others together.
_LAYOUTS = (*(0,) * 64, *range(1, 33))

# Calls of an object before the one that is judged.
_WARM = (0, 1, 3)


@cache
@st.composite
def launches(
    draw: Any,
    blocks: tuple[int, ...],
    *,
    strided: bool = False,
    layouts: bool = False,
    warm: bool = False,
) -> Launch:
    """A `Launch` with one of `blocks` (the first is the default), aligned or not, rows padded or not.

    With `layouts`, one in three lays tensors as their spec allows. With `warm`, two in three are not the
    first call of an object.

    Shrinks toward four warps, the first block, aligned and dense tensors.
    """
    warps, stages, block = draw(st.sampled_from(_CONFIGURATIONS))
    return Launch(
        num_warps=warps,
        num_stages=stages,
        block=blocks[block % len(blocks)],
        misalign=draw(st.sampled_from((0, 0, 1, 3))),
        row_padding=draw(st.sampled_from((0, 0, 5, 16))) if strided else 0,
        layout=draw(st.sampled_from(_LAYOUTS)) if layouts else 0,
        warm=draw(st.sampled_from(_WARM)) if warm else 0,
        reuse=draw(st.booleans()) if warm else False,
    )


def features(launch: Launch) -> list[str]:
    """What a launch covers, in the words that the run's summary counts."""
    covered = [f"{launch.num_warps} warps"]
    if launch.misalign:
        covered.append("misaligned")
    if launch.row_padding:
        covered.append("strided")
    if launch.warm:
        covered.append("warm calls in the same storage" if launch.reuse else "warm calls")
    return covered
