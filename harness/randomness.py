"""The global random generators of Python, numpy and torch, held still while a case is judged.

A launcher, an oracle or a case that draws from one of them would otherwise answer by what ran before it: it
would fail at one time and not at another, and its record would not replay.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def from_the_start() -> Iterator[None]:
    """While active the generators give what they give after seeding with 0; then they go on as before.

    That of an opened card is seeded and left so: to read its state is to wait for the card.
    """
    kept = random.getstate()
    legacy = np.random.get_state()  # noqa: NPY002 (the global one is the subject)
    state = torch.default_generator.get_state()
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(0)
    try:
        yield
    finally:
        random.setstate(kept)
        np.random.set_state(legacy)  # noqa: NPY002
        torch.default_generator.set_state(state)
