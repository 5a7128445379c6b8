"""What layouts, far cases, compilations, coverage and other orders of sums cost, in one run on this machine.

    python benchmarks/strictness.py [KERNEL ...] [--examples N] [--rounds N]

Searches each kernel with its three usual checks on the interpreter lane: with everything, then with one thing
left out at a time, then with all of them left out, in turn over some rounds after one that only warms up.
Prints seconds, the best of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

KERNELS = ("cast_e4m3", "per_token_group", "kv_store_int8", "dsrelu_bf16")
CHECKS = ("agreement", "memory", "reproducibility")
FAR = "layouts, corners and far rows"
COMPILING = "compiling what was launched"
COVERAGE = "lines that no launch executed"
ORDERS = "another order of sums"
POISON = "poison in lanes that are off"
PARTS = (FAR, COMPILING, COVERAGE, ORDERS, POISON)


def main() -> None:
    """Print a table: a row a kernel and check, a column for what is left out."""
    options = parse()
    from bitproof.harness import lanes

    lanes.choose("interpreter")
    from hypothesis import settings

    from bitproof.harness.search import falsify, profiles
    from bitproof.harness.subjects.discovery import find

    profiles.register()
    lane = lanes.present()
    columns: list[tuple[str, tuple[str, ...]]] = [("everything", ())]
    columns += [(f"without {part}", (part,)) for part in PARTS]
    columns += [("without all of these", PARTS)]
    print(f"best of {options.rounds}, {options.examples} drawn cases a check, seconds")
    totals = [0.0] * len(columns)
    for name in options.kernels or KERNELS:
        spec = find([], [name])[0].spec
        for check in CHECKS:
            best = [float("inf")] * len(columns)
            for number in range(options.rounds + 1):
                for place, (_, parts) in enumerate(columns):
                    with left_out(parts):
                        began = time.perf_counter()
                        falsify.search(
                            spec,
                            check,
                            lane,
                            max_examples=options.examples,
                            base=settings.get_profile(profiles.CI),
                        )
                        taken = time.perf_counter() - began
                    if number:
                        best[place] = min(best[place], taken)
            totals = [total + one for total, one in zip(totals, best, strict=True)]
            print(f"{name:<18}{check:<18}" + "".join(f"{one:8.2f}" for one in best), flush=True)
    print(f"{'together':<36}" + "".join(f"{one:8.2f}" for one in totals))
    for (title, _), total in zip(columns, totals, strict=True):
        print(f"  {title:<48}{total:8.2f}  {100 * (total / totals[0] - 1):+.0f} %")


@contextlib.contextmanager
def left_out(parts: tuple[str, ...]) -> Iterator[None]:
    """The named parts do nothing; compiled answers are kept nowhere, so that each search compiles anew."""
    from bitproof.harness.checks import agreement, reproducibility
    from bitproof.harness.compiling import compiler
    from bitproof.harness.lanes.interpreter import access, passages
    from bitproof.harness.search import falsify

    def nothing(*_: Any) -> Any:
        return iter(())

    def zeros(shape: Any, dtype: Any) -> Any:
        import numpy as np

        return np.zeros(shape, dtype)

    made: dict[str, list[Any]] = {
        FAR: [mock.patch.object(falsify, "_find_further_cases", nothing)],
        COMPILING: [mock.patch.object(agreement, "find_refusal", return_value="")],
        COVERAGE: [mock.patch.object(passages, "noting", contextlib.nullcontext)],
        ORDERS: [mock.patch.object(reproducibility, "adds_in_another_order", return_value=False)],
        POISON: [mock.patch.object(access, "make_undefined", zeros)],
    }
    compiler._answers.clear()
    compiler._met.clear()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(compiler, "FOLDER", Path(tempfile.mkdtemp())))
        for part in parts:
            for patch in made[part]:
                stack.enter_context(patch)
        yield


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("kernels", nargs="*", metavar="KERNEL")
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
