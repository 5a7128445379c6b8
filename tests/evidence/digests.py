"""What is digested: inputs from integer hashes, launches of `digest_kernels`, SHA-256 of the outputs.

Every item is a function of a `Machine` that answers with JSON, and must answer the same on a card and
on the interpreter lane. A digest has every NaN replaced by one first: which NaN an instruction gives
is no part of the claim. What differs is in `measurements`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tests.evidence import digest_kernels as kernels

Array = npt.NDArray[Any]
Item = Callable[["Machine"], dict[str, Any]]

TYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i16": torch.int16,
    "u16": torch.uint16,
    "i32": torch.int32,
    "u32": torch.uint32,
    "i64": torch.int64,
    "u64": torch.uint64,
}
TARGETS = tuple(TYPES)
SWEEP_BLOCK = 1 << 24
SWEPT = {
    "e4m3": False,
    "e5m2": False,
    "bf16": False,
    "fp16": False,
    "bf16 rtz": True,
    "fp16 rtz": True,
    "e5m2 rtz": True,
}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where kernels run: `launch(kernel, grid, args, fp_fusion)`, tensors on `device`.

    `block` is how many elements a program of an elementwise kernel takes.
    """

    device: torch.device
    launch: Callable[[Any, tuple[int, ...], tuple[Any, ...], bool], None]
    block: int

    def run(self, kernel: Any, count: int, *args: Any, fp_fusion: bool = True) -> None:
        """Launch an elementwise kernel over `count` elements; its last argument is the block."""
        block = min(self.block, count)
        self.launch(kernel, (count // block,), (*args, block), fp_fusion)


def hashed(count: int, salt: int, bits: int = 32) -> Array:
    """`count` hashed words of 32 or 64 bits, the same on every machine (lowbias32, C. Wellons)."""
    if bits == 64:
        high, low = hashed(count, salt).astype(np.uint64), hashed(count, salt + 1)
        return (high << np.uint64(32)) | low
    x = np.arange(count, dtype=np.uint32) + np.uint32(salt * 0x9E3779B1 % (1 << 32))
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def tensor(patterns: Array, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Bit patterns as a tensor of a type of the same width."""
    signed = np.ascontiguousarray(patterns).view(f"i{patterns.dtype.itemsize}")
    return torch.from_numpy(signed).view(dtype).to(device)


def patterns(values: Tensor) -> Array:
    """The bit patterns of a tensor, unsigned, every NaN made the same."""
    width = values.element_size()
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width]
    bits = values.contiguous().view(whole)
    if values.dtype.is_floating_point:
        nan = torch.isnan(values.float() if width < 4 else values)
        bits = bits.masked_fill(nan, (1 << (8 * width - 1)) - 1)
    return bits.cpu().numpy().view(f"u{width}")


def digest(values: Tensor) -> str:
    """SHA-256 of a tensor's bit patterns, every NaN made the same; 16 hexadecimal digits of it."""
    return _hash(patterns(values))


def _hash(bits: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(bits)).hexdigest()[:16]


def every_code(name: str) -> Array:
    """All patterns of an 8- or 16-bit type."""
    width = TYPES[name].itemsize
    return np.arange(1 << (8 * width), dtype=np.uint64).astype(f"u{width}")


def sample(name: str) -> Array:
    """2^20 patterns of a wider type: hashed, and around the ties of every smaller format."""
    if name == "fp32":
        ties = np.arange(1 << 18, dtype=np.uint32) << np.uint32(14)
        parts = [hashed(1 << 18, 1), ties, ties + np.uint32(1), ties - np.uint32(1)]
        return np.concatenate(parts)
    if name == "fp64":
        words = hashed(1 << 20, 2, bits=64)
        exponents = np.uint64(1023 - 40) + (words >> np.uint64(52)) % np.uint64(80)
        usual = (words & np.uint64(0x800FFFFFFFFFFFFF)) | (exponents << np.uint64(52))
        near_ties = (usual >> np.uint64(28) << np.uint64(28)) + words % np.uint64(3)
        words[1::4], words[2::4] = usual[1::4], near_ties[2::4]
        return words
    bits = 8 * TYPES[name].itemsize
    words = hashed(1 << 20, 3, bits)
    # Every magnitude: shifted by up to all but one bit, half of them inverted.
    shifted = words >> (hashed(1 << 20, 5) % np.uint32(bits)).astype(words.dtype)
    shifted[::2] = ~shifted[::2]
    return shifted


def inputs(name: str) -> Array:
    """Everything there is of a small type, a sample of a wide one."""
    return every_code(name) if TYPES[name].itemsize <= 2 else sample(name)


def conversions(source: str) -> Item:
    """Digests of every conversion of one type, by target."""

    def item(machine: Machine) -> dict[str, Any]:
        x = tensor(inputs(source), TYPES[source], machine.device)
        is_float = TYPES[source].is_floating_point
        wide, fp8 = source not in ("e4m3", "e5m2"), source in ("bf16", "fp16", "fp32")
        integers = is_float and wide
        targets = [
            target
            for target in TARGETS
            if target in ("bf16", "fp16", "fp32")
            or (target == "fp64" and wide)
            or (target in ("e4m3", "e5m2") and fp8)
            or (target[0] in "iu" and integers)
        ]
        made = {target: torch.empty_like(x, dtype=TYPES[target]) for target in targets}
        passed = [made.get(target, x) for target in TARGETS]
        machine.run(kernels.convert, x.numel(), x, *passed, wide, fp8, integers)
        return {target: digest(result) for target, result in made.items()}

    return item


def truncations(machine: Machine) -> dict[str, Any]:
    """Digests of fp32 rounded toward zero, by target."""
    x = tensor(sample("fp32"), torch.float32, machine.device)
    made = {name: torch.empty_like(x, dtype=TYPES[name]) for name in ("bf16", "fp16", "e5m2")}
    machine.run(kernels.truncate, x.numel(), x, *made.values())
    return {name: digest(result) for name, result in made.items()}


def sweep_block(machine: Machine, name: str, number: int) -> Tensor:
    """fp32 patterns [number * 2^24, (number + 1) * 2^24) converted to one of SWEPT."""
    dtype = TYPES[name.split()[0]]
    out = torch.empty(SWEEP_BLOCK, dtype=dtype, device=machine.device)
    machine.run(kernels.sweep, SWEEP_BLOCK, out, number * SWEEP_BLOCK, SWEPT[name])
    return out


def sweeps(name: str) -> Item:
    """Digests of all 2^32 fp32 patterns converted, a block of 2^24 each."""

    def item(machine: Machine) -> dict[str, Any]:
        with ThreadPoolExecutor(8) as hashing:
            blocks = (patterns(sweep_block(machine, name, number)) for number in range(256))
            return {"blocks": list(hashing.map(_hash, blocks))}

    return item


def pairs(name: str) -> tuple[Array, Array]:
    """Operands: all pairs of a lattice of 512 patterns, and 2^18 hashed pairs, most close."""
    word = np.dtype(f"u{TYPES[name].itemsize}")
    bits, mantissa = 8 * word.itemsize, {"bf16": 7, "fp16": 10, "fp32": 23, "fp64": 52}[name]
    width = max(bits, 32)
    top = np.arange(256, dtype=word) << word.type(bits - 8)
    rest = hashed(256, 10, width).astype(word) & word.type((1 << (bits - 8)) - 1)
    lattice = np.concatenate([top, top | rest])
    a, b = (grid.ravel() for grid in np.meshgrid(lattice, lattice, indexing="ij"))
    first, second = (hashed(1 << 18, salt, width).astype(word) for salt in (11, 12))
    # The second operand within a few binades of the first, where sums cancel and round.
    close = first ^ (second & word.type((4 << mantissa) - 1 | 1 << (bits - 1)))
    close[::4] = second[::4]
    return np.concatenate([a, first]), np.concatenate([b, close])


def arithmetic(name: str) -> Item:
    """Digests of arithmetic and comparisons on pairs of one type, by operation."""

    def item(machine: Machine) -> dict[str, Any]:
        a, b = (tensor(x, TYPES[name], machine.device) for x in pairs(name))
        n = a.numel()
        names = [*kernels.ARITHMETIC]
        names += kernels.WIDE if name in ("fp32", "fp64") else ()
        names += kernels.SINGLE if name == "fp32" else ()
        out = torch.empty(len(names), n, dtype=TYPES[name], device=machine.device)
        flags = torch.empty(len(kernels.COMPARISONS), n, dtype=torch.int8, device=machine.device)
        wide, single = name in ("fp32", "fp64"), name == "fp32"
        machine.run(kernels.arithmetic, n, a, b, out, flags, n, wide, single)
        rows = zip([*names, *kernels.COMPARISONS], [*out, *flags], strict=True)
        return {row: digest(values) for row, values in rows}

    return item


def triples(name: str) -> tuple[Array, Array, Array]:
    """Factors from `pairs`, and addends: hashed ones, and ones that nearly cancel the product."""
    a, b = pairs(name)
    third = hashed(a.size, 13, max(8 * a.itemsize, 32)).astype(a.dtype)
    x, y = (tensor(p, TYPES[name], torch.device("cpu")) for p in (a, b))
    cancel = patterns(-(x.double() * y.double()).to(TYPES[name]))
    near = cancel ^ (third & a.dtype.type(3))
    c = np.where(np.arange(a.size) % 2 == 0, near, third)
    return a, b, c


def contractions(name: str) -> Item:
    """Digests of products that meet sums, by expression and by the fusion setting."""

    def item(machine: Machine) -> dict[str, Any]:
        operands = [tensor(x, TYPES[name], machine.device) for x in triples(name)]
        out = torch.empty_like(operands[0])
        found = {"inputs": digest(torch.cat(operands))}
        for op in kernels.CONTRACTIONS:
            for fused in (True, False):
                machine.run(kernels.contract, out.numel(), *operands, out, op, fp_fusion=fused)
                found[f"{op}, fusion {'on' if fused else 'off'}"] = digest(out)
        return found

    return item


def clamps(name: str) -> Item:
    """Digests of `tl.clamp`, by what its bounds are."""

    def item(machine: Machine) -> dict[str, Any]:
        operands = [tensor(x, TYPES[name], machine.device) for x in triples(name)]
        n = operands[0].numel()
        out = torch.empty(len(kernels.CLAMPS), n, dtype=TYPES[name], device=machine.device)
        machine.run(kernels.clamp, n, *operands, out, n)
        rows = zip(kernels.CLAMPS, out, strict=True)
        return {"inputs": digest(torch.cat(operands)), **{r: digest(v) for r, v in rows}}

    return item


def integers(name: str) -> Item:
    """Digests of integer arithmetic, by operation."""

    def item(machine: Machine) -> dict[str, Any]:
        x = sample(name)
        a, b = (tensor(p, TYPES[name], machine.device) for p in (x, x[::-1]))
        n = a.numel()
        names = [*kernels.INTEGER, "umulhi"]
        out = torch.empty(len(names), n, dtype=TYPES[name], device=machine.device)
        machine.run(kernels.integers, n, a, b, out, n, True)
        return {row: digest(values) for row, values in zip(names, out, strict=True)}

    return item


def exact_rows(name: str) -> Item:
    """Digests of reductions whose answer no order changes: small whole numbers, some repeated."""

    def item(machine: Machine) -> dict[str, Any]:
        rows, n = 64, 128
        words = (hashed(rows * n, 21) % np.uint32(5)).astype(np.int64).reshape(rows, n) - 2
        # Keep bf16 sums below 256.
        words[:, ::2] = np.where(words[:, ::2] > 0, 1, words[:, ::2] // 2)
        x = torch.from_numpy(words).to(TYPES[name]).to(machine.device)
        out = torch.empty(len(kernels.ROWS), rows, dtype=torch.float64, device=machine.device)
        machine.launch(kernels.reduce_rows, (rows,), (x, out, rows, n), True)
        found = {row: digest(values) for row, values in zip(kernels.ROWS, out, strict=True)}
        sums = torch.empty(rows, n, dtype=torch.float64, device=machine.device)
        machine.launch(kernels.scan_rows, (rows,), (x, sums, n), True)
        return {**found, "cumsum": digest(sums)}

    return item


def extremes_with_nan(machine: Machine) -> dict[str, Any]:
    """Digests of max and min over rows of fp32 in which every fourth element is NaN."""
    rows, n = 64, 128
    x = tensor(hashed(rows * n, 22), torch.float32, machine.device).clone()
    x[::4] = float("nan")
    out = torch.empty(len(kernels.ROWS), rows, dtype=torch.float64, device=machine.device)
    machine.launch(kernels.reduce_rows, (rows,), (x, out, rows, n), True)
    return {"max": digest(out[1]), "min": digest(out[2])}


def exact() -> Iterator[tuple[str, Item]]:
    """(name, item) of all that must be equal everywhere, the sweeps of 2^32 last."""
    for source in ("bf16", "fp16", "e4m3", "e5m2", "i8", "u8", "i16", "u16"):
        yield f"convert every {source}", conversions(source)
    for source in ("fp32", "fp64", "i32", "u32", "i64", "u64"):
        yield f"convert a sample of {source}", conversions(source)
    yield "truncate a sample of fp32", truncations
    for name in ("bf16", "fp16", "fp32", "fp64"):
        yield f"arithmetic of {name}", arithmetic(name)
    for name in ("bf16", "fp16", "fp32", "fp64"):
        yield f"contraction of {name}", contractions(name)
    for name in ("bf16", "fp16", "fp32"):
        yield f"clamp of {name}", clamps(name)
    for name in ("i32", "u32", "i64", "u64"):
        yield f"integers {name}", integers(name)
    for name in ("bf16", "fp16", "fp32", "i8", "i32", "i64"):
        yield f"exact rows of {name}", exact_rows(name)
    yield "extremes with NaN", extremes_with_nan
    for name in SWEPT:
        yield f"sweep {name}", sweeps(name)


EXACT: Mapping[str, Item] = dict(exact())
