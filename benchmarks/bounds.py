"""How wide the bounds of products are that follow a tensor core's steps, beside K units of all magnitudes.

    python benchmarks/bounds.py [--cases N]

A line a kernel: how many times narrower the interval of a product is than K * 2^-23 of the product of
magnitudes on either side, K * 2^-13 for fp8 operands: the median over the elements of drawn cases, what a
tenth are below, what a tenth are above, and the most. `sides` is how much of an interval lies on the larger
side of the exact value: 50 % is in the middle. `alike` is the share of elements that have one bit pattern in
bf16, and `before` what that was with K units.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch

from bitproof.harness import lanes
from bitproof.harness.case import build
from bitproof.harness.commands.subject import find_subject
from bitproof.harness.search import profiles
from bitproof.harness.search.falsify import draw_cases
from bitproof.oracles import dsrelu
from bitproof.oracles.estimates import Estimate, round_estimate
from bitproof.oracles.formats import BF16, Floats, to_numpy
from bitproof.oracles.fp8_gemm import products

Pair = tuple[Estimate, Floats]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100)
    count = parser.parse_args().cases
    lanes.choose("interpreter")
    columns = ("median", "tenth", "ninth", "most", "sides", "alike", "before")
    print(f"{'narrower':32}" + "".join(f"{name:>9}" for name in columns))
    for name in ("dsrelu_bf16", "dsrelu_fp8"):
        report(name, of_dsrelu(name, count))
    for decoded in (False, True):
        title = f"block_scaled_linear, {'decoded' if decoded else 'native'}"
        report(title, of_linear(count, decoded=decoded))


def report(title: str, pairs: Iterator[Pair]) -> None:
    """One line of the table, over all elements that have products."""
    narrower, sides, alike, before = [], [], [], []
    for found, error in pairs:
        width = found.high - found.low
        # What is subnormal may be flushed: such elements have other bounds.
        counted = np.isfinite(width) & (np.abs(found.value) > 2.0**-100) & (error > 0)
        narrower.append((2 * error / np.where(width > 0, width, np.inf))[counted])
        larger = np.maximum(found.high - found.value, found.value - found.low)
        sides.append((larger / np.where(width > 0, width, np.inf))[counted])
        old = Estimate(value=found.value, low=found.value - error, high=found.value + error)
        for one, into in ((found, alike), (old, before)):
            stored = round_estimate(one, BF16)
            into.append((stored.low == stored.high)[counted])
    ratios = np.concatenate(narrower)
    tenth, median, ninth, most = np.quantile(ratios, (0.1, 0.5, 0.9, 1.0))
    side = 100 * np.median(np.concatenate(sides))
    one, other = (100 * np.concatenate(x).mean() for x in (alike, before))
    told = "".join(f"{ratio:9.1f}" for ratio in (median, tenth, ninth, most))
    print(f"{title:32}{told}" + "".join(f"{share:8.1f}%" for share in (side, one, other)))


def of_dsrelu(name: str, count: int) -> Iterator[Pair]:
    """The products of each group of drawn cases."""
    spec = find_subject(name, (), None).spec
    for case in draw_cases(spec, count, profiles.scale("interpreter")):
        tensors = build(case, torch.device("cpu")).tensors
        a, b = (dsrelu.dequantise(tensors[x], tensors.get(f"{x}_scale")) for x in "ab")
        offsets, experts = (to_numpy(tensors[x]) for x in ("offsets", "experts"))
        for _, rows, expert in dsrelu.list_groups(offsets, experts):
            x, w = a[rows], b[expert]
            with np.errstate(all="ignore"):
                yield dsrelu.sum_in_order(x, w), _plain(x, w, 2.0**-23)


def of_linear(count: int, *, decoded: bool) -> Iterator[Pair]:
    """The products of drawn cases, in fp32, multiplied one way or the other."""
    spec = find_subject("block_scaled_linear", (), None).spec
    for case in draw_cases(spec, count, profiles.scale("interpreter")):
        tensors = build(case, torch.device("cpu")).tensors
        found = products.linear(tensors, {"decoded": decoded, "out": "fp32"})["y"]
        a = products.dequantise(tensors["a"], products.scale_values(tensors["a_scale"]))
        scales = products.rows_of_blocks(tensors["b_scale"], len(tensors["b"]))
        with np.errstate(all="ignore"):
            b = products.dequantise(tensors["b"], scales)
            yield found, _plain(a, b, 2.0**-23 if decoded else 2.0**-13)


def _plain(a: Floats, b: Floats, unit: float) -> Floats:
    """K units of the product of magnitudes."""
    return np.asarray(a.shape[1] * unit * (np.abs(a) @ np.abs(b).T))


if __name__ == "__main__":
    main()
