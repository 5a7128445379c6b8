"""Products on a card against the model of its tensor cores, bit for bit.

    python -m tests.evidence.tensor_cores [--outputs 1000000] [--write]

For every row of `oracles.tensor_cores.SM_90` and every kind of operand, `tl.dot` over chained steps of K runs
on the card, and `multiply` on the processor; prints how many outputs differ in a bit. Exit 1 if any does.
With `--write`, digests of what the card gave go to tensor_cores.json, which `test_tensor_cores` compares.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from bitproof.oracles import formats
from bitproof.oracles.tensor_cores import FORMATS, SM_90, multiply

Array = np.ndarray[Any, Any]

TORCH = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
KINDS = ("normal", "one-sided", "wide", "subnormal", "faint", "specials")
DEPTHS = (64, 256)
TILE_N = 64
FIRST = 2  # batches of which there is a digest of their own, for a quick comparison
DIGESTS = Path(__file__).with_name("tensor_cores.json")


@triton.jit
def product(
    a, b, c, out, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, IMPRECISE: tl.constexpr
):
    """out [B, M, N] = c + a [B, M, K] @ b [B, K, N], K in tiles of STEP, chained."""
    batch = tl.program_id(0).to(tl.int64)
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    place = batch * M * N + m[:, None] * N + n[None, :]
    total = tl.load(c + place)
    for start in range(0, K, STEP):
        x = tl.load(a + batch * M * K + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + batch * K * N + n[None, :] * K + (start + k)[:, None])
        total = tl.dot(x, y, total, input_precision="tf32", max_num_imprecise_acc=IMPRECISE)
    tl.store(out + place, total)


def draw(kind: str, fmt: formats.Format, shape: tuple[int, ...], seed: int) -> Array:
    """Codes of `fmt`."""
    random = np.random.default_rng(seed)
    if kind in ("normal", "one-sided"):
        values = random.standard_normal(shape).astype(np.float32)
        values = np.abs(values) if kind == "one-sided" else values
        return formats.bits(values.astype(fmt.numpy_dtype))
    codes = random.integers(0, fmt.largest_code + 1, shape).astype(np.int64)
    if kind == "subnormal":
        few = random.random(shape) < 0.7
        codes = np.where(few, codes & ((1 << fmt.mantissa_bits + 1) - 1), codes)
    if kind == "specials":
        special = random.random(shape) < 0.002
        choices = [code for code in (fmt.infinity, fmt.nan) if code is not None]
        codes = np.where(special, random.choice(choices, shape), codes)
    sign = random.integers(0, 2, shape) * fmt.sign_bit
    return (codes | sign).astype(fmt.storage)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Batches of operands for one row of the table: codes a [B, M, K], b [B, N, K], and fp32 c [B, M, N]."""

    a: Array
    b: Array
    c: Array


