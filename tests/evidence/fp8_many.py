"""Many cases of the block-scaled products against their bounds, and what their planted faults change.

    python -m tests.evidence.fp8_many [--cases 20000] [--large 200] [--faults 20]
                                      [--processes N] [--seconds S]

--cases N   N products of M, N and K from 1 to 512, of each kind of numbers, native and decoded to bf16: of 20
            there are 10 linears, 5 with scales that are powers of two, 4 for one token, 1 mixture of experts
--large N   N more of up to 1024 x 1024 x 4096
--faults N  N drawn cases of each planted fault that agreement catches: in how many an output changes, how
            many leave the derived bound, and how many are off by more than 1e-2 of the largest value
--seconds S after which cases that have not begun are left out, and counted as such

An error is told as a part of what the bound allows on its side. The bound follows each step of an
instruction, so that a sum of few steps may come near to it; and a mixture of experts stores bf16 in between
and at the end, whose half unit is no estimate but happens.

On the present lane, on as many processes as there are cores. Exit 1 where a right kernel leaves its bound.
That each fault is caught at all is for `tests/test_faults.py`, with corners.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import multiprocessing
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from bitproof.harness import lanes

lanes.choose()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402

from bitproof.harness.bounds.norms import scaled_max  # noqa: E402
from bitproof.harness.case import Case, Inputs, Launch, Scale, build  # noqa: E402
from bitproof.harness.lanes.base import LaunchFailed, Variation, parameters  # noqa: E402
from bitproof.harness.report import compare  # noqa: E402
from bitproof.harness.spec import KernelSpec  # noqa: E402
from bitproof.harness.subjects.discovery import find  # noqa: E402
from bitproof.harness.subjects.planting import plant  # noqa: E402
from bitproof.kernels.fp8_gemm.cases import LinearCase, VectorCase  # noqa: E402
from bitproof.kernels.fp8_gemm.cases_experts import ExpertsCase, Routing  # noqa: E402
from bitproof.oracles import formats  # noqa: E402
from bitproof.oracles.estimates import Estimate  # noqa: E402
from bitproof.oracles.formats import Array  # noqa: E402

TURN = (
    *("block_scaled_linear",) * 10,
    *("power_of_two_linear",) * 5,
    *("split_k_linear",) * 4,
    "moe_prefill",
)
PRODUCTS = tuple(dict.fromkeys(TURN))
THRESHOLD = scaled_max(1e-2, because="the threshold of published tests")


@dataclass(frozen=True)
class Judged:
    """What one case of a right kernel showed; `part` is the largest error as a part of its bound."""

    name: str
    decoded: bool
    outside: bool
    part: float
    of_largest: float


def draw(number: int, large: bool) -> tuple[str, Case]:
    """The product and case of this number: the same each time."""
    pick = random.Random(number if not large else -1 - number)
    name = TURN[number % len(TURN)]
    most, deepest = (1024, 4096) if large else (512, 512)
    rows, columns, depth = pick.randint(1, most), pick.randint(1, most), pick.randint(1, deepest)
    if pick.random() < 0.5:
        depth = -(-depth // 16) * 16  # what TMA reads
    seed, decoded = pick.randrange(1 << 16), pick.random() < 0.5
    height = pick.choice((16, 64))
    if name == "moe_prefill":
        width, inner = (128 * pick.randint(1, most // 128) for _ in range(2))
        experts, top_k = pick.randint(1, 6), pick.choice((1, 3))
        sizes = tuple(pick.randint(0, 2 * rows // experts) // 4 for _ in range(experts))
        return name, ExpertsCase(
            routing=Routing(sizes=sizes, elsewhere=pick.choice((1, 5)), top_k=top_k),
            width=width,
            inner=inner,
            signed=pick.random() < 0.5,
            decoded=decoded,
            block_m=height,
            seed=seed,
        )
    if name == "split_k_linear":
        return name, VectorCase(
            columns=columns,
            depth=depth,
            half=height == 16,
            powers=height == 16,
            spread=pick.choice((0, 2, 20)),
            decoded=decoded,
            splits=4 if decoded else 8,
            seed=seed,
        )
    return name, LinearCase(
        rows=rows,
        columns=columns,
        depth=depth,
        kind=pick.choice(("even", "one-sided", "any")),
        powers=name == "power_of_two_linear",
        spread=pick.choice((0, 2, 20)),
        across=height == 64,  # what adds compiled variants goes together
        decoded=decoded,
        block_m=height,
        seed=seed,
        launch=Launch(block=64),
    )


@functools.cache
def spec_of(name: str) -> KernelSpec:
    """The built-in spec of that name."""
    return find([], [name])[0].spec


def launched(spec: KernelSpec, inputs: Inputs) -> Array | None:
    """y as the lane gives it, None where the launch failed."""
    try:
        outputs = lanes.present().run(spec, inputs, Variation()).outputs
    except LaunchFailed:
        return None
    return compare.fetch({"y": outputs["y"]})["y"]


def judge(number: int, large: bool) -> Judged:
    """Run the case of this number, and compare it with its bound."""
    name, case = draw(number, large)
    spec, inputs = spec_of(name), build(case, lanes.present().device)
    expected: Estimate = spec.oracle(inputs.tensors, parameters(inputs))["y"]
    got = launched(spec, inputs)
    decoded = bool(inputs.params["decoded"])
    if got is None:
        return Judged(name, decoded, outside=True, part=np.inf, of_largest=np.inf)
    judgement = spec.bounds["y"].judge(got, expected)
    outside = judgement is not None and bool(judgement.bad.any())
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = got.astype(np.float64) - expected.value
        allowed = np.where(apart < 0, expected.value - expected.low, expected.high - expected.value)
        part = np.where(apart == 0, 0.0, np.abs(apart) / allowed)
    largest = np.abs(expected.value).max(initial=0.0)
    relative = np.abs(apart).max(initial=0.0) / largest if largest else 0.0
    return Judged(name, decoded, outside, float(part.max(initial=0.0)), float(relative))


def judge_some(numbers: range, large: bool) -> list[Judged]:
    """One after the other."""
    return [judge(number, large) for number in numbers]


def drawn(spec: KernelSpec, count: int) -> list[Any]:
    """The same cases each time, of `spec`'s strategy."""
    found: list[Any] = []
    scale = Scale(on_card=lanes.family(lanes.present().name) == "cuda")

    @settings(
        max_examples=count, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(spec.strategy(scale))
    def collect(case: Any) -> None:
        found.append(case)

    collect()
    return found[:count]


def judge_fault(name: str, fault_name: str, count: int) -> tuple[int, int, int]:
    """In how many cases this fault changes a bit, leaves the bound, and passes the threshold."""
    found = find([], [name])[0]
    [fault] = [fault for fault in found.spec.faults if fault.name == fault_name]
    planted = plant(found, fault)
    counts = np.zeros(3, dtype=int)
    for case in drawn(found.spec, count):
        inputs = build(case, lanes.present().device)
        before, got = launched(found.spec, inputs), launched(planted, inputs)
        if got is None or before is None or not got.size:
            continue
        expected = found.spec.oracle(inputs.tensors, parameters(inputs))["y"]
        bounded = found.spec.bounds["y"].judge(got, expected)
        loose = THRESHOLD.judge(got, expected.value)
        outside = (bool(j is not None and j.bad.any()) for j in (bounded, loose))
        changed = not np.array_equal(formats.bits(got), formats.bits(before))
        counts += np.array([changed, *outside])
    return int(counts[0]), int(counts[1]), int(counts[2])


def planted_faults() -> Iterator[tuple[str, str]]:
    """Product and name of each fault that agreement catches on the present lane."""
    family = lanes.family(lanes.present().name)
    for name in PRODUCTS:
        for fault in spec_of(name).faults:
            if fault.caught_by == "agreement" and family in fault.lanes:
                yield name, fault.name


def describe(judged: list[Judged]) -> tuple[list[str], bool]:
    """A line for each product and form, and whether one of them is wrong."""
    by_form: dict[tuple[str, bool], list[Judged]] = defaultdict(list)
    for one in judged:
        by_form[one.name, one.decoded].append(one)
    lines, wrong = [], False
    for (name, decoded), some in sorted(by_form.items()):
        outside, part = sum(one.outside for one in some), max(one.part for one in some)
        relative = max(one.of_largest for one in some)
        form = "decoded" if decoded else "native"
        lines.append(
            f"  {name:20} {form:8} {len(some):6} {outside:8} {part:10.4f} {relative:12.1e}"
        )
        wrong |= outside > 0
    return ["  product, form: cases, outside, largest part of the bound, of max|y|", *lines], wrong


def main() -> int:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--large", type=int, default=0)
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    began, wrong = time.monotonic(), False
    print(f"lane {lanes.present().name}, torch {torch.__version__}", flush=True)
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        faults = list(planted_faults()) if options.faults else []
        planted = [pool.submit(judge_fault, *fault, options.faults) for fault in faults]
        large = [pool.submit(judge_some, range(i, i + 1), True) for i in range(options.large)]
        small = [
            pool.submit(judge_some, range(i, min(i + 20, options.cases)), False)
            for i in range(0, options.cases, 20)
        ]
        concurrent.futures.wait([*planted, *large, *small], options.seconds)
        for future in (*planted, *large, *small):
            future.cancel()
        for title, futures in (("large", large), ("up to 512", small)):
            begun = [future.result() for future in futures if not future.cancelled()]
            if futures:
                judged = [one for some in begun for one in some]
                lines, bad = describe(judged)
                wrong |= bad
                left = len(futures) - len(begun)
                note = f", {left} of {len(futures)} parts left out" if left else ""
                print("\n".join([f"{title}, {len(judged)} cases{note}", *lines]), flush=True)
        if planted:
            print("  product, fault: cases in which a bit changes, outside the bound, past 1e-2")
        sums = np.zeros(3, dtype=int)
        for (name, fault), future in zip(faults, planted, strict=True):
            if future.cancelled():
                print(f"  {name:20} {fault:54} left out")
                continue
            counts = future.result()
            sums += np.array(counts)
            print(f"  {name:20} {fault:54} {counts[0]:4} {counts[1]:4} {counts[2]:4}", flush=True)
        if planted:
            print(f"  {'all':20} {'':54} {sums[0]:4} {sums[1]:4} {sums[2]:4}")
    print(f"{time.monotonic() - began:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
