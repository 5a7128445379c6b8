"""Shows, on a card newer than sm_89, what sm_89's code does: the double rounding, and that the grid cures it.

    python ci/gpu_foreign.py

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
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

FOREIGN, NATIVE = "cuda:sm_89", "cuda"
TWICE = tuple(int(part) for part in metadata.version("triton").split(".")[:2]) < (3, 9)
WRONG = 1_032_066 if TWICE else 0
EXAMPLES = 400

Row = tuple[str, str, str, str, bool]


def main() -> int:
    """Run everything in processes of their own, since a process is one lane, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planted", metavar="LANE", help=argparse.SUPPRESS)
    lane = parser.parse_args().planted
    if lane is not None:
        print(json.dumps(without_grid(lane)))
        return 0
    casts = ("cast_e4m3", "round_e4m3")
    rows = [swept(kernel, lane) for lane in (FOREIGN, NATIVE) for kernel in casts]
    edited = planted()
    names = {what.split()[0] for what, *_ in edited}
    rows += [*edited, properties(sorted(names))]
    print(f"\n{'as it should':13} {'what':34} {'lane':12} {'came out':44} expected")
    for what, where, got, expected, held in rows:
        print(f"{'yes' if held else 'NO':13} {what:34} {where:12} {got:44} {expected}")
    return int(not all(held for *_, held in rows))


def swept(kernel: str, lane: str) -> Row:
    """The census of all 2^32 patterns."""
    began = time.perf_counter()
    done = run("-m", "harness.cli", "sweep", kernel, "--lane", lane, "--fresh", "--json")
    expected = WRONG if (kernel, lane) == ("cast_e4m3", FOREIGN) else 0
    try:
        census = json.loads(done.stdout)
    except ValueError:
        return f"sweep {kernel}", lane, last(done), f"{expected:,} wrong", False
    seconds = time.perf_counter() - began
    got = f"{census['wrong']:,} wrong, {census['toward_zero']:,} toward zero, {seconds:.0f} s"
    held = census["tried"] == 1 << 32 and census["wrong"] == census["toward_zero"] == expected
    return f"sweep {kernel}", lane, got, f"{expected:,} wrong, all toward zero", held


def planted() -> list[Row]:
    """Each quantiser without its grid rounding: caught in the foreign lane, right in the native one."""
    rows: list[Row] = []
    for lane in (FOREIGN, NATIVE):
        expected = "failed" if lane == FOREIGN and TWICE else "passed"
        done = run(__file__, "--planted", lane)
        try:
            outcomes = json.loads(done.stdout.strip().split("\n")[-1])
        except ValueError:
            rows.append(("without grid rounding", lane, last(done), expected, False))
            continue
        rows += [
            (f"{kernel} without grid rounding", lane, got, expected, got.split(",")[0] == expected)
            for kernel, got in sorted(outcomes.items())
        ]
    return rows


def without_grid(lane_name: str) -> dict[str, str]:
    """In this process's one lane: for every fp8 quantiser, what agreement says of it without the grid."""
    from hypothesis import settings

    from harness import falsify, faults, lanes
    from harness.discovery import find
    from harness.spec import Fault

    lanes.choose(lane_name)
    lane = lanes.present()
    missing = Fault(
        name="leaves the grid rounding to the target's conversion",
        within="round_e4m3",
        old="    return signed.to(tl.float32, bitcast=True)",
        new="    return x.to(tl.float8e4nv).to(tl.float32)",
        caught_by="agreement",
        module="kernels.grid",
    )
    found = {}
    for kernel in find():
        if not any(fault.module == missing.module for fault in kernel.spec.faults):
            continue
        spec = faults.plant(kernel, missing)
        fixed = settings(derandomize=True, database=None)
        result = falsify.search(
            spec, "agreement", lane, max_examples=EXAMPLES, shrink=False, base=fixed
        )
        found[spec.name] = f"{result.outcome}, case {result.examples} of {EXAMPLES}"
    return found


def properties(names: Iterable[str]) -> Row:
    """The property suite of the quantisers in the foreign lane, other targets' code left out."""
    chosen = [argument for name in names for argument in ("--kernel", name)]
    done = run(
        *("-m", "pytest", "-q", "-n", "4", "properties/", "--lane", FOREIGN),
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
