"""The interpreter lane beside Triton's own interpreter: what each piece costs, and where the time goes.

    python benchmarks/interpreter.py [--repeats N]

Every column is a process of its own and adds one piece to the one before it: the stock interpreter, the
lane's arithmetic, remembered types, a drawn program order, the sanitizer. Times are processor seconds of
the fastest repeat on one thread, so that a busy machine does not have a say. The second table divides the
last column by the code that spent it.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import os
import pstats
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))
os.environ["TRITON_INTERPRET"] = "1"

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

STAGES = ("stock", "arithmetic", "remembered", "ordered", "watched")


@triton.jit
def gate(x, y, out, n, BLOCK: tl.constexpr):
    """out = x * sigmoid(x) * y, elementwise."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a = tl.load(x + at, mask=mask, other=0.0)
    b = tl.load(y + at, mask=mask, other=0.0)
    tl.store(out + at, a * tl.sigmoid(a) * b, mask=mask)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    """A row of softmax a program."""
    at = tl.arange(0, BLOCK)
    mask = at < columns
    row = tl.load(x + tl.program_id(0) * columns + at, mask=mask, other=float("-inf"))
    power = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + tl.program_id(0) * columns + at, power / tl.sum(power, axis=0), mask=mask)


@triton.jit
def product(a, b, c, n, k, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """A tile of an (n, n) matrix product a program, chunk by chunk."""
    tiles = tl.cdiv(n, BLOCK)
    rows = (tl.program_id(0) // tiles) * BLOCK + tl.arange(0, BLOCK)
    columns = (tl.program_id(0) % tiles) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, STEP)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, STEP):
        here = start + inner
        left = (rows[:, None] < n) & (here[None, :] < k)
        right = (here[:, None] < k) & (columns[None, :] < n)
        one = tl.load(a + rows[:, None] * k + here[None, :], mask=left, other=0.0)
        other = tl.load(b + here[:, None] * n + columns[None, :], mask=right, other=0.0)
        total += tl.dot(one, other, input_precision="ieee")
    inside = (rows[:, None] < n) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=inside)


def run_gate() -> None:
    """2^20 elements in 1024 programs."""
    x, y, out = (torch.ones(1 << 20) for _ in range(3))
    gate[(1024,)](x, y, out, 1 << 20, BLOCK=1024)


def run_softmax() -> None:
    """512 rows of 1000."""
    x, out = torch.ones(512, 1000), torch.empty(512, 1000)
    softmax[(512,)](x, out, 1000, BLOCK=1024)


def run_product() -> None:
    """(640, 512) times (512, 640) in 100 programs of 16 chunks."""
    a, b, c = torch.ones(640, 512), torch.ones(512, 640), torch.empty(640, 640)
    product[(100,)](a, b, c, 640, 512, BLOCK=64, STEP=32)


KERNELS: dict[str, Callable[[], None]] = {
    "elementwise, 2^20 fp32 in 1024 programs": run_gate,
    "softmax, 512 rows of 1000": run_softmax,
    "product, 100 programs of 16 chunks": run_product,
}


def main() -> None:
    """Print both tables, or, as a child process, measure one column."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        print(json.dumps(measure(options.stage, options.repeats)))
        return
    columns = {stage: child(stage, options.repeats) for stage in STAGES}
    print(f"{'milliseconds':42}" + "".join(f"{stage:>12}" for stage in STAGES))
    for name in KERNELS:
        times = [columns[stage][name]["ms"] for stage in STAGES]
        print(f"{name:42}" + "".join(f"{ms:12.0f}" for ms in times))
    for name in KERNELS:
        print(f"\nwatched, {name}: share of the time by code")
        for place, share in columns["watched"][name]["shares"].items():
            print(f"  {place:40}{share:6.1%}")


def child(stage: str, repeats: int) -> dict[str, Any]:
    """What a fresh process on one thread measures."""
    command = [sys.executable, __file__, "--stage", stage, "--repeats", str(repeats)]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(
        command, env={**os.environ, **threads}, stdout=subprocess.PIPE, check=True, text=True
    )
    measured: dict[str, Any] = json.loads(run.stdout)
    return measured


def measure(stage: str, repeats: int) -> dict[str, Any]:
    """Milliseconds of each kernel, and for the last stage the shares of the code."""
    session = sessions(stage)
    measured = {}
    for name, run in KERNELS.items():
        times = []
        for _ in range(repeats):
            with session():
                start = time.process_time()
                run()
                times.append(time.process_time() - start)
        measured[name] = {"ms": 1000 * min(times)}
        if stage == "watched":
            profile = cProfile.Profile()
            with session(), profile:
                run()
            measured[name]["shares"] = shares(profile)
    return measured


def sessions(stage: str) -> Callable[[], Any]:
    """A function that opens one launch's session, with the pieces of `stage` installed."""
    if stage == "stock":
        return contextlib.nullcontext
    from bitproof.harness.lanes.interpreter import overlay, state
    from bitproof.harness.lanes.interpreter.sanitizer.sanitizer import Sanitizer

    if stage == "arithmetic":
        overlay.SUBJECTS = tuple(s for s in overlay.SUBJECTS if s != "speed")
    overlay.install()
    order = ("drawn", 0) if stage in ("ordered", "watched") else None
    watched = stage == "watched"
    return lambda: state.session(state.Session(order=order, watch=Sanitizer() if watched else None))


def shares(profile: cProfile.Profile) -> dict[str, float]:
    """The share of the profiled time that each file's own code took, the largest first."""
    spent: dict[str, float] = {}
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():
        spent[place(file)] = spent.get(place(file), 0.0) + own
    total = sum(spent.values())
    ranked = sorted(spent.items(), key=lambda item: -item[1])
    return {name: own / total for name, own in ranked if own > 0.005 * total}


def place(file: str) -> str:
    """What a source file is part of."""
    path = Path(file).resolve()
    if path.is_relative_to(CHECKOUT / "harness" / "lanes" / "interpreter"):
        return f"this lane: {path.stem}"
    for package in ("triton", "numpy", "torch"):
        if package in path.parts:
            return f"{package}: {path.stem}" if package == "triton" else package
    return (
        "the kernel" if path == Path(__file__).resolve() else "built in: numpy's loops and Python"
    )


if __name__ == "__main__":
    main()
