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
    from harness import lanes
    from harness.errors import BitproofError

    try:
        lanes.choose("cuda")
    except BitproofError as error:
        sys.exit(str(error))
    from harness.commands.subject import subject
    from harness.discovery import find
    from harness.sweep import PACES, sweep

    lane, pace = lanes.present(), PACES["cuda"]
    rows: list[tuple[str, int, list[float]]] = []
    for found in find([], options.kernel):
        if found.spec.elementwise is None:
            continue
        spec, cast = found.spec, found.spec.elementwise
        params = {"launch": pace.launch}
        torch_cast = casting(cast.format, cast.overflow)

        def judged(found: Any = found) -> int:
            from harness.sweep import expected

            expected.cache_clear()
            return sweep(found, lane).wrong

        def launched(spec: Any = spec, cast: Any = cast, params: Any = params) -> None:
            over_all(lambda x: lane.launch(spec, {cast.input: x}, params), pace.chunk)

        def plain(torch_cast: Any = torch_cast) -> None:
            over_all(torch_cast, pace.chunk)

        wrong = judged()
        times = [median(action, options.repeats) for action in (judged, launched, plain)]
        rows.append((spec.name, wrong, times))
    versions = "  ".join(f"{key} {value}" for key, value in lane.versions().items())
    print(f"2^32 fp32 inputs, median of {options.repeats}, milliseconds; {versions}")
    print(f"{'kernel':14} {'wrong':>9} {'sweep':>8} {'launches':>9} {'torch cast':>11}")
    for name, wrong, times in rows:
        print(f"{name:14} {wrong:9,} {times[0]:8.1f} {times[1]:9.1f} {times[2]:11.1f}")
    if not options.kernel:
        census = sweep(subject("cast_e4m3", (), DOUBLE_ROUNDING), lane)
        print(
            f"cast_e4m3 that {DOUBLE_ROUNDING}: {census.wrong:,} wrong, {census.toward_zero:,} of "
            f"them toward zero, at most {census.largest_ulps} ulp"
        )


def casting(name: str, overflow: str) -> Callable[[Any], Any]:
    """What a user would write in torch: a clamp where the cast saturates, then `.to`."""
    import torch

    from oracles import formats

    fmt = formats.by_name(name)

    def convert(x: torch.Tensor) -> torch.Tensor:
        assert fmt.torch_dtype is not None
        inside = x.clamp(-fmt.largest, fmt.largest) if overflow == "saturate" else x
        return inside.to(fmt.torch_dtype)

    return convert


def over_all(action: Callable[[Any], Any], chunk: int) -> None:
    """Call `action` on every fp32 bit pattern, `chunk` at a time, inputs made on the card."""
    import torch

    for start in range(-(1 << 31), 1 << 31, chunk):
        patterns = torch.arange(start, start + chunk, dtype=torch.int32, device="cuda")
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
