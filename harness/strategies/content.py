"""What an input tensor contains, read from its bits: for a run's coverage and for narrowed cases."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitproof.harness.strategies import floats
from bitproof.oracles import formats

SIGN = 0x80000000
MAGNITUDE = 0x7FFFFFFF
INFINITY = 0x7F800000


def widen(tensor: Tensor) -> floats.Words:
    """The fp32 words that hold `tensor`'s values exactly, NaN payloads included, in its shape."""
    bits = formats.bits(tensor).astype(np.int64)
    if tensor.dtype == torch.float16:
        return floats.words_of_fp16()[bits]
    return bits << 16 if tensor.dtype == torch.bfloat16 else bits


def content(tensor: Tensor, target: str) -> list[str]:
    """What the values contain, in words that a run's summary counts; `target` is the format rounded to."""
    words = widen(tensor).reshape(-1)
    magnitude = words & MAGNITUDE
    middle = floats.midpoints(target)
    found = {
        "nan": magnitude > INFINITY,
        "inf": magnitude == INFINITY,
        "negative zero": words == SIGN,
        "subnormal": (magnitude > 0) & (magnitude < 0x00800000),
        "midpoint": _among(magnitude, middle),
        "just above a midpoint": _among(magnitude - 1, middle),
        "saturates": (magnitude > floats.largest(target)) & (magnitude < INFINITY),
    }
    return [name for name, mask in found.items() if mask.any()]


def _among(words: floats.Words, table: floats.Words) -> NDArray[np.bool_]:
    """Which of `words` are in `table`, which is ascending."""
    place = np.minimum(np.searchsorted(table, words), len(table) - 1)
    return np.asarray(table[place] == words)
