"""Extents of tensors: small everywhere, large as well where a run has the time and the machine."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from harness import profiles


@cache
@st.composite
def length(draw: Any, most: int, *, step: int = 1, empty: bool = True) -> int:
    """An extent up to `most`, a multiple of `step`; one in twelve is 0 unless `empty` is False.

    In the nightly profile on a GPU one in six is up to 64 times as large. Shrinks toward `step`.
    """
    choice = draw(st.integers(0, 11))
    ceiling = 64 * most if choice in (9, 10) and _nightly() else most
    units = int(draw(st.integers(1, max(ceiling // step, 1))))
    return 0 if empty and choice == 11 else step * units


def _nightly() -> bool:
    on_gpu = os.environ.get("BITPROOF_LANE", "").startswith("cuda")
    return on_gpu and settings.get_current_profile_name() == profiles.NIGHTLY
