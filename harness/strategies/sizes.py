"""Extents of tensors: small everywhere, large as well where a run has the time and the machine."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from bitproof.harness.case import Scale


@cache
@st.composite
def length(
    draw: Any,
    most: int,
    *,
    step: int = 1,
    empty: bool = True,
    block: int | None = None,
    scale: Scale = Scale(),
) -> int:
    """An extent up to `most`, a multiple of `step`; one in twelve is 0 unless `empty` is False.

    Where programs take `block` elements each, one in four is whole blocks, or one more or less.
    In a nightly run on a card one in six is up to 64 times as large. Shrinks toward `step`.
    """
    choice = draw(st.integers(0, 11))
    ceiling = 64 * most if choice in (9, 10) and scale.on_card and scale.nightly else most
    if block is not None and choice in (6, 7, 8):
        blocks = int(draw(st.integers(1, max(ceiling // block, 1))))
        return blocks * block + int(draw(st.sampled_from((0, 1, -1))))
    units = int(draw(st.integers(1, max(ceiling // step, 1))))
    return 0 if empty and choice == 11 else step * units
