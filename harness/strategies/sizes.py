"""Extents of tensors: small everywhere, large as well where a run has the time and the machine."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from harness import profiles


@st.composite
def length(draw: Any, most: int, *, step: int = 1) -> int:
    """An extent from 0 to `most`, a multiple of `step`; one in sixteen is 0.

    In the nightly profile on a GPU one in eight is up to 64 times as large. Shrinks toward `step`.
    """
    choice = draw(st.integers(0, 15))
    if choice == 15:
        return 0
    ceiling = 64 * most if choice >= 13 and _nightly() else most
    return step * int(draw(st.integers(1, max(ceiling // step, 1))))


def _nightly() -> bool:
    on_gpu = os.environ.get("BITPROOF_LANE") == "cuda"
    return on_gpu and settings.get_current_profile_name() == profiles.NIGHTLY