def draw_problem(key: tuple[str, str], kind: str, k: int, outputs: int) -> Problem:
    """About `outputs` outputs of `k` products each; "faint" starts from numbers far below all products."""
    operand, instruction = key
    fmt = formats.by_name("fp32" if operand == "tf32" else operand)
    rows = 16 if instruction == "mma" else 64
    batches = max(outputs // (rows * TILE_N), 1)
    drawn = "subnormal" if kind == "faint" else kind
    a = draw(drawn, fmt, (batches, rows, k), 1)
    b = draw(drawn, fmt, (batches, TILE_N, k), 2)
    shape = (batches, rows, TILE_N)
    c = draw("wide" if kind == "wide" else "normal", formats.by_name("fp32"), shape, 3)
    scale = {"subnormal": 2.0**-140, "faint": 2.0**-36}.get(kind, 1.0)
    return Problem(a=a, b=b, c=c.view(np.float32) * np.float32(scale))


def expected(job: tuple[Any, ...]) -> Array:
    """The model's bits of one batch."""
    a, b, c, key = job
    return multiply(*operands_of(key, a, b.T), c, FORMATS[read_as(key)], SM_90[key]).view(np.uint32)


def read_as(key: tuple[str, str]) -> str:
    """The type that operands of a row of the table are multiplied in: mma.sync reads fp8 as fp16."""
    return "fp16" if key[0] in ("e4m3", "e5m2") and key[1] == "mma" else key[0]


def operands_of(key: tuple[str, str], *codes: Array) -> list[Array]:
    """Codes of that type for codes of the operands' own."""
    if read_as(key) == key[0]:
        return list(codes)
    own = formats.by_name(key[0]).numpy_dtype
    return [formats.bits(each.view(own).astype(np.float16)) for each in codes]


def multiply_on_card(key: tuple[str, str], problem: Problem, k: int) -> Array:
    """The card's bits, uint32 [B, M, N]; says so where the compiler chose another instruction than asked."""
    operand, instruction = key
    step = 64 if operand in ("e4m3", "e5m2") else 32
    storage = problem.a.dtype.itemsize
    signed = {1: np.int8, 2: np.int16, 4: np.int32}[storage]
    on_card = [
        torch.from_numpy(x.view(signed)).cuda().view(TORCH[operand]) for x in (problem.a, problem.b)
    ]
    out = torch.empty(problem.c.shape, device="cuda")
    imprecise = {"wgmma promoted": 32, "mma": 0}.get(instruction)
    if operand not in ("e4m3", "e5m2"):
        imprecise = None
    batches, rows, columns = problem.c.shape
    start = torch.from_numpy(problem.c).cuda()
    compiled = product[(batches,)](
        *on_card, start, out, k, rows, columns, step, imprecise, num_warps=4
    )
    chosen = "wgmma" if "wgmma" in compiled.asm["ptx"] else "mma"
    if not instruction.startswith(chosen):
        print(f"  {key}: the compiler chose {chosen}")
    return out.cpu().numpy().view(np.uint32)


def compare(
    pool: ProcessPoolExecutor, key: tuple[str, str], kind: str, k: int, outputs: int
) -> tuple[int, dict[str, str]]:
    """(how many outputs differ in a bit, any NaN counted as one; digests of what the card gave)."""
    problem = draw_problem(key, kind, k, outputs)
    got = multiply_on_card(key, problem, k)
    jobs = [(problem.a[i], problem.b[i], problem.c[i], key) for i in range(len(got))]
    want = np.stack(list(pool.map(expected, jobs, chunksize=max(len(got) // 64, 1))))
    both_nan = np.isnan(got.view(np.float32)) & np.isnan(want.view(np.float32))
    different = (got != want) & ~both_nan
    if different.any():
        index = tuple(int(i) for i in np.argwhere(different)[0])
        print(f"  {key} {kind} K {k} at {index}: card {got[index]:08x}, model {want[index]:08x}")
    return int(different.sum()), {"first": digest(got[:FIRST]), "all": digest(got)}


def digest(bits: Array) -> str:
    """SHA-256 of fp32 bit patterns, every NaN counted as one."""
    bits = np.ascontiguousarray(bits, dtype=np.uint32)
    canonical = np.where(np.isnan(bits.view(np.float32)), np.uint32(0x7FC00000), bits)
    return hashlib.sha256(canonical.astype("<u4").tobytes()).hexdigest()


def main() -> int:
    """A line for each row of the table, then the file of digests; 1 if any output differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outputs", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help=f"write {DIGESTS.name}")
    chosen = parser.parse_args()
    where = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    print(*where.values())
    share = chosen.outputs // (len(KINDS) * len(DEPTHS))
    worst, taken = 0, {}
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for key in sorted(SM_90):
            counts = {}
            for kind in KINDS:
                for k in DEPTHS:
                    counts[kind, k], digests = compare(pool, key, kind, k, share)
                    taken[f"{' '.join(key)}, {kind}, {k}"] = digests
            worst = max(worst, *counts.values())
            told = ", ".join(f"{kind} K {k}: {n}" for (kind, k), n in counts.items() if n) or "none"
            print(
                f"{' '.join(key):22} differing of {chosen.outputs}: {sum(counts.values())} ({told})",
                flush=True,
            )
    if chosen.write:
        DIGESTS.write_text(
            json.dumps({**where, "outputs": share, "digests": taken}, indent=1) + "\n"
        )
    return int(worst > 0)


if __name__ == "__main__":
    sys.exit(main())
