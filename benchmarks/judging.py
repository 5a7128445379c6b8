"""What it costs to judge a case in a copy of the process, beside judging it in the process itself.

    python benchmarks/judging.py [--kernel NAME ...] [--check CHECK] [--cases N] [--lane LANE]

Both judge the same cases in turn, in this one run, after each has judged all of them once; a line a kernel
with the median milliseconds a case and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from bitproof.harness import checks, lanes
from bitproof.harness.case import Case, build
from bitproof.harness.commands.subject import find_subject
from bitproof.harness.search import profiles
from bitproof.harness.search.falsify import draw_cases
from bitproof.harness.search.isolation import Careful
from bitproof.harness.subjects.discovery import FoundSpec

Judge = Callable[[FoundSpec, str, Case], object]
KERNELS = ("cast_e4m3", "per_token_group", "dsrelu_bf16", "kda_chunk")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", nargs="+", default=KERNELS)
    parser.add_argument("--check", default="agreement")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--lane")
    options = parser.parse_args()
    lanes.choose(options.lane)
    found = [find_subject(name, (), None) for name in options.kernel]
    lane = lanes.present()
    elsewhere = Careful.on(lane, known=found)
    elsewhere.versions()  # it opens the device before this process does

    def here(subject: FoundSpec, check: str, case: Case) -> object:
        return checks.run(check, subject.spec, build(case, lane.device), lane)

    print(f"{'kernel':20} {'here':>9} {'copy':>9} {'ratio':>7}   ms a case, {options.check}")
    for subject in found:
        cases = draw_cases(subject.spec, options.cases, profiles.scale(lane.name))
        taken = measure(subject, options.check, cases, (here, elsewhere))
        inside, outside = (1000 * statistics.median(times) for times in taken)
        ratio = sum(taken[1]) / sum(taken[0])
        print(f"{subject.spec.name:20} {inside:9.2f} {outside:9.2f} {ratio:7.3f}")
    elsewhere.close()


def measure(
    subject: FoundSpec, check: str, cases: list[Case], judges: tuple[Judge, ...]
) -> list[list[float]]:
    """Seconds of each case by each judge, after a first pass that warms both."""
    taken: list[list[float]] = [[] for _ in judges]
    for warm in (True, False):
        for case in cases:
            for times, judge in zip(taken, judges, strict=True):
                began = time.perf_counter()
                judge(subject, check, case)
                if not warm:
                    times.append(time.perf_counter() - began)
    return taken


if __name__ == "__main__":
    main()
