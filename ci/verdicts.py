"""One set of cases judged on every lane: the verdicts, and the bits of inputs and outputs, must be equal.

    python ci/verdicts.py draw FILE                     draw the cases, planted faults included
    python ci/verdicts.py judge FILE --lane cuda        judge them on a lane, results into FILE

A file holds rows {kernel, fault, check, case}; judging adds for the lane {outcome, inputs, outputs},
the last two SHA-256 digests (any NaN counted as one; none for planted faults, whose outputs may hold
whatever memory held). `tests/test_verdicts.py` judges the committed rows on the interpreter lane
and compares them with what an H200 gave.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

EACH = 3  # cases drawn for each kernel and check

Row = dict[str, Any]


def main() -> None:
    """Draw or judge, and say how many rows there are of each outcome."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("draw", "judge"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--lane", default="interpreter")
    options = parser.parse_args()
    from bitproof.harness import lanes

    lanes.choose(options.lane)
    lane = lanes.present()
    if options.action == "draw":
        data = {"rows": list(draw(lane)), "verdicts": {}}
    else:
        data = json.loads(options.file.read_text(encoding="utf-8"))
        judged = [judge(row, lane) for row in data["rows"]]
        data["verdicts"][lane.name] = {"versions": lane.versions(), "rows": judged}
        for row, verdict in zip(data["rows"], judged, strict=True):
            if (verdict["outcome"] == "passed") == bool(row["fault"]):
                print(row["kernel"], row["fault"], row["check"], verdict["outcome"])
    options.file.write_text(json.dumps(data, indent=0) + "\n", encoding="utf-8")
    print(f"{len(data['rows'])} rows on lane {lane.name}")


def draw(lane: Any) -> Iterator[Row]:
    """Passing cases of every kernel and check, and for every planted fault a case that shows it."""
    from bitproof.harness import case as cases
    from bitproof.harness import checks
    from bitproof.harness.search import falsify, profiles
    from bitproof.harness.subjects import planting as faults
    from bitproof.harness.subjects.discovery import find

    profiles.register()
    for found in find():
        for check in checks.names(found.spec):
            if checks.unable(check, found.spec, lane):
                continue
            for case in some(found.spec):
                yield row(found.spec.name, None, check, cases.encode(case))
        for fault in found.spec.faults:
            if lane.name not in fault.lanes:
                continue
            spec = faults.plant(found, fault)
            budget = profiles.examples(spec, fault.caught_by, lane.name, profiles.DEFAULT)
            result = falsify.search(
                spec, fault.caught_by, lane, max_examples=budget, shrink=False, base=steady()
            )
            if result.case is not None:
                yield row(found.spec.name, fault.name, fault.caught_by, cases.encode(result.case))


def row(kernel: str, fault: str | None, check: str, case: dict[str, Any]) -> Row:
    """One row of the file."""
    return {"kernel": kernel, "fault": fault, "check": check, "case": case}


def some(spec: Any) -> list[Any]:
    """A few cases of the spec's strategy, the last ones drawn being the less trivial."""
    from bitproof.harness.search import falsify

    return falsify.draw_cases(spec, 8 * EACH)[-EACH:]


def steady() -> Any:
    """Settings under which the same cases are drawn every time."""
    from hypothesis import settings

    from bitproof.harness.search import profiles

    return settings(settings.get_profile(profiles.CI))


def judge(row: Row, lane: Any) -> dict[str, str]:
    """The verdict of one row on this lane."""
    from bitproof.harness import case as cases
    from bitproof.harness import checks
    from bitproof.harness.lanes.base import Variation
    from bitproof.harness.subjects import planting as faults
    from bitproof.harness.subjects.discovery import find

    found = find([], [row["kernel"]])[0]
    spec = found.spec
    if row["fault"] is not None:
        fault = next(fault for fault in spec.faults if fault.name == row["fault"])
        spec = faults.plant(found, fault)
    inputs = cases.build(cases.decode(spec.case, row["case"]), lane.device)
    verdict = {
        "outcome": str(checks.run(row["check"], spec, inputs, lane).outcome),
        "inputs": digest(inputs.tensors),
    }
    if row["fault"] is None and verdict["outcome"] == "passed":
        verdict["outputs"] = digest(lane.run(spec, inputs, Variation()).outputs)
    return verdict


def digest(tensors: Mapping[str, Any]) -> str:
    """SHA-256 over names, shapes, dtypes and bits, every NaN counted as the same one."""
    import numpy as np

    from bitproof.harness.bounds import is_float
    from bitproof.oracles import formats

    total = hashlib.sha256()
    for name in sorted(tensors):
        values = formats.to_numpy(tensors[name])
        codes = formats.bits(values).astype(np.int64)
        if is_float(values.dtype):
            codes[formats.is_nan(formats.bits(values), formats.of_dtype(values.dtype))] = -1
        total.update(f"{name} {values.dtype} {values.shape}".encode())
        total.update(np.ascontiguousarray(codes).tobytes())
    return total.hexdigest()


if __name__ == "__main__":
    main()
