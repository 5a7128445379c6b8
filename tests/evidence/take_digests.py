"""Take the digests that the interpreter lane is held against, on the GPU of this machine.

    python -m tests.evidence.take_digests [FILE] [--lane interpreter] [--no-sweeps]

Runs every item of `digests` and `measurements`, each on its own so that one that fails costs only
itself, and writes one JSON file: {format, versions, card, exact, measured, facts}. The default is
$OUT/digests.json where OUT is set, else the committed table, `digests.json` beside this file, which
`test_digests.py` compares with the lane.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("digests.json")


def main() -> int:
    """Run all items, write the table, print a line for each; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=_default())
    parser.add_argument("--lane", choices=("cuda", "interpreter"), default="cuda")
    parser.add_argument("--no-sweeps", action="store_true", help="leave out the 2^32 sweeps")
    options = parser.parse_args()
    os.environ["TRITON_INTERPRET"] = "1" if options.lane == "interpreter" else "0"

    from bitproof.harness.targets.versions import libraries
    from tests.evidence import digests, measurements

    machine = on_card() if options.lane == "cuda" else interpreted()
    exact = digests.EXACT
    if options.no_sweeps:
        exact = {name: item for name, item in exact.items() if not name.startswith("sweep")}
    table: dict[str, Any] = {"format": 1, "versions": libraries(), "card": _card(options.lane)}
    lines: list[str] = []
    groups = {"exact": exact, "measured": measurements.MEASURED, "facts": measurements.FACTS}
    for group, items in groups.items():
        table[group] = _answers(group, items, machine, lines)
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 1 if any("FAILED" in line for line in lines) else 0


def _answers(
    group: str, items: Mapping[str, Any], machine: Any, lines: list[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, item in items.items():
        began = time.perf_counter()
        try:
            found[name] = item(machine)
        except Exception:
            found[name] = {"failed": traceback.format_exc(limit=-3)}
            print(found[name]["failed"], file=sys.stderr, flush=True)
        took = time.perf_counter() - began
        lines.append(f"{group:9} {name:50} {took:6.1f} s  {_word(group, found[name])}")
        print(lines[-1], file=sys.stderr, flush=True)
    return found


def _word(group: str, found: dict[str, Any]) -> str:
    if "failed" in found:
        return "FAILED " + found["failed"].strip().splitlines()[-1][:80]
    if group == "exact":
        return f"{sum(len(v) if isinstance(v, list) else 1 for v in found.values())} digests"
    if group == "measured":
        over = [row for row, v in found.items() if v["measured"] > v["bound"]]
        worst = max(found.values(), key=lambda v: v["measured"] / v["bound"])
        return f"worst {worst['measured']:.3g} of {worst['bound']:.3g}; above: {over or 'none'}"
    return json.dumps(found)


def on_card() -> Any:
    """The machine that compiles for, and runs on, the present GPU."""
    import torch

    from tests.evidence.digests import Machine

    def launch(kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], fused: bool) -> None:
        kernel[grid](*args, enable_fp_fusion=fused)
        torch.cuda.synchronize()

    return Machine(device=torch.device("cuda"), launch=launch, block=1024)


def interpreted() -> Any:
    """The machine that is the interpreter lane."""
    import torch

    from bitproof.harness.lanes.interpreter import overlay, state
    from tests.evidence.digests import Machine

    overlay.install()

    def launch(kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], fused: bool) -> None:
        with state.session(state.Session(fp_fusion=fused)):
            kernel[grid](*args)

    return Machine(device=torch.device("cpu"), launch=launch, block=1 << 16)


def _card(lane: str) -> str:
    import torch

    return torch.cuda.get_device_name() if lane == "cuda" else "interpreter"


def _default() -> Path:
    return Path(os.environ["OUT"]) / "digests.json" if "OUT" in os.environ else TABLE


if __name__ == "__main__":
    sys.exit(main())
