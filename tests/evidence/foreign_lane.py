"""Shows, on a card newer than sm_89, what sm_89's code does: the double rounding, and that the grid cures it.

    python -m tests.evidence.foreign_lane

Sweeps the bare cast to e4m3 and the one that rounds on the grid first over all 2^32 patterns, runs the
properties of every fp8 quantiser, and takes the grid rounding out of each quantiser; all in lane
`cuda:sm_89` and, for comparison, in lane `cuda`. The last thing printed is a table. Exit 0 when everything
came out as it should, 1 otherwise.

Up to Triton 3.8 sm_89's conversion rounds by way of fp16: 1 032 066 of 2^32 results are wrong, all toward
zero. From 3.9 on it rounds once, and the lane has nothing to show.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path

from packaging.version import Version

CHECKOUT = Path(__file__).resolve().parents[2]

FOREIGN, NATIVE = "cuda:sm_89", "cuda"
GRID = "bitproof.kernels.quantise.e4m3_rounding"
TWICE = Version(metadata.version("triton")).release < (3, 9)
WRONG = 1_032_066 if TWICE else 0
EXAMPLES = 400

Row = tuple[str, str, str, str, bool]


def main() -> int:
    """Run everything in processes of their own, since a process is one lane, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planted", nargs=2, metavar=("KERNEL", "LANE"), help=argparse.SUPPRESS)
    planted = parser.parse_args().planted
    if planted is not None:
        print(without_grid(*planted))
        return 0
    casts, names = ("cast_e4m3", "round_e4m3"), quantisers()
    # The longest first: side by side, compiling is what takes the time.
    jobs: list[Callable[[], Row]] = [
        partial(properties, names),
        *(partial(edited, kernel, lane) for kernel in names for lane in (NATIVE, FOREIGN)),
        *(partial(swept, kernel, lane) for kernel in casts for lane in (FOREIGN, NATIVE)),
    ]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        rows = sorted(pool.map(lambda job: job(), jobs))
    print(f"\n{'as it should':13} {'what':40} {'lane':12} {'came out':44} expected")
    for what, where, got, expected, held in rows:
        print(f"{'yes' if held else 'NO':13} {what:40} {where:12} {got:44} {expected}")
    return int(not all(held for *_, held in rows))


def swept(kernel: str, lane: str) -> Row:
    """The census of all 2^32 patterns."""
    began = time.perf_counter()
    done = run("-m", "bitproof", "sweep", kernel, "--lane", lane, "--json")
    expected = WRONG if (kernel, lane) == ("cast_e4m3", FOREIGN) else 0
    try:
        census = json.loads(done.stdout)
    except ValueError:
        return f"sweep {kernel}", lane, last(done), f"{expected:,} wrong", False
    seconds = time.perf_counter() - began
    got = f"{census['wrong']:,} wrong, {census['toward_zero']:,} toward zero, {seconds:.0f} s"
    held = census["tried"] == 1 << 32 and census["wrong"] == census["toward_zero"] == expected
    return f"sweep {kernel}", lane, got, f"{expected:,} wrong, all toward zero", held


def quantisers() -> list[str]:
    """The kernels that round on the grid of e4m3, by name: those with a fault planted in it."""
    from bitproof.harness.subjects.discovery import find

    return sorted(
        found.spec.name
        for found in find()
        if any(fault.module == GRID for fault in found.spec.faults)
    )


def edited(kernel: str, lane: str) -> Row:
    """A quantiser without its grid rounding: caught in the foreign lane, right in the native one."""
    expected = "failed" if lane == FOREIGN and TWICE else "passed"
    got = last(run("-m", "tests.evidence.foreign_lane", "--planted", kernel, lane))
    held = got.split(",")[0] == expected
    return f"{kernel} without grid rounding", lane, got, expected, held


def without_grid(kernel: str, lane_name: str) -> str:
    """In this process's one lane: what agreement says of a quantiser without the grid."""
    from hypothesis import settings

    from bitproof.harness import lanes
    from bitproof.harness.search import falsify
    from bitproof.harness.spec import Fault
    from bitproof.harness.subjects.discovery import find
    from bitproof.harness.subjects.planting import plant

    lanes.choose(lane_name)
    missing = Fault(
        name="leaves the grid rounding to the target's conversion",
        within="round_e4m3",
        old="    return signed.to(tl.float32, bitcast=True)",
        new="    return x.to(tl.float8e4nv).to(tl.float32)",
        caught_by="agreement",
        module=GRID,
    )
    result = falsify.search(
        plant(find([], [kernel])[0], missing),
        "agreement",
        lanes.present(),
        max_examples=EXAMPLES,
        shrink=False,
        base=settings(derandomize=True, database=None),
    )
    return f"{result.outcome}, case {result.examples} of {EXAMPLES}"


def properties(names: Sequence[str]) -> Row:
    """The property suite of the quantisers in the foreign lane, other targets' code left out."""
    chosen = [argument for name in names for argument in ("--kernel", name)]
    done = run(
        *("-m", "pytest", "-q", "-n", str(len(names)), "properties/", "--lane", FOREIGN),
        *("--ignore", "properties/test_lowering.py", *chosen),
    )
    return "properties of the quantisers", FOREIGN, last(done), "no failure", done.returncode == 0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """This Python with these arguments, in the checkout; what it printed is passed on as well."""
    print("$ python", *arguments, flush=True)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    sys.stderr.write(done.stderr[-4000:])
    if done.returncode:
        print(done.stdout[-4000:], flush=True)
    return done


def last(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that a process printed."""
    lines = [line for line in (done.stdout + done.stderr).split("\n") if line.strip()]
    return (lines or ["nothing printed"])[-1].strip("= ")[:100]


if __name__ == "__main__":
    sys.exit(main())
