"""Where an example's time goes, beside a plain parametrised pytest that launches and compares the same.

    python benchmarks/examples.py KERNEL [--lane LANE] [--examples N] [--set FIELD=INTEGER ...]

Draws N cases of the kernel's strategy (or, with --set, N seeds of one shape), then times each stage over
the same cases: drawing (Hypothesis alone), building inputs, launching the bare launcher, the oracle,
what guarded memory adds to the launch, comparing, and the whole search. The last line is a parametrised
pytest in a process of its own: the same cases built, launched and compared by numpy.array_equal.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

PLAIN = """
import json, sys
import numpy as np, pytest, torch
sys.path.insert(0, {checkout!r})
from bitproof.harness import case as cases, lanes
lanes.choose({lane!r})
from bitproof.harness.subjects.discovery import find
from bitproof.harness.lanes.base import parameters
from bitproof.oracles import formats
lane = lanes.present()
spec = find([], [{kernel!r}])[0].spec
CASES = [cases.decode(spec.case, plain) for plain in json.load(open({file!r}))]

@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_agreement(case):
    inputs = cases.build(case, lane.device)
    tensors = {{name: tensor.clone() for name, tensor in inputs.tensors.items()}}
    outputs = lane.launch(spec, tensors, parameters(inputs))
    for name, expected in spec.oracle(inputs.tensors, parameters(inputs)).items():
        got = formats.to_numpy(outputs[name])
        same = formats.bits(got) == formats.bits(expected)
        assert (same | np.isnan(got.astype(np.float32))).all()
"""


def main() -> None:
    """Print one line a stage, in milliseconds an example."""
    options = parse()
    from bitproof.harness import lanes

    name = lanes.choose(options.lane)
    import hypothesis
    import torch

    from bitproof.harness import case as cases
    from bitproof.harness.lanes.base import Variation, parameters
    from bitproof.harness.report import compare
    from bitproof.harness.search import falsify, profiles
    from bitproof.harness.subjects.discovery import find

    profiles.register()
    hypothesis.settings.load_profile(profiles.CI)
    lane = lanes.present()
    spec = find([], [options.kernel])[0].spec
    drawn, drawing = draw(spec, profiles.scale(lane.name), options)
    inputs = [cases.build(case, lane.device) for case in drawn]

    def settle() -> None:
        if lane.device.type == "cuda":
            torch.cuda.synchronize()

    def each(action: Callable[[int], Any]) -> float:
        action(0)
        settle()
        times = []
        for i in range(len(drawn)):
            began = time.perf_counter()
            action(i)
            settle()
            times.append(time.perf_counter() - began)
        return 1e3 * statistics.fmean(times)

    def clones(i: int) -> dict[str, Any]:
        return {key: tensor.clone() for key, tensor in inputs[i].tensors.items()}

    for i in range(len(drawn)):  # compile what each of the launches below specialises on
        lane.launch(spec, clones(i), parameters(inputs[i]))
        lane.run(spec, inputs[i], Variation())
    building = each(lambda i: cases.build(drawn[i], lane.device))
    features = each(lambda i: list(drawn[i].features()))
    copying = each(clones)
    launching = each(lambda i: lane.launch(spec, clones(i), parameters(inputs[i]))) - copying
    guarded = each(lambda i: lane.run(spec, inputs[i], Variation()))
    oracle = each(lambda i: spec.oracle(inputs[i].tensors, parameters(inputs[i])))
    answers = [spec.oracle(one.tensors, parameters(one)) for one in inputs]
    outputs = [lane.run(spec, one, Variation()).outputs for one in inputs]

    def compared(i: int) -> None:
        for key, got in compare.fetch(outputs[i]).items():
            compare.output(spec, key, got, answers[i][key], inputs[i])

    comparing = each(compared)
    added = building + features + (guarded - launching) + comparing
    rows = [
        ("drawing (Hypothesis)", drawing),
        ("building the inputs", building),
        ("saying what is covered", features),
        ("launching, bare", launching),
        ("guarded memory, added", guarded - launching),
        ("oracle", oracle),
        ("comparing", comparing),
        ("added to launch and oracle", added),
    ]
    if not options.set:
        falsify.search(spec, "agreement", lane, max_examples=options.examples)  # compiles
        began = time.perf_counter()
        result = falsify.search(spec, "agreement", lane, max_examples=options.examples)
        rows.append(("whole search", 1e3 * (time.perf_counter() - began) / result.examples))
    many = drawn * (1 if options.set else -(-1500 // len(drawn)))  # start-up must not matter
    rows.append(("plain parametrised pytest", plain(many, options.kernel, name)))
    versions = "  ".join(f"{key} {value}" for key, value in lane.versions().items())
    print(f"{options.kernel}, {len(drawn)} cases, {versions}")
    for label, milliseconds in rows:
        print(f"{label:28} {milliseconds:9.3f} ms")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Where an example's time goes.")
    parser.add_argument("kernel")
    parser.add_argument("--lane")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=INTEGER")
    return parser.parse_args()


def draw(spec: Any, scale: Any, options: argparse.Namespace) -> tuple[list[Any], float]:
    """The cases, and what drawing one costs in milliseconds."""
    from hypothesis import Phase, given, settings

    drawn: list[Any] = []

    def keep(case: Any) -> None:
        drawn.append(case)

    began = time.perf_counter()
    chosen = settings(max_examples=options.examples, phases=[Phase.generate])
    chosen(given(spec.strategy(scale))(keep))()
    milliseconds = 1e3 * (time.perf_counter() - began) / len(drawn)
    if options.set:
        fields = {k: int(v) for k, v in (item.split("=") for item in options.set)}
        drawn = [dataclasses.replace(case, **fields) for case in drawn]
    return drawn, milliseconds


def plain(drawn: list[Any], kernel: str, lane: str) -> float:
    """Milliseconds an example of a parametrised pytest over the same cases, without its start-up."""
    from bitproof.harness import case as cases

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        file.write_text(json.dumps([cases.encode(case) for case in drawn]))
        test = Path(folder) / "test_plain.py"
        test.write_text(
            PLAIN.format(checkout=str(CHECKOUT), lane=lane, kernel=kernel, file=str(file))
        )
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        times = []
        for selection in (str(test), f"{test}::test_agreement[0]"):
            began = time.perf_counter()
            subprocess.run(
                [*command, selection], cwd=folder, env=os.environ, check=True, capture_output=True
            )
            times.append(time.perf_counter() - began)
    return 1e3 * (times[0] - times[1]) / max(len(drawn) - 1, 1)


if __name__ == "__main__":
    main()
