"""Judges the five kernels in many cases, and their edits: `python -m tests.first_specs.judging --help`."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Iterator

from bitproof.harness import lanes
from bitproof.harness.search import falsify, profiles
from bitproof.harness.search.falsify import SearchResult
from bitproof.harness.search.isolation import Careful
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import with_fault
from tests.first_specs.edits import EDITS

SPECS = "tests.first_specs.specs"


def found_specs() -> dict[str, FoundSpec]:
    """The five specs with their edits planted nowhere yet, by name."""
    return {
        found.spec.name: dataclasses.replace(
            found, spec=dataclasses.replace(found.spec, faults=EDITS[found.spec.name])
        )
        for found in find([SPECS])
    }


def judge(found: FoundSpec, check: str, cases: int) -> SearchResult:
    """One search, derandomised, each case in a copy of this process; the first defect is not shrunk."""
    lane = lanes.present()
    careful = Careful.on(lane, known=[found], journal=None, timeout=None)
    profiles.register()
    try:
        return falsify.search(
            found.spec,
            check,
            lane,
            max_examples=cases,
            shrink=False,
            base=profiles.settings.get_profile(profiles.CI),
            execute=lambda case: careful(found, check, case),
        )
    finally:
        careful.close()


def judge_edits(found: FoundSpec, cases: int) -> Iterator[tuple[str, bool, int]]:
    """(edit, whether its check caught it, cases that it took) of each."""
    for edit in EDITS[found.spec.name]:
        result = judge(with_fault(found, edit.name), edit.caught_by, cases)
        yield edit.name, result.outcome.is_defect, result.examples


def main() -> None:
    """Print a line for each kernel and each edit; the status is 1 for a false alarm or a missed edit."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="of each kernel")
    parser.add_argument("--edit-cases", type=int, default=100, help="of each edit, at most")
    parser.add_argument("--lane", default=None)
    parser.add_argument("--kernel", default=None)
    asked = parser.parse_args()
    lanes.choose(asked.lane)
    wrong = 0
    for name, found in found_specs().items():
        if asked.kernel not in (None, name):
            continue
        for check in ("agreement", "memory") if asked.cases else ():
            began = time.perf_counter()
            result = judge(found, check, asked.cases if check == "agreement" else asked.cases // 10)
            took = time.perf_counter() - began
            print(
                f"{name} {check}: {result.outcome}, {result.examples} cases in {took:.0f} s",
                flush=True,
            )
            if result.findings is not None:
                print(result.case, result.findings.text, flush=True)
            wrong += result.outcome.is_defect
        for edit, caught, cases in judge_edits(found, asked.edit_cases) if asked.edit_cases else ():
            print(f"{name} {edit}: {'caught' if caught else 'MISSED'} in {cases} cases", flush=True)
            wrong += not caught
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
