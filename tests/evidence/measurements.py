"""What differs between a card and the interpreter lane: errors against float64, with their bounds.

`MEASURED` items give, by row, the greatest error found and the bound that it has to keep, in the unit
the item states. `FACTS` are read off a card and recorded; no test depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.evidence import digest_kernels as kernels
from tests.evidence.digests import TYPES, Array, Item, Machine, hashed, tensor
from tests.evidence.fidelity import BOUNDED

LOG2_E = np.uint32(0x3FB8AA3B).view(np.float32)

# Rows of `functions` whose bound is that of another operation of the lane.
_OPERATION = {"div": "fdiv"}
ULPS = {
    name: bound.ulps
    for name in kernels.FUNCTIONS
    if (bound := BOUNDED.get(_OPERATION.get(name, name))) is not None and bound.ulps is not None
}


def _reference(name: str, x: Array, y: Array) -> Array:
    """float64 values of a function, of the rounded product for exp, which is ex2(x * log2(e))."""
    from math import erf

    wide, other = x.astype(np.float64), y.astype(np.float64)
    return {
        "exp": lambda: np.exp2((x * LOG2_E).astype(np.float64)),
        "exp2": lambda: np.exp2(wide),
        "log": lambda: np.log(np.abs(wide)),
        "log2": lambda: np.log2(np.abs(wide)),
        "sin": lambda: np.sin(wide),
        "cos": lambda: np.cos(wide),
        "erf": lambda: np.vectorize(erf)(wide),
        "sqrt": lambda: np.sqrt(np.abs(wide)),
        "rsqrt": lambda: 1 / np.sqrt(np.abs(wide)),
        "div": lambda: wide / other,
    }[name]()


def functions(machine: Machine) -> dict[str, Any]:
    """ulp by function, over 2^16 arguments of either sign with exponents from -20 to 6."""
    words = hashed(1 << 16, 31)
    exponent = np.uint32(127 - 20) + (words >> np.uint32(9)) % np.uint32(27)
    bits = (words & np.uint32(0x807FFFFF)) | (exponent << np.uint32(23))
    x, y = bits.view(np.float32), bits[::-1].copy().view(np.float32)
    n = x.size
    out = torch.empty(len(kernels.FUNCTIONS), n, device=machine.device)
    operands = (tensor(v.view(np.uint32), torch.float32, machine.device) for v in (x, y))
    machine.run(kernels.functions, n, *operands, out, n)
    found = {}
    for name, row in zip(kernels.FUNCTIONS, out.cpu().numpy().astype(np.float64), strict=True):
        if name in ULPS:
            with np.errstate(all="ignore"):
                exact = _reference(name, x, y)
                normal = (np.abs(exact) >= 2.0**-126) & (np.abs(exact) < 2.0**127)
                ulp = np.exp2(np.floor(np.log2(np.abs(exact))) - 23)
                error = float((np.abs(row - exact) / ulp)[normal].max())
            found[name] = {"measured": error, "bound": ULPS[name]}
    return found


def _whole_range(seed: int, *shape: int) -> Tensor:
    """fp32 in [-1, 1) with 24 bits in use."""
    count = int(np.prod(shape))
    centred = (hashed(count, seed) >> np.uint32(8)).astype(np.int64) - (1 << 23)
    return (torch.from_numpy(centred).double() * 2.0**-23).float().reshape(shape)


def row_sums(name: str) -> Item:
    """Errors of sums and cumulative sums of 128 numbers, relative to the sum of magnitudes."""

    def item(machine: Machine) -> dict[str, Any]:
        rows, n = 64, 128
        x = _whole_range(32, rows, n).to(TYPES[name])
        exact, size = x.double(), x.double().abs()
        here = x.to(machine.device)
        out = torch.empty(len(kernels.ROWS), rows, dtype=torch.float64, device=machine.device)
        machine.launch(kernels.reduce_rows, (rows,), (here, out, rows, n), True)
        scan = torch.empty(rows, n, dtype=torch.float64, device=machine.device)
        machine.launch(kernels.scan_rows, (rows,), (here, scan, n), True)
        sums = ((out[0].cpu() - exact.sum(1)).abs() / size.sum(1)).max().item()
        scans = ((scan.cpu() - exact.cumsum(1)).abs() / size.cumsum(1)).max().item()
        # n - 1 additions, each rounded; no partial sum exceeds the sum of magnitudes.
        unit = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-24}[name]
        bound = (n - 1) * unit * (1 + unit) ** (n - 1)
        return {
            "sum": {"measured": sums, "bound": bound},
            "cumsum": {"measured": scans, "bound": bound},
        }

    return item


# (type, precision, max_num_imprecise_acc): error left by the operands, and by each addition. A tensor
# core adds with truncation, hence a whole unit in the last place of fp32; in fp8 it keeps 13 bits
# behind the point unless told to add outside.
PRODUCTS: Mapping[str, tuple[str, str, int | None, float, float]] = {
    "bf16": ("bf16", "ieee", None, 0.0, 2.0**-23),
    "fp16": ("fp16", "ieee", None, 0.0, 2.0**-23),
    "e4m3": ("e4m3", "ieee", None, 0.0, 2.0**-13),
    "e4m3, added in fp32": ("e4m3", "ieee", 0, 0.0, 2.0**-13),
    "e5m2": ("e5m2", "ieee", None, 0.0, 2.0**-13),
    "fp32, ieee": ("fp32", "ieee", None, 0.0, 2.0**-24),
    "fp32, tf32": ("fp32", "tf32", None, 2.0**-9, 2.0**-23),
    "fp32, tf32x3": ("fp32", "tf32x3", None, 2.0**-20, 3 * 2.0**-23),
    "fp32, bf16x3": ("fp32", "bf16x3", None, 2.0**-15, 3 * 2.0**-23),
    "fp32, bf16x6": ("fp32", "bf16x6", None, 2.0**-22, 6 * 2.0**-23),
}


def products(m: int, n: int, k: int) -> Item:
    """Errors of `tl.dot`, relative to the product of magnitudes, by operand type and precision."""

    def item(machine: Machine) -> dict[str, Any]:
        found = {}
        for row, (name, precision, imprecise, operands, addition) in PRODUCTS.items():
            a, b = (_whole_range(s, *d).to(TYPES[name]) for s, d in ((33, (m, k)), (34, (k, n))))
            out = torch.empty(m, n, device=machine.device)
            arguments = (a.to(machine.device), b.to(machine.device), out)
            machine.launch(kernels.product, (1,), (*arguments, precision, imprecise, m, n, k), True)
            exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
            error = ((out.cpu().double() - exact).abs() / size).max().item()
            found[row] = {"measured": error, "bound": operands + k * addition}
        return found

    return item


def measured() -> Iterator[tuple[str, Item]]:
    """(name, item) of all that keeps a bound instead of being equal."""
    yield "functions, ulp", functions
    for name in ("bf16", "fp16", "fp32"):
        yield f"row sums of {name}, relative to magnitudes", row_sums(name)
    for m, n, k in ((16, 16, 32), (64, 64, 128)):
        yield f"products {m} x {n} x {k}, relative to magnitudes", products(m, n, k)


def tf32_reading(m: int) -> Item:
    """How many of 64 probes per operand a tensor core reads as truncated, or rounded either way."""

    def item(machine: Machine) -> dict[str, Any]:
        k, low = 32, np.arange(m, dtype=np.uint32) * np.uint32(8192 // m)
        # Every sixteenth of the 13 bits that may be dropped, the tie among them, above both an even
        # and an odd last kept bit.
        probes = (
            np.uint32(0x3F800000) + low + np.uint32(0x2000) * (np.arange(m) % 2).astype(np.uint32)
        )
        models = {
            "truncated": probes & np.uint32(0xFFFFE000),
            "ties away": (probes + np.uint32(0x1000)) & np.uint32(0xFFFFE000),
            "ties to even": (probes + np.uint32(0xFFF) + ((probes >> 13) & 1))
            & np.uint32(0xFFFFE000),
        }
        values = torch.from_numpy(probes.astype(np.int64)).to(torch.int32).view(torch.float32)
        found = {}
        for side in ("left", "right"):
            a, b = torch.zeros(m, k), torch.zeros(k, m)
            a[:, 0], b[0, :] = (values, 1.0) if side == "left" else (1.0, values)
            out = torch.empty(m, m, device=machine.device)
            arguments = (a.to(machine.device), b.to(machine.device), out)
            machine.launch(kernels.product, (1,), (*arguments, "tf32", None, m, m, k), True)
            read = (out[:, 0] if side == "left" else out[0]).cpu().numpy().view(np.uint32)
            found[side] = {name: int((read == model).sum()) for name, model in models.items()}
        return found

    return item


def accumulator(machine: Machine) -> dict[str, Any]:
    """For each operand type: which 2^-i beside 1 survive inside one tensor core product."""
    m, k = 64, 32
    found = {}
    for row, (name, precision, imprecise, _, _) in PRODUCTS.items():
        a, b = torch.zeros(m, k), torch.zeros(k, m)
        a[:, 0], b[0] = 256.0, 256.0
        exponents = torch.arange(18)
        a[:18, 1], b[1] = 2.0 ** (8 - exponents), 1.0
        kept = a[:, 1].to(TYPES[name]).float()
        out = torch.empty(m, m, device=machine.device)
        operands = (x.to(TYPES[name]).to(machine.device) for x in (a, b))
        machine.launch(kernels.product, (1,), (*operands, out, precision, imprecise, m, m, k), True)
        survived = (out[:18, 0].cpu() != 65536.0) & (kept[:18] != 0)
        found[row] = [int(i) + 8 for i in torch.nonzero(survived)]
    return found


def nan_patterns(machine: Machine) -> dict[str, Any]:
    """The patterns that a few instructions give for NaN."""
    quiet = torch.full((64,), float("nan"), device=machine.device)
    out = torch.empty(len(kernels.ARITHMETIC) + 5, 64, device=machine.device)
    flags = torch.empty(len(kernels.COMPARISONS), 64, dtype=torch.int8, device=machine.device)
    machine.run(kernels.arithmetic, 64, quiet, quiet, out, flags, 64, True, True)
    names = (*kernels.ARITHMETIC, *kernels.WIDE, *kernels.SINGLE)
    bits = out[:, 0].cpu().view(torch.int32).tolist()
    return {name: f"{pattern % (1 << 32):#x}" for name, pattern in zip(names, bits, strict=True)}


MEASURED: Mapping[str, Item] = dict(measured())
FACTS: Mapping[str, Item] = {
    "tf32 operands, 16 x 16 x 32": tf32_reading(16),
    "tf32 operands, 64 x 64 x 32": tf32_reading(64),
    "exponents kept by the accumulator": accumulator,
    "NaN patterns": nan_patterns,
}
