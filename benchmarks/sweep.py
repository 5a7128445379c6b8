"""What an exhaustive sweep costs on the card, beside torch's own cast over the same 2^32 inputs.

    python benchmarks/sweep.py [--kernel NAME ...] [--repeats N]

One line a cast, in milliseconds, medians after a warm-up that compiles: the whole sweep (inputs made,
kernel launched, every result compared with the exact oracle, its table built anew), the same launches
with nothing compared, and torch's cast on inputs made the same way, compared with nothing. The last
line is the census of double rounding planted into `cast_e4m3`: 1,032,066 wrong, all toward zero.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

DOUBLE_ROUNDING = "rounds twice, first toward zero to fp16"


def main() -> None:
    """Measure, then print the table."""
    parser = argparse.ArgumentParser(description="What an exhaustive sweep costs.")
    parser.add_argument("--kernel", action="append", default=[])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    from bitproof.harness import lanes
    from bitproof.harness.commands.subject import subject
    from bitproof.harness.errors import BitproofError
    from bitproof.harness.subjects.discovery import find
    from bitproof.harness.sweep.sweep import sweep

    try:
        lanes.choose("cuda")
        casts = [found for found in find([], options.kernel) if found.spec.elementwise]
        doubly = subject("cast_e4m3", (), DOUBLE_ROUNDING)
    except BitproofError as error:
        sys.exit(str(error))
    lane = lanes.present()
    rows = [(found.spec.name, measured(found, lane, options.repeats)) for found in casts]
    versions = "  ".join(f"{key} {value}" for key, value in lane.versions().items())
    print(f"2^32 fp32 inputs, median of {options.repeats}, milliseconds; {versions}")
    print(f"{'kernel':14} {'sweep':>8} {'launches':>9} {'torch cast':>11}")
    for name, (judged, launched, plain) in rows:
        print(f"{name:14} {judged:8.1f} {launched:9.1f} {plain:11.1f}")
    census = sweep(doubly, lane)
    print(
        f"cast_e4m3 that {DOUBLE_ROUNDING}: {census.wrong:,} wrong, {census.toward_zero:,} of "
        f"them toward zero, at most {census.largest_ulps} ulp"
    )


def measured(found: Any, lane: Any, repeats: int) -> list[float]:
    """Milliseconds of the sweep, of its launches alone, and of torch's cast."""
    from bitproof.harness.sweep.sweep import PACES, compute_expected, sweep

    pace, cast = PACES["cuda"], found.spec.elementwise
    torch_cast = casting(cast.format, cast.overflow)

    def judged() -> None:
        compute_expected.cache_clear()
        sweep(found, lane)

    def launch(x: Any) -> None:
        lane.launch(found.spec, {cast.input: x}, {"launch": pace.launch})

    actions = (
        judged,
        lambda: over_all(launch, pace.chunk),
        lambda: over_all(torch_cast, pace.chunk),
    )
    return [median(action, repeats) for action in actions]


def casting(name: str, overflow: str) -> Callable[[Any], Any]:
    """What a user would write in torch: a clamp where the cast saturates, then `.to`."""
    import torch

    from bitproof.oracles import formats

    fmt = formats.by_name(name)

    def convert(x: torch.Tensor) -> torch.Tensor:
        assert fmt.torch_dtype is not None
        inside = x.clamp(-fmt.largest, fmt.largest) if overflow == "saturate" else x
        return inside.to(fmt.torch_dtype)

    return convert


def over_all(action: Callable[[Any], Any], chunk: int) -> None:
    """Call `action` on every fp32 bit pattern, `chunk` at a time, inputs made on the card."""
    import torch

    counter = torch.arange(chunk, dtype=torch.int32, device="cuda")
    for start in range(-(1 << 31), 1 << 31, chunk):
        patterns = counter + start
        action(patterns.view(torch.float32))
    torch.cuda.synchronize()


def median(action: Callable[[], Any], repeats: int) -> float:
    """Milliseconds of `action`, once more than measured so that nothing is done for the first time."""
    import torch

    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        action()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
