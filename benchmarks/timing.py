"""How long one call takes a card, in the way that benchmarks of single products agree on."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

_ISSUING = 1_000_000  # clock cycles, half a millisecond: what the host needs to issue a call


def median(call: Callable[[], object], repeats: int = 40) -> float:
    """Microseconds of one call on the card, its caches cold and its launches issued in time."""
    spoiled = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        spoiled.zero_()
        torch.cuda._sleep(_ISSUING)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return statistics.median(times)
