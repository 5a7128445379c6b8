"""Block-scaled products against the bits of their tensor core, their bounds, and the faults these catch.

    python -m tests.evidence.fp8_gemm [--bits] [--cases 300] [--faults 20]

--bits       on a card: the linear, native and decoded, against `oracles.fp8_gemm.bits`; no bit may differ
--cases N    N drawn cases of each product: the largest error as a part of its bound, to stay under a half
--faults N   N drawn cases of each planted fault that agreement catches: in how many an output changes, how
             many are outside the derived bound, and how many are off by more than 1e-2 of the largest value

On the present lane. Exit 1 where a bit differs, or a right kernel comes to half of its bound.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

from bitproof.harness import lanes

lanes.choose()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402

from bitproof.harness.bounds.norms import scaled_max  # noqa: E402
from bitproof.harness.case import Inputs, Launch, Scale, build  # noqa: E402
from bitproof.harness.lanes.base import Lane, LaunchFailed, Variation, parameters  # noqa: E402
from bitproof.harness.report import compare  # noqa: E402
from bitproof.harness.spec import KernelSpec  # noqa: E402
from bitproof.harness.subjects.discovery import find  # noqa: E402
from bitproof.harness.subjects.planting import plant  # noqa: E402
from bitproof.kernels.fp8_gemm.cases import LinearCase  # noqa: E402
from bitproof.oracles import formats  # noqa: E402
from bitproof.oracles.fp8_gemm import bits  # noqa: E402
from bitproof.oracles.tensor_cores import SM_90  # noqa: E402

PRODUCTS = ("block_scaled_linear", "power_of_two_linear", "split_k_linear", "moe_prefill")
THRESHOLD = scaled_max(1e-2, because="the threshold of published tests")


def draw(spec: KernelSpec, count: int, lane: Lane) -> list[Any]:
    """The same cases each time, of `spec`'s strategy."""
    found: list[Any] = []
    scale = Scale(on_card=lanes.family(lane.name) == "cuda")

    @settings(
        max_examples=count, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(spec.strategy(scale))
    def collect(case: Any) -> None:
        found.append(case)

    collect()
    return found[:count]


def launched(spec: KernelSpec, inputs: Inputs, lane: Lane) -> np.ndarray[Any, Any] | None:
    """y as the lane gives it, None where the launch failed."""
    try:
        outputs = lane.run(spec, inputs, Variation()).outputs
    except LaunchFailed:
        return None
    return compare.fetch({"y": outputs["y"]})["y"]


def judge_cases(count: int, lane: Lane) -> tuple[list[str], float]:
    """A line for each product, and the largest error as a part of its bound where y is fp32.

    Where y is stored in less, the last rounding alone may take up all of the bound.
    """
    lines, largest = [], 0.0
    for name in PRODUCTS:
        spec = find([], [name])[0].spec
        worst, judged, outside = 0.0, 0, 0
        for case in draw(spec, count, lane):
            inputs = build(case, lane.device)
            got = launched(spec, inputs, lane)
            expected = spec.oracle(inputs.tensors, parameters(inputs))["y"]
            if got is None or not got.size:
                continue
            judged += 1
            judgement = spec.bounds["y"].judge(got, expected)
            outside += judgement is not None and bool(judgement.bad.any())
            if inputs.params.get("out") == "fp32":
                finite = np.isfinite(expected.value) & (expected.error > 0)
                apart = np.abs(got.astype(np.float64) - expected.value)[finite]
                worst = max(worst, float((apart / expected.error[finite]).max(initial=0.0)))
        lines.append(
            f"  {name:22} {judged:6} cases, {outside} outside; at most {worst:.3f} of the bound in fp32"
        )
        largest = max(largest, worst, float(outside > 0))
    return lines, largest


def judge_faults(count: int, lane: Lane) -> list[str]:
    """A line for each planted fault of a product that agreement catches, and one for them all."""
    lines, sums = [], np.zeros(3, dtype=int)
    for name in PRODUCTS:
        found = find([], [name])[0]
        cases = draw(found.spec, count, lane)
        right = []
        for case in cases:
            inputs = build(case, lane.device)
            expected = found.spec.oracle(inputs.tensors, parameters(inputs))["y"]
            right.append((inputs, expected, launched(found.spec, inputs, lane)))
        for fault in found.spec.faults:
            if fault.caught_by != "agreement" or lanes.family(lane.name) not in fault.lanes:
                continue
            spec = plant(found, fault)
            counts = np.zeros(3, dtype=int)
            for inputs, expected, before in right:
                got = launched(spec, inputs, lane)
                if got is None or before is None or not got.size:
                    continue
                changed = not np.array_equal(formats.bits(got), formats.bits(before))
                bounded = found.spec.bounds["y"].judge(got, expected)
                loose = THRESHOLD.judge(got, expected.value)
                outside = (bool(j is not None and j.bad.any()) for j in (bounded, loose))
                counts += np.array([changed, *outside])
            sums += counts
            lines.append(f"  {name:22} {fault.name:52} {counts[0]:5} {counts[1]:5} {counts[2]:5}")
    lines.append(f"  {'all':22} {'':52} {sums[0]:5} {sums[1]:5} {sums[2]:5}")
    return ["  product, fault: cases in which a bit changes, outside the bound, past 1e-2", *lines]


def compare_bits(lane: Lane) -> tuple[list[str], int]:
    """A line for each kind of codes and each instruction; how many outputs differ in a bit."""
    spec = find([], ["block_scaled_linear"])[0].spec
    lines, total = [], 0
    for decoded in (False, True):
        for height, key in ((64, "wgmma"), (128, "wgmma"), (16, "mma")):
            for kind in ("even", "one-sided", "any"):
                case = LinearCase(
                    rows=130,
                    columns=200,
                    depth=1040,
                    kind=kind,
                    spread=2,
                    decoded=decoded,
                    block_m=height,
                    seed=5,
                    launch=Launch(block=64),
                )
                inputs = build(case, lane.device)
                got = launched(spec, inputs, lane)
                assert got is not None
                operand = "bf16" if decoded else "e4m3"
                instruction = SM_90[operand, key]
                if decoded and key == "mma":  # bytes that a thread widens are dealt out by twos
                    instruction = replace(instruction, interleaved=2)
                want = bits.linear(inputs.tensors, inputs.params, instruction)
                different = int((formats.bits(got) != formats.bits(want)).sum())
                total += different
                lines.append(
                    f"  {operand} {key:6} height {height:3} {kind:10} {different} of {got.size} differ"
                )
    return lines, total


def main() -> int:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", action="store_true")
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--faults", type=int, default=0)
    options = parser.parse_args()
    lane = lanes.present()
    failed = False
    print(f"lane {lane.name}, torch {torch.__version__}")
    if options.bits:
        lines, different = compare_bits(lane)
        print("\n".join(lines))
        failed |= different > 0
    if options.cases:
        lines, largest = judge_cases(options.cases, lane)
        print("\n".join(lines))
        failed |= largest >= 0.5
    if options.faults:
        print("\n".join(judge_faults(options.faults, lane)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
