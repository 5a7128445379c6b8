"""The nightly run on a GPU: every part to its end, whatever fails, leaving `.bitproof/` to upload.

    python ci/nightly.py [--lane cuda] [--shard 1/4]

Runs the property suite under the nightly profile, the slow proofs, and the exhaustive sweep of every
cast; of N machines, each runs its shard of the properties and every N-th of the other parts. What remains:
`.bitproof/summary.json` (outcomes, counts, worst errors, controls, times, versions),
`.bitproof/report.html` (the same for people), `.bitproof/properties.xml` (JUnit's form),
`.bitproof/failures/` (records that replay alone), `.bitproof/examples/` (Hypothesis's database) and
`.bitproof/sweeps/`. Exit 0 when everything held, 1 otherwise. `ci/run.py nightly`
prepares an environment and runs this in it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PYTEST = ("-m", "pytest", "-n", "auto", "--hypothesis-profile", "bitproof-nightly")


def main() -> int:
    """Run the parts one after another and print a table of what came of each."""
    parser = argparse.ArgumentParser(description="The nightly run.")
    parser.add_argument("--lane", default="cuda")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="the K-th of N machines")
    options = parser.parse_args()
    results = {
        name: timed(*command) for name, command in list_parts(options.lane, options.shard).items()
    }
    timed("-m", "bitproof", "report", "--html", ".bitproof/report.html")
    for name, (code, seconds) in results.items():
        print(f"{'held' if code == 0 else 'FELL SHORT':10}  {seconds:7.1f} s  {name}")
    return int(any(code for code, _ in results.values()))


def list_parts(lane: str, shard: str) -> dict[str, tuple[str, ...]]:
    """The commands of one machine, by name."""
    number, total = (int(part) for part in shard.split("/"))
    others = {
        "proofs": ("-m", "pytest", "-n", "auto", "-m", "slow", "tests/"),
        **{f"sweep {kernel}": sweep(kernel, lane) for kernel in swept(lane)},
    }
    properties = (*PYTEST, "properties/", "--lane", lane, "--shard", shard)
    return {
        "properties": (*properties, "--junitxml", ".bitproof/properties.xml"),
        **{name: others[name] for name in list(others)[number - 1 :: total]},
    }


def swept(lane: str) -> list[str]:
    """The kernels that `bitproof sweep` can sweep."""
    listing = subprocess.run(
        [sys.executable, "-m", "bitproof", "list", "--sweepable", "--lane", lane],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    return listing.stdout.split()


def sweep(kernel: str, lane: str) -> tuple[str, ...]:
    """The command that sweeps one kernel."""
    return ("-m", "bitproof", "sweep", kernel, "--lane", lane)


def timed(*arguments: str) -> tuple[int, float]:
    """(exit code, seconds) of the interpreter with these arguments."""
    began = time.perf_counter()
    code = subprocess.run([sys.executable, *arguments], cwd=CHECKOUT, check=False).returncode
    return code, time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
