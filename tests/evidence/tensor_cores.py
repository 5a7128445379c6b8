"""Products on a card against the model of its tensor cores, bit for bit.

    python -m tests.evidence.tensor_cores [--outputs 1000000]

For every row of `oracles.tensor_cores.SM_90` and every kind of operand, `tl.dot` over chained steps of K runs
on the card, and `multiply` on the processor; prints how many outputs differ in a bit. Exit 1 if any does.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from bitproof.oracles import formats
from bitproof.oracles.tensor_cores import SM_90, multiply

TORCH = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
KINDS = ("normal", "one-sided", "wide", "subnormal", "specials")
TILE_N = 64


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


def draw(kind: str, fmt: formats.Format, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
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


def expected(job: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """The model's bits of one batch."""
    a, b, c, name, key = job
    return multiply(a, b.T, c, formats.by_name(name), SM_90[key]).view(np.uint32)


def compare(
    pool: ProcessPoolExecutor, key: tuple[str, str], kind: str, k: int, outputs: int
) -> int:
    """How many of about `outputs` outputs differ in a bit, any NaN counted as one."""
    kind_of, instruction = key
    name = "fp32" if kind_of == "tf32" else kind_of
    fmt = formats.by_name(name)
    rows = 16 if instruction == "mma" else 64
    batches = max(outputs // (rows * TILE_N), 1)
    step = 64 if kind_of in ("e4m3", "e5m2") else 32
    a = draw(kind, fmt, (batches, rows, k), 1)
    b = draw(kind, fmt, (batches, TILE_N, k), 2)
    c = draw(
        "wide" if kind == "wide" else "normal", formats.by_name("fp32"), (batches, rows, TILE_N), 3
    )
    c = c.view(np.float32)
    if kind == "subnormal":
        c = c * np.float32(2.0**-140)
    signed = {1: np.int8, 2: np.int16, 4: np.int32}[fmt.storage.itemsize]
    on_card = [torch.from_numpy(x.view(signed)).cuda().view(TORCH[kind_of]) for x in (a, b)]
    out = torch.empty(c.shape, device="cuda")
    imprecise = {"wgmma promoted": 32, "mma": 0}.get(instruction)
    if kind_of not in ("e4m3", "e5m2"):
        imprecise = None
    compiled = product[(batches,)](
        *on_card, torch.from_numpy(c).cuda(), out, k, rows, TILE_N, step, imprecise, num_warps=4
    )
    chosen = "wgmma" if "wgmma" in compiled.asm["ptx"] else "mma"
    if not instruction.startswith(chosen):
        print(f"  {key}: the compiler chose {chosen}")
    got = out.cpu().numpy().view(np.uint32)
    jobs = [(a[i], b[i], c[i], name, key) for i in range(batches)]
    want = np.stack(list(pool.map(expected, jobs, chunksize=max(batches // 64, 1))))
    both_nan = np.isnan(got.view(np.float32)) & np.isnan(want.view(np.float32))
    different = (got != want) & ~both_nan
    if different.any():
        index = tuple(int(i) for i in np.argwhere(different)[0])
        print(f"  {key} {kind} K {k} at {index}: card {got[index]:08x}, model {want[index]:08x}")
    return int(different.sum())


def main() -> int:
    """A line for each row and kind; 1 if any output differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outputs", type=int, default=1_000_000)
    outputs = parser.parse_args().outputs
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    worst = 0
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for key in sorted(SM_90):
            counts = {}
            for kind in KINDS:
                for k in (64, 256):
                    share = outputs // (len(KINDS) * 2)
                    counts[kind, k] = compare(pool, key, kind, k, share)
            worst = max(worst, *counts.values())
            told = ", ".join(f"{kind} K {k}: {n}" for (kind, k), n in counts.items() if n) or "none"
            print(
                f"{' '.join(key):22} differing of {outputs}: {sum(counts.values())} ({told})",
                flush=True,
            )
    return int(worst > 0)


if __name__ == "__main__":
    sys.exit(main())
